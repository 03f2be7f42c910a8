// Package raw is the durable raw store of a stream: for each partition one chain of immutable segments, each an Avro container
// that other tools read. Writing a segment is committing the position; there is no second file to keep in step.
//
// On object storage a commit is one create-only object. In a local directory of one process it is one block, appended to a file
// and synced. Both hold the same blocks, and both read the same way.
package raw

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/stream-arrow/twgd/avrofile"
	"github.com/stream-arrow/twgd/chain"
	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks"
	"github.com/stream-arrow/twgd/store"
)

// Options of a raw store.
type Options struct {
	Bucket   store.Bucket
	Stream   string
	Codec    string       // zstd, snappy, deflate, null
	Roll     int64        // local layout: bytes after which a file is closed; 0 means 128 MiB
	ReadOnly bool         // for audit and for looking in: takes no lock, writes nothing
	Log      *slog.Logger // nil means silent
	Now      func() time.Time
}

// Store is the raw store of one stream. It implements sinks.Raw.
type Store struct {
	opt    Options
	codec  avrofile.Codec
	medium medium
	lock   *store.FileLock

	mu struct {
		sync.Mutex
		open map[record.Partition]*openChain
	}
}

// openChain is a chain that this process writes. Its mutex is held over an Append, which is one in flight a chain.
type openChain struct {
	sync.Mutex
	genesis int64
	head    sinks.Head
	writer  writer
	buf     buffers
}

// buffers are a chain's working memory between two appends; big ones are given back so that thousands of idle partitions are cheap.
type buffers struct{ entries, packed, out []byte }

const keepBuffer = 1 << 20

func (b *buffers) trim() {
	for _, p := range []*[]byte{&b.entries, &b.packed, &b.out} {
		if cap(*p) > keepBuffer {
			*p = nil
		}
	}
}

// medium is where chains lie: objects, or files of this process.
type medium interface {
	// open finds the chain's end and makes it writable.
	open(ctx context.Context, c chainID) (writer, sinks.Head, error)
	// head finds the chain's end for a reader.
	head(ctx context.Context, c chainID) (sinks.Head, error)
	// read calls f for the commits that touch s, in order.
	read(ctx context.Context, c chainID, s checkpoint.Span, f func(commit) error) error
}

// writer extends one chain.
type writer interface {
	// commit stores a block that holds [head, next). The link returned is what the chain has got, which is another's where ours is
	// false.
	commit(ctx context.Context, b block) (link chain.Link, ours bool, size int64, err error)
	close() error
}

// block is a commit made ready to be stored.
type block struct {
	first, next int64
	epoch       int32
	written     time.Time
	count       int
	packed      []byte // entries, compressed
	out         *[]byte
}

// chainID names a chain within the store.
type chainID struct {
	dir       string // <stream>/T/P
	partition record.Partition
	genesis   int64
}

// Open opens the stream's raw store. A local directory is locked against a second process; an object store is probed for
// create-only writes, without which zombies would overwrite.
func Open(ctx context.Context, opt Options) (*Store, error) {
	codec, err := avrofile.NewCodec(opt.Codec)
	if err != nil {
		return nil, err
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	if opt.Roll == 0 {
		opt.Roll = 128 << 20
	}
	s := &Store{opt: opt, codec: codec}
	s.mu.open = map[record.Partition]*openChain{}
	if err := s.openMedium(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Store) openMedium(ctx context.Context) error {
	dir, local := s.opt.Bucket.Local()
	if !s.opt.ReadOnly {
		if err := s.opt.Bucket.Probe(ctx); err != nil {
			return fmt.Errorf("raw store of stream %s: %w", s.opt.Stream, err)
		}
	}
	if !local {
		s.medium = &objects{bucket: s.opt.Bucket, codec: s.codec, stream: s.opt.Stream}
		return nil
	}
	s.medium = &files{dir: dir, codec: s.codec, stream: s.opt.Stream, roll: s.opt.Roll, log: s.opt.Log}
	if s.opt.ReadOnly {
		return nil
	}
	lock, err := lockStream(filepath.Join(dir, s.opt.Stream))
	if err != nil {
		return fmt.Errorf("raw store of stream %s: %w", s.opt.Stream, err)
	}
	s.lock = lock
	return nil
}

// genesis is the create-only object that fixes where a chain begins, and whose chain it is.
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
}

func (s *Store) id(p record.Partition) chainID {
	return chainID{dir: s.opt.Stream + "/" + p.Path(), partition: p}
}

// Begin implements sinks.Raw.
func (s *Store) Begin(ctx context.Context, p record.Partition, want func(context.Context) (int64, error)) (sinks.Head, error) {
	if c := s.opened(p); c != nil {
		c.Lock()
		defer c.Unlock()
		return c.head, nil
	}
	id := s.id(p)
	g, err := s.found(ctx, id, want)
	if err != nil {
		return sinks.Head{}, err
	}
	id.genesis = g
	w, head, err := s.medium.open(ctx, id)
	if err != nil {
		return sinks.Head{}, fmt.Errorf("opening the chain of %v: %w", p, err)
	}
	s.mu.Lock()
	s.mu.open[p] = &openChain{genesis: g, head: head, writer: w}
	s.mu.Unlock()
	return head, nil
}

// found reads the chain's genesis, or makes it.
func (s *Store) found(ctx context.Context, id chainID, want func(context.Context) (int64, error)) (int64, error) {
	g, err := s.genesis(ctx, id)
	if !errors.Is(err, sinks.ErrNoChain) {
		return g.First, err
	}
	first, err := want(ctx)
	if err != nil {
		return 0, fmt.Errorf("finding where %v begins: %w", id.partition, err)
	}
	p := id.partition
	body, err := json.Marshal(genesis{1, first, p.Cluster, p.Topic, fmt.Sprintf("%x", p.TopicID), p.Number, p.Generation,
		s.opt.Now().UTC().Format(time.RFC3339Nano), fmt.Sprintf("%x", chain.NewNonce())})
	if err != nil {
		return 0, err
	}
	stored, _, err := chain.Once(ctx, s.opt.Bucket, id.dir+"/_genesis", body)
	if err != nil {
		return 0, fmt.Errorf("writing the genesis of %v: %w", p, err)
	}
	g, err = parseGenesis(stored, id)
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
	return parseGenesis(b, id)
}

func parseGenesis(b []byte, id chainID) (g genesis, err error) {
	if err := json.Unmarshal(b, &g); err != nil || g.Version != 1 || g.First < 0 {
		return g, fmt.Errorf("%w: %s/_genesis is not a genesis of version 1", avrofile.ErrDamaged, id.dir)
	}
	if p := id.partition; p.Topic != "" && fmt.Sprintf("%x", p.TopicID) != g.TopicID {
		return g, fmt.Errorf("%s/_genesis belongs to topic id %s, which begins like the id %x of this one; give the stream another raw location",
			id.dir, g.TopicID, p.TopicID)
	}
	return g, nil
}

func (s *Store) opened(p record.Partition) *openChain {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.open[p]
}

// Append implements sinks.Raw.
func (s *Store) Append(ctx context.Context, p record.Partition, batches []*record.Batch) (sinks.Stored, error) {
	c := s.opened(p)
	if c == nil {
		return sinks.Stored{}, fmt.Errorf("raw: %v is not open for writing", p)
	}
	c.Lock()
	defer c.Unlock()
	if batches[0].First < c.head.Next { // an append of an earlier assignment of our own came in between
		return sinks.Stored{Head: c.head}, nil
	}
	mustFollow(c.head.Next, batches)
	b, err := s.pack(c, batches)
	if err != nil {
		return sinks.Stored{}, err
	}
	link, ours, size, err := c.writer.commit(ctx, b)
	c.buf.trim()
	if err != nil {
		return sinks.Stored{}, fmt.Errorf("storing %v [%d, %d): %w", p, b.first, b.next, err)
	}
	c.head.Last, c.head.Next = link.First, link.Next
	if ours {
		c.head.LeaderEpoch = b.epoch
	}
	return sinks.Stored{Head: c.head, Ours: ours, Written: b.written, Bytes: size}, nil
}

// pack encodes and compresses the batches into the chain's buffers.
func (s *Store) pack(c *openChain, batches []*record.Batch) (block, error) {
	last := batches[len(batches)-1]
	b := block{first: batches[0].First, next: last.Next, epoch: last.LeaderEpoch, written: s.opt.Now(), out: &c.buf.out}
	c.buf.entries, b.count = appendCommit(c.buf.entries[:0], batches, b.written)
	var err error
	c.buf.packed, err = s.codec.Compress(c.buf.packed[:0], c.buf.entries)
	b.packed = c.buf.packed
	return b, err
}

// mustFollow checks what a caller owes: batches that follow each other from the head on, and a gap alone.
func mustFollow(head int64, batches []*record.Batch) {
	at := head
	for _, b := range batches {
		if b.First != at || b.Next <= at || b.Gap != "" && len(batches) > 1 {
			panic(fmt.Sprintf("raw: batch [%d, %d) of %v does not follow %d", b.First, b.Next, b.Partition, at))
		}
		at = b.Next
	}
}

// End implements sinks.Raw.
func (s *Store) End(p record.Partition) {
	s.mu.Lock()
	c := s.mu.open[p]
	delete(s.mu.open, p)
	s.mu.Unlock()
	if c == nil {
		return
	}
	c.Lock()
	defer c.Unlock()
	if err := c.writer.close(); err != nil {
		s.opt.Log.Warn("closing a chain", "partition", p.String(), "error", err)
	}
}

// reader finds a chain for reading.
func (s *Store) reader(ctx context.Context, p record.Partition) (chainID, error) {
	id := s.id(p)
	if c := s.opened(p); c != nil {
		id.genesis = c.genesis
		return id, nil
	}
	g, err := s.genesis(ctx, id)
	id.genesis = g.First
	return id, err
}

// Head implements sinks.Raw. For a chain that this process writes it is what the last Append returned.
func (s *Store) Head(ctx context.Context, p record.Partition) (sinks.Head, error) {
	if c := s.opened(p); c != nil {
		c.Lock()
		defer c.Unlock()
		return c.head, nil
	}
	id, err := s.reader(ctx, p)
	if err != nil {
		return sinks.Head{}, err
	}
	return s.medium.head(ctx, id)
}

// Read implements sinks.Raw.
func (s *Store) Read(ctx context.Context, p record.Partition, span checkpoint.Span, f func(*record.Batch) error) error {
	id, err := s.reader(ctx, p)
	if err != nil {
		return err
	}
	return s.medium.read(ctx, id, span, func(c commit) error { return f(c.batch(p, span.From, span.To)) })
}

// Written implements sinks.Raw.
func (s *Store) Written(ctx context.Context, p record.Partition, offset int64) (at time.Time, ok bool, err error) {
	id, err := s.reader(ctx, p)
	if err != nil {
		return time.Time{}, false, err
	}
	err = s.medium.read(ctx, id, checkpoint.Span{From: offset, To: offset + 1}, func(c commit) error {
		at, ok = c.written, true
		return nil
	})
	return at, ok, err
}

// Partitions implements sinks.Raw.
func (s *Store) Partitions(ctx context.Context) ([]record.Partition, error) {
	topics, err := s.opt.Bucket.Dirs(ctx, s.opt.Stream+"/")
	if err != nil {
		return nil, fmt.Errorf("listing the topics in raw: %w", err)
	}
	var out []record.Partition
	for _, t := range topics {
		if t[0] == '_' {
			continue
		}
		numbers, err := s.opt.Bucket.Dirs(ctx, s.opt.Stream+"/"+t+"/")
		if err != nil {
			return nil, fmt.Errorf("listing the partitions in raw: %w", err)
		}
		for _, n := range numbers {
			p, err := s.identify(ctx, t+"/"+n)
			if err != nil {
				return nil, err
			}
			out = append(out, p)
		}
	}
	return out, nil
}

// identify reads the whole identity of the chain in a folder out of its genesis.
func (s *Store) identify(ctx context.Context, path string) (record.Partition, error) {
	if _, _, _, _, err := record.ParsePath(path); err != nil {
		return record.Partition{}, fmt.Errorf("raw holds a folder that is no partition's: %w", err)
	}
	g, err := s.genesis(ctx, chainID{dir: s.opt.Stream + "/" + path})
	if err != nil {
		return record.Partition{}, err
	}
	p := record.Partition{Cluster: g.Cluster, Topic: g.Topic, Number: g.Partition, Generation: g.Generation}
	if n, err := hex.Decode(p.TopicID[:], []byte(g.TopicID)); err != nil || n != len(p.TopicID) {
		return p, fmt.Errorf("%w: %s/_genesis names topic id %q", avrofile.ErrDamaged, path, g.TopicID)
	}
	return p, nil
}

// Close ends all chains and releases the lock.
func (s *Store) Close() error {
	s.mu.Lock()
	open := make([]record.Partition, 0, len(s.mu.open))
	for p := range s.mu.open {
		open = append(open, p)
	}
	s.mu.Unlock()
	for _, p := range open {
		s.End(p)
	}
	if s.lock != nil {
		return s.lock.Unlock()
	}
	return nil
}
