// Package raw is the durable raw store of a stream: for each partition one chain of immutable segments, each an Avro container
// that other tools read. Writing a segment is committing the position; there is no second file to keep in step.
//
// On object storage, and in a directory that several nodes share, a commit is one create-only object. In a local directory of one
// process it is one block, appended to a file and synced. Both hold the same blocks, and both read the same way.
package raw

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stream-arrow/twgd/avrofile"
	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks"
	"github.com/stream-arrow/twgd/store"
)

// Options of a raw store.
type Options struct {
	Bucket   store.Bucket
	FS       store.FS // of a local Bucket, where it has another than the operating system's
	Stream   string
	Codec    string       // zstd, snappy, deflate, null
	Shared   bool         // a directory: several nodes see it; on object storage they do anyhow
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
	bufs   sync.Pool // of *buffers; idle chains hold none
	known  sync.Map  // folder → record.Partition, of the chains that Chains has listed

	mu struct {
		sync.Mutex
		chains map[record.Partition]*openChain
	}
}

// openChain is a chain that this process writes or has written. Its mutex is held over an Append, which is one in flight a chain,
// and over opening and ending it: a file never has two writers.
type openChain struct {
	sync.Mutex
	writer writer // nil while the chain is not open

	// head is nil while the chain is not open. Readers take it without waiting for an Append.
	head atomic.Pointer[sinks.Head]
}

// buffers are the working memory of one Append.
type buffers struct{ entries, packed, out []byte }

// medium is where chains lie: objects, or files of this process.
type medium interface {
	// open finds the chain's end and makes it writable.
	open(ctx context.Context, c chainID) (writer, sinks.Head, error)
	// head finds the chain's end for a reader.
	head(ctx context.Context, c chainID) (sinks.Head, error)
	// read calls f for the commits that touch s, in order.
	read(ctx context.Context, c chainID, s checkpoint.Span, f func(commit) error) error
	// verify goes over the whole chain and reports what is wrong with it.
	verify(v *verifier) error
}

// writer extends one chain.
type writer interface {
	// commit stores a block that holds [head, next), and returns what the chain has got in its place.
	commit(ctx context.Context, b block) (stored, error)
	close() error
}

// block is a commit made ready to be stored.
type block struct {
	first, next int64
	epoch       int32
	written     time.Time
	count       int
	buf         *buffers // entries are filled in
}

// pack compresses the entries with the codec of the file that they go into, which may not be the one that is configured today.
func (b *block) pack(c avrofile.Codec) (err error) {
	if b.buf.packed, err = c.Compress(b.buf.packed[:0], b.buf.entries); err != nil {
		return fmt.Errorf("compressing: %w", err)
	}
	return nil
}

// chainID names a chain within the store.
type chainID struct {
	dir       string // <stream>/T/P
	partition record.Partition
	genesis   int64
}

// Open opens the stream's raw store. A local directory that is not shared is locked against a second process; every store is
// probed for create-only writes, without which zombies would overwrite. A directory that is written in the layout of the other
// setting of Shared is refused with ErrLayout.
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
	s.bufs.New = func() any { return new(buffers) }
	s.mu.chains = map[record.Partition]*openChain{}
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
	switch {
	case local && s.opt.Shared:
		return s.openShared(ctx, dir)
	case local:
		return s.openFiles(ctx, dir)
	}
	s.medium = &objects{bucket: s.opt.Bucket, codec: s.codec, stream: s.opt.Stream}
	return nil
}

func (s *Store) id(p record.Partition) chainID {
	return chainID{dir: s.opt.Stream + "/" + p.Path(), partition: p}
}

// chain is the entry of p, which is never taken away.
func (s *Store) chain(p record.Partition) *openChain {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.mu.chains[p]
	if c == nil {
		c = new(openChain)
		s.mu.chains[p] = c
	}
	return c
}

// Begin implements sinks.Raw.
func (s *Store) Begin(ctx context.Context, p record.Partition, want func(context.Context) (int64, error)) (sinks.Head, error) {
	c := s.chain(p)
	c.Lock()
	defer c.Unlock()
	return s.begin(ctx, c, p, want)
}

// noGenesis founds no chain.
func noGenesis(context.Context) (int64, error) { return 0, sinks.ErrNoChain }

func (s *Store) begin(ctx context.Context, c *openChain, p record.Partition, want func(context.Context) (int64, error)) (sinks.Head, error) {
	if s.opt.ReadOnly {
		return sinks.Head{}, fmt.Errorf("raw: the store of stream %s is open for reading only", s.opt.Stream)
	}
	if c.writer != nil {
		return *c.head.Load(), nil
	}
	id := s.id(p)
	var err error
	if id.genesis, err = s.found(ctx, id, want); err != nil {
		return sinks.Head{}, err
	}
	w, head, err := s.medium.open(ctx, id)
	if err != nil {
		return sinks.Head{}, fmt.Errorf("opening the chain of %v: %w", p, err)
	}
	c.writer = w
	c.head.Store(&head)
	return head, nil
}

// Append implements sinks.Raw.
func (s *Store) Append(ctx context.Context, p record.Partition, batches []*record.Batch) (sinks.Stored, error) {
	c := s.chain(p)
	c.Lock()
	defer c.Unlock()
	return s.append(ctx, c, p, batches)
}

func (s *Store) append(ctx context.Context, c *openChain, p record.Partition, batches []*record.Batch) (sinks.Stored, error) {
	if c.writer == nil {
		return sinks.Stored{}, fmt.Errorf("raw: %v is not open for writing", p)
	}
	if s.lock != nil {
		if err := s.lock.Holds(); err != nil {
			return sinks.Stored{}, fmt.Errorf("the directory of stream %s: %w", s.opt.Stream, err)
		}
	}
	head := *c.head.Load()
	if batches[0].First < head.Next { // an append of an earlier assignment of our own came in between
		return sinks.Stored{Head: head}, nil
	}
	mustFollow(head.Next, batches)
	buf := s.bufs.Get().(*buffers)
	defer s.bufs.Put(buf)
	b := s.block(buf, batches)
	if len(buf.entries) > avrofile.MaxBlock {
		return sinks.Stored{}, fmt.Errorf("storing %v [%d, %d): %d bytes are more than one commit may hold", p, b.first, b.next, len(buf.entries))
	}
	got, err := c.writer.commit(ctx, b)
	if err != nil {
		return sinks.Stored{}, fmt.Errorf("storing %v [%d, %d): %w", p, b.first, b.next, err)
	}
	head.Last, head.Next, head.LeaderEpoch = got.First, got.Next, got.epoch
	c.head.Store(&head)
	return sinks.Stored{Head: head, Ours: got.ours, Written: got.written, Bytes: got.size}, nil
}

// block encodes the batches into buf.
func (s *Store) block(buf *buffers, batches []*record.Batch) block {
	last := batches[len(batches)-1]
	b := block{first: batches[0].First, next: last.Next, epoch: last.LeaderEpoch, written: s.opt.Now(), buf: buf}
	buf.entries, b.count = appendCommit(buf.entries[:0], batches, b.written)
	return b
}

// mustFollow checks what a caller owes: batches that follow each other from the head on, whose records lie in them in order, and a
// gap alone. What is stored otherwise could not be read.
func mustFollow(head int64, batches []*record.Batch) {
	at := head
	for _, b := range batches {
		if b.First != at || b.Next <= at || b.Gap != "" && (len(batches) > 1 || len(b.Records) > 0) {
			panic(fmt.Sprintf("raw: batch [%d, %d) of %v does not follow %d", b.First, b.Next, b.Partition, at))
		}
		for i := range b.Records {
			if b.Records[i].Offset < at || b.Records[i].Offset >= b.Next {
				panic(fmt.Sprintf("raw: record %d of %v does not belong into [%d, %d)", b.Records[i].Offset, b.Partition, at, b.Next))
			}
			at = b.Records[i].Offset + 1
		}
		at = b.Next
	}
	if at == head {
		panic("raw: an append without a batch")
	}
}

// Skip extends the chain of p by a gap up to offset to, because an operator says so: what was to come between the head and there is
// given up, with the reason on record. A chain that is not open, since its partition changes hands just now, is opened for it; there
// must be one.
func (s *Store) Skip(ctx context.Context, p record.Partition, to int64, reason string) (sinks.Stored, error) {
	c := s.chain(p)
	c.Lock()
	defer c.Unlock()
	if c.writer == nil {
		if _, err := s.begin(ctx, c, p, noGenesis); err != nil {
			return sinks.Stored{}, err
		}
		defer s.end(c, p)
	}
	head := c.head.Load()
	if to <= head.Next {
		return sinks.Stored{}, fmt.Errorf("raw: %v cannot skip to %d: its head is %d already, and the chain never goes back", p, to, head.Next)
	}
	if reason == "" {
		return sinks.Stored{}, fmt.Errorf("raw: a skip of %v needs a reason", p)
	}
	b := &record.Batch{Partition: p, First: head.Next, Next: to, LeaderEpoch: -1, Gap: reason}
	return s.append(ctx, c, p, []*record.Batch{b})
}

// End implements sinks.Raw. It waits for an Append that is under way.
func (s *Store) End(p record.Partition) {
	c := s.chain(p)
	c.Lock()
	defer c.Unlock()
	s.end(c, p)
}

func (s *Store) end(c *openChain, p record.Partition) {
	if c.writer == nil {
		return
	}
	if err := c.writer.close(); err != nil {
		s.opt.Log.Warn("closing a chain", "partition", p.String(), "error", err)
	}
	c.writer = nil
	c.head.Store(nil)
}

// reader finds a chain for reading; known is its head where this process writes it.
func (s *Store) reader(ctx context.Context, p record.Partition) (id chainID, known *sinks.Head, err error) {
	id = s.id(p)
	if known = s.chain(p).head.Load(); known != nil {
		id.genesis = known.Genesis
		return id, known, nil
	}
	g, err := s.genesis(ctx, id)
	id.genesis = g.First
	return id, nil, err
}

// Head implements sinks.Raw. For a chain that this process writes it is what the last Append returned.
func (s *Store) Head(ctx context.Context, p record.Partition) (sinks.Head, error) {
	id, known, err := s.reader(ctx, p)
	if err != nil {
		return sinks.Head{}, err
	}
	if known != nil {
		return *known, nil
	}
	head, err := s.medium.head(ctx, id)
	if err != nil {
		return head, fmt.Errorf("finding the head of %v: %w", p, err)
	}
	return head, nil
}

// Read implements sinks.Raw. A hole in the chain is damage, and so is an end in front of what this process knows to be stored.
func (s *Store) Read(ctx context.Context, p record.Partition, span checkpoint.Span, f func(*record.Batch) error) error {
	return s.read(ctx, p, span, func(c commit) error { return f(c.batch(p, span.From, span.To)) })
}

func (s *Store) read(ctx context.Context, p record.Partition, span checkpoint.Span, f func(commit) error) error {
	id, known, err := s.reader(ctx, p)
	if err != nil {
		return err
	}
	span.From = max(span.From, id.genesis)
	if known != nil {
		span.To = min(span.To, known.Next)
	}
	if span.Empty() {
		return nil
	}
	at := int64(-1)
	err = s.medium.read(ctx, id, span, func(c commit) error {
		if at >= 0 && c.first != at || c.first > span.From && at < 0 {
			return fmt.Errorf("%w: [%d, %d) of %v stands behind %d", avrofile.ErrDamaged, c.first, c.next, p, max(at, span.From))
		}
		at = c.next
		return f(c)
	})
	if err == nil && known != nil && at < span.To {
		return fmt.Errorf("%w: the chain of %v ends at %d, but %d is stored", avrofile.ErrDamaged, p, max(at, span.From), known.Next)
	}
	return err
}

// Written implements sinks.Raw.
func (s *Store) Written(ctx context.Context, p record.Partition, offset int64) (at time.Time, ok bool, err error) {
	if o, objects := s.medium.(*objects); objects {
		id, _, err := s.reader(ctx, p)
		if err != nil || offset < id.genesis {
			return at, false, err
		}
		if at, ok, err = o.written(ctx, id, offset); err != nil {
			err = fmt.Errorf("finding when %d of %v was stored: %w", offset, p, err)
		}
		return at, ok, err
	}
	err = s.read(ctx, p, checkpoint.Span{From: offset, To: offset + 1}, func(c commit) error {
		at, ok = c.written, true
		return nil
	})
	return at, ok, err
}

// Close ends all chains and releases the lock.
func (s *Store) Close() error {
	s.mu.Lock()
	all := slices.Collect(maps.Keys(s.mu.chains))
	s.mu.Unlock()
	for _, p := range all {
		s.End(p)
	}
	if s.lock != nil {
		return s.lock.Unlock()
	}
	return nil
}
