package raw

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/stream-arrow/twgd/avrofile"
	"github.com/stream-arrow/twgd/chain"
	"github.com/stream-arrow/twgd/record"
)

// founding is the create-only object _stream: which Kafka cluster the stream belongs to, and where each partition that existed at
// its first start begins. What the configuration's `start` meant on that day is thereby fixed for good.
type founding struct {
	Version int             `json:"version"`
	Stream  string          `json:"stream"`
	Cluster string          `json:"cluster"`
	Created string          `json:"created"`
	Starts  []foundingStart `json:"starts"`
	CRC     string          `json:"crc32c"`
}

func (f *founding) crc() *string { return &f.CRC }

type foundingStart struct {
	Topic     string `json:"topic"`
	TopicID   string `json:"topic_id"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
}

// Found fixes, at the stream's first start, where each partition begins, and returns what was fixed then at every later one. A
// stream that was founded on another Kafka cluster is refused: its offsets would mean other records.
func (s *Store) Found(ctx context.Context, cluster string, starts map[record.Partition]int64) (map[record.Partition]int64, error) {
	f := founding{Version: 1, Stream: s.opt.Stream, Cluster: cluster, Created: s.opt.Now().UTC().Format(time.RFC3339Nano)}
	for _, p := range slices.SortedFunc(maps.Keys(starts), order) {
		f.Starts = append(f.Starts, foundingStart{p.Topic, hex.EncodeToString(p.TopicID[:]), p.Number, starts[p]})
	}
	body, err := marshalSealed(&f)
	if err != nil {
		return nil, err
	}
	stored, _, err := chain.Once(ctx, s.opt.Bucket, s.opt.Stream+"/_stream", body)
	if err != nil {
		return nil, fmt.Errorf("founding stream %s in raw: %w", s.opt.Stream, err)
	}
	return s.parseFounding(stored, cluster)
}

// Identity tells this raw from every other that a stream of this name ever had: what is stored at its first start says when that was.
// Before it there is none: store.ErrNotFound.
func (s *Store) Identity(ctx context.Context) ([sha256.Size]byte, error) {
	body, err := s.opt.Bucket.Read(ctx, s.opt.Stream+"/_stream")
	if err != nil {
		return [sha256.Size]byte{}, fmt.Errorf("reading when stream %s was founded in raw: %w", s.opt.Stream, err)
	}
	return sha256.Sum256(body), nil
}

func order(p, q record.Partition) int {
	switch {
	case p.Less(q):
		return -1
	case q.Less(p):
		return 1
	}
	return 0
}

func (s *Store) parseFounding(stored []byte, cluster string) (map[record.Partition]int64, error) {
	var f founding
	if err := unmarshalSealed(stored, &f); err != nil {
		return nil, fmt.Errorf("%w: %s/_stream: %v", avrofile.ErrDamaged, s.opt.Stream, err)
	}
	if f.Version != 1 || f.Stream != s.opt.Stream {
		return nil, fmt.Errorf("%s/_stream is of version %d and stream %q: this program or configuration does not fit it", s.opt.Stream, f.Version, f.Stream)
	}
	if f.Cluster != cluster {
		return nil, fmt.Errorf("stream %s was founded on Kafka cluster %q and is pointed at %q; its offsets would mean other records: "+
			"point it back, or give it another name or raw location", s.opt.Stream, f.Cluster, cluster)
	}
	out := make(map[record.Partition]int64, len(f.Starts))
	for _, st := range f.Starts {
		p := record.Partition{Cluster: cluster, Topic: st.Topic, Number: st.Partition}
		if n, err := hex.Decode(p.TopicID[:], []byte(st.TopicID)); err != nil || n != len(p.TopicID) {
			return nil, fmt.Errorf("%w: %s/_stream names topic id %q", avrofile.ErrDamaged, s.opt.Stream, st.TopicID)
		}
		out[p] = st.Offset
	}
	return out, nil
}
