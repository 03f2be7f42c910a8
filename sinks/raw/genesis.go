package raw

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/stream-arrow/twgd/avrofile"
	"github.com/stream-arrow/twgd/chain"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks"
	"github.com/stream-arrow/twgd/store"
)

// genesis is the create-only object that fixes where a chain begins, and whose chain it is. Its last field is a checksum: a
// flipped digit would let the chain begin elsewhere.
type genesis struct {
	Version    int    `json:"version"`
	First      int64  `json:"first"`
	Cluster    string `json:"cluster"`
	Topic      string `json:"topic"`
	TopicID    string `json:"topic_id"`
	Partition  int32  `json:"partition"`
	Generation int32  `json:"generation"`
	Created    string `json:"created"`
	Nonce      string `json:"nonce"`
	CRC        string `json:"crc32c"`
}

func (g *genesis) crc() *string { return &g.CRC }

func (g *genesis) partition() (record.Partition, error) {
	p := record.Partition{Cluster: g.Cluster, Topic: g.Topic, Number: g.Partition, Generation: g.Generation}
	if n, err := hex.Decode(p.TopicID[:], []byte(g.TopicID)); err != nil || n != len(p.TopicID) {
		return p, fmt.Errorf("%q is no topic id", g.TopicID)
	}
	return p, nil
}

// sealed is a small JSON object with a checksum in it.
type sealed interface{ crc() *string }

// marshalSealed writes v with the CRC-32C of what it would be with an empty checksum.
func marshalSealed(v sealed) ([]byte, error) {
	*v.crc() = ""
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return nil, err
	}
	*v.crc() = fmt.Sprintf("%08x", crc32.Checksum(b, castagnoli))
	return json.MarshalIndent(v, "", " ")
}

// unmarshalSealed reads what marshalSealed wrote, and nothing else: writing it again must give the same bytes.
func unmarshalSealed(b []byte, v sealed) error {
	if err := json.Unmarshal(b, v); err != nil {
		return err
	}
	again, err := marshalSealed(v)
	if err == nil && !bytes.Equal(again, b) {
		err = errors.New("its checksum does not match")
	}
	return err
}

// found reads the chain's genesis, or makes it.
func (s *Store) found(ctx context.Context, id chainID, want func(context.Context) (int64, error)) (int64, error) {
	g, err := s.genesis(ctx, id)
	if !errors.Is(err, sinks.ErrNoChain) {
		return g.First, err
	}
	p := id.partition
	first, err := want(ctx)
	if err == nil && first < 0 {
		err = fmt.Errorf("%d is no offset", first)
	}
	if err != nil {
		return 0, fmt.Errorf("finding where %v begins: %w", p, err)
	}
	body, err := marshalSealed(&genesis{1, first, p.Cluster, p.Topic, hex.EncodeToString(p.TopicID[:]), p.Number, p.Generation,
		s.opt.Now().UTC().Format(time.RFC3339Nano), fmt.Sprintf("%x", chain.NewNonce()), ""})
	if err != nil {
		return 0, err
	}
	stored, _, err := chain.Once(ctx, s.opt.Bucket, id.dir+"/_genesis", body)
	if err != nil {
		return 0, fmt.Errorf("writing the genesis of %v: %w", p, err)
	}
	g, err = ownGenesis(stored, id)
	return g.First, err
}

func (s *Store) genesis(ctx context.Context, id chainID) (genesis, error) {
	b, err := s.opt.Bucket.Read(ctx, id.dir+"/_genesis")
	if errors.Is(err, store.ErrNotFound) {
		return genesis{}, sinks.ErrNoChain
	}
	if err != nil {
		return genesis{}, fmt.Errorf("reading the genesis of %v: %w", id.partition, err)
	}
	return ownGenesis(b, id)
}

// ownGenesis parses a genesis and refuses one that is not of the chain's own partition.
func ownGenesis(b []byte, id chainID) (genesis, error) {
	g, err := parseGenesis(b, id.dir)
	if err != nil {
		return g, err
	}
	switch p, err := g.partition(); {
	case err != nil:
		return g, fmt.Errorf("%w: %s/_genesis: %v", avrofile.ErrDamaged, id.dir, err)
	case p.Cluster != id.partition.Cluster:
		return g, fmt.Errorf("%s/_genesis belongs to Kafka cluster %q and not to %q: its offsets would mean other records",
			id.dir, p.Cluster, id.partition.Cluster)
	case p.TopicID != id.partition.TopicID:
		return g, fmt.Errorf("%s/_genesis belongs to topic id %x, which begins like the id %x of this one; give the stream another raw location",
			id.dir, p.TopicID, id.partition.TopicID)
	case p != id.partition:
		return g, fmt.Errorf("%w: %s/_genesis belongs to %v", avrofile.ErrDamaged, id.dir, p)
	}
	return g, nil
}

func parseGenesis(b []byte, dir string) (g genesis, err error) {
	if err := unmarshalSealed(b, &g); err != nil {
		return g, fmt.Errorf("%w: %s/_genesis: %v", avrofile.ErrDamaged, dir, err)
	}
	if g.Version != 1 || g.First < 0 {
		return g, fmt.Errorf("%s/_genesis is of version %d, which this program does not know", dir, g.Version)
	}
	return g, nil
}

// Partitions implements sinks.Raw. A folder that is damaged is left out, and an error that says so comes beside what could be listed.
func (s *Store) Partitions(ctx context.Context) ([]record.Partition, error) {
	return s.partitions(ctx, s.identify)
}

// Chains is Partitions for who asks often: the genesis of a chain that was listed before is not read again.
func (s *Store) Chains(ctx context.Context) ([]record.Partition, error) {
	return s.partitions(ctx, func(ctx context.Context, path string) (record.Partition, error) {
		if p, ok := s.known.Load(path); ok {
			return p.(record.Partition), nil
		}
		p, err := s.identify(ctx, path)
		if err == nil {
			s.known.Store(path, p)
		}
		return p, err
	})
}

func (s *Store) partitions(ctx context.Context, identify func(context.Context, string) (record.Partition, error)) (out []record.Partition, damage error) {
	topics, err := s.opt.Bucket.Dirs(ctx, s.opt.Stream+"/")
	if err != nil {
		return nil, fmt.Errorf("listing the topics in raw: %w", err)
	}
	for _, t := range topics {
		if t[0] == '_' {
			continue
		}
		numbers, err := s.opt.Bucket.Dirs(ctx, s.opt.Stream+"/"+t+"/")
		if err != nil {
			return nil, fmt.Errorf("listing the partitions in raw: %w", err)
		}
		for _, n := range numbers {
			p, err := identify(ctx, t+"/"+n)
			switch {
			case err == nil:
				out = append(out, p)
			case errors.Is(err, avrofile.ErrDamaged):
				damage = errors.Join(damage, err)
			default:
				return nil, err
			}
		}
	}
	return out, damage
}

// identify reads the whole identity of the chain in a folder out of its genesis.
func (s *Store) identify(ctx context.Context, path string) (record.Partition, error) {
	dir := s.opt.Stream + "/" + path
	if _, _, _, _, err := record.ParsePath(path); err != nil {
		return record.Partition{}, fmt.Errorf("raw holds a folder that is no partition's: %w", err)
	}
	b, err := s.opt.Bucket.Read(ctx, dir+"/_genesis")
	if errors.Is(err, store.ErrNotFound) {
		return record.Partition{}, fmt.Errorf("%w: %s holds objects but no _genesis", avrofile.ErrDamaged, dir)
	}
	if err != nil {
		return record.Partition{}, fmt.Errorf("reading the genesis of %s: %w", path, err)
	}
	g, err := parseGenesis(b, dir)
	if err != nil {
		return record.Partition{}, err
	}
	p, err := g.partition()
	if err != nil || p.Path() != path {
		return p, fmt.Errorf("%w: %s/_genesis belongs to %v", avrofile.ErrDamaged, dir, p)
	}
	return p, nil
}
