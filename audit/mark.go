package audit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks/raw"
	"github.com/stream-arrow/twgd/store"
)

// mark remembers beside raw what an audit has read of a chain, so that the next one reads only what is new. It covers whole
// segments, of which the last one is never one: it may still grow. Names and sizes of the segments are part of it, so that one
// that was taken away or cut afterwards is noticed, and everything is read again.
type mark struct {
	Version int    `json:"version"`
	Topic   string `json:"topic"`
	TopicID string `json:"topic_id"`
	Genesis int64  `json:"genesis"`
	Next    int64  `json:"next"`     // all below has been read, and is whole
	Listing string `json:"listing"`  // SHA-256 over names and sizes of the segments below
	Commits int64  `json:"commits"`  // of these segments
	Records int64  `json:"records"`  //
	Gaps    []Gap  `json:"gaps"`     //
	Read    string `json:"verified"` // when
}

// sealedMark is a mark with the SHA-256 of its JSON. One that does not fit is as good as none.
type sealedMark struct {
	Mark   json.RawMessage `json:"mark"`
	SHA256 string          `json:"sha256"`
}

func markKey(stream string, p record.Partition) string {
	return stream + "/_verified/" + p.Path() + ".json"
}

// listing is the digest of all segments below next.
func listing(segments []raw.Segment, next int64) string {
	h := sha256.New()
	for _, s := range segments {
		if s.First < next {
			fmt.Fprintf(h, "%d %d\n", s.First, s.Size)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// readMark is the mark of a chain; false where there is none of this very chain.
func readMark(ctx context.Context, b store.Bucket, stream string, p record.Partition, genesis int64) (m mark, ok bool) {
	body, err := b.Read(ctx, markKey(stream, p))
	if err != nil {
		return mark{}, false
	}
	var sealed sealedMark
	if json.Unmarshal(body, &sealed) != nil || digest(sealed.Mark) != sealed.SHA256 || json.Unmarshal(sealed.Mark, &m) != nil {
		return mark{}, false
	}
	return m, m.Version == 1 && m.TopicID == hex.EncodeToString(p.TopicID[:]) && m.Genesis == genesis
}

// writeMark replaces the mark. Two audits at once both write what is true.
func writeMark(ctx context.Context, b store.Bucket, stream string, p record.Partition, m mark) error {
	m.Version, m.Topic, m.TopicID = 1, p.Topic, hex.EncodeToString(p.TopicID[:])
	inner, err := json.Marshal(m)
	if err != nil {
		return err
	}
	body, err := json.Marshal(sealedMark{inner, digest(inner)})
	if err != nil {
		return err
	}
	return b.Replace(ctx, markKey(stream, p), body)
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
