package kafka

import (
	"errors"
	"fmt"
	"sync"

	"github.com/stream-arrow/twgd/record"
)

// chunk is what one fetch brought of one partition, not decoded yet: it costs its compressed size until the receiver is ready
// for it. It may instead be a gap that the check of the log found.
type chunk struct {
	part    *part
	broker  int32
	raw     []byte // whole batches that are not decoded yet
	size    int64  // bytes of raw at first, which the read-ahead counts until the chunk is used up
	at      int64  // the offset that the next piece begins with
	aborts  aborter
	hide    bool // read_committed
	gap     string
	gapEnd  int64
	dropped bool // the partition was let go of, or rewound: nobody wants it
}

// done reports whether nothing is left to decode.
func (c *chunk) done() bool { return len(c.raw) == 0 && c.gap == "" }

// piece is the part of a chunk that is decoded at once.
const pieceBytes = 4 << 20

// slab is the memory of one decoded piece. It goes round: the last holder of the batch gives it back.
type slab struct {
	records []record.Record
	headers []record.Header // the tail of the block that is being filled
	buffers []*[]byte       // what batches were decompressed into
}

var slabs = sync.Pool{New: func() any { return new(slab) }}

// keepRecords bounds the records that an unused slab may hold on to.
const keepRecords = 1 << 17

func (s *slab) free() {
	for _, b := range s.buffers {
		putBuffer(b)
	}
	clear(s.records)
	clear(s.buffers)
	if cap(s.records) > keepRecords {
		return
	}
	s.records, s.headers, s.buffers = s.records[:0], nil, s.buffers[:0]
	slabs.Put(s)
}

// decoder turns chunks into batches. It allocates nothing per record. Not for concurrent use.
type decoder struct {
	inflater
	names map[string]string // header names seen, so that equal ones share memory
}

// fault is an error in the log itself: what was read at an offset cannot be decoded.
type fault struct {
	offset int64
	err    error
}

func (f *fault) Error() string {
	return fmt.Sprintf("the batch at offset %d cannot be read: %v", f.offset, f.err)
}
func (f *fault) Unwrap() error { return f.err }

// next decodes the next piece of the chunk, at least one batch of Kafka's. The batch returned begins where the one before it
// ended, so that holes of compaction and hidden transactions lie inside, and ends behind the last batch of Kafka's in it.
func (d *decoder) next(c *chunk) (*record.Batch, error) {
	b := &record.Batch{Partition: c.part.id, Epoch: c.part.epoch, First: c.at, Next: c.at, LeaderEpoch: -1}
	if c.gap != "" {
		b.Gap, b.Next = c.gap, c.gapEnd
		c.gap = ""
		return b.Weigh(nil), nil
	}
	s := slabs.Get().(*slab)
	err := d.fill(b, s, c)
	b.Records = s.records
	if b.Next == b.First { // nothing came that is new to us, or the first batch is the broken one
		s.free()
		return nil, err
	}
	return b.Weigh(s.free), nil // what is whole in front of a broken batch is delivered first
}

func (d *decoder) fill(b *record.Batch, s *slab, c *chunk) error {
	for used := 0; len(c.raw) > 0 && used < pieceBytes; {
		k, err := parseBatch(c.raw)
		if errors.Is(err, errOldFormat) {
			return d.fillOld(b, s, c)
		}
		if err != nil {
			return &fault{max(c.at, k.first), err}
		}
		if k.next > c.at {
			n, err := d.add(s, c, &k)
			if err != nil {
				return &fault{max(c.at, k.first), err}
			}
			used += n
			c.at, b.Next, b.LeaderEpoch = k.next, k.next, k.leaderEpoch
		}
		c.raw = c.raw[k.size:]
	}
	return nil
}

// add appends the records of k that the receiver may see, and returns the bytes that they take.
func (d *decoder) add(s *slab, c *chunk, k *batch) (int, error) {
	if err := verify(c.raw, k); err != nil {
		return 0, err
	}
	if hidden := c.hide && c.aborts.hides(k); hidden || k.control() {
		return 0, nil
	}
	body := k.body
	if k.codec() != codecNone {
		buffer := buffers.Get().(*[]byte)
		inflated, err := d.inflate((*buffer)[:0], body, k.codec())
		if err != nil {
			return 0, fmt.Errorf("decompressing: %w", err)
		}
		*buffer = inflated
		s.buffers = append(s.buffers, buffer)
		body = inflated
	}
	before := len(s.records)
	if err := d.records(s, c.at, k, body); err != nil {
		s.records = s.records[:before]
		return 0, err
	}
	return len(body), nil
}

// records appends the records in body from the offset at on: a broker answers with whole batches, also when the offset asked
// for lies inside.
func (d *decoder) records(s *slab, at int64, k *batch, body []byte) error {
	in := reader{in: body}
	for i := int32(0); i < k.count; i++ {
		one := reader{in: in.take(in.varint())}
		if in.bad {
			return fmt.Errorf("record %d of %d is cut off", i+1, k.count)
		}
		r := record.Record{LeaderEpoch: k.leaderEpoch, ProducerID: k.producerID, ProducerEpoch: k.producerEpoch, Transactional: k.transactional()}
		d.record(s, &r, k, &one)
		if one.bad {
			return fmt.Errorf("record %d of %d is malformed", i+1, k.count)
		}
		if r.Offset >= at {
			s.records = append(s.records, r)
		}
	}
	return nil
}

func (d *decoder) record(s *slab, r *record.Record, k *batch, in *reader) {
	in.skip(1) // attributes, which no version uses
	r.Timestamp = k.baseTimestamp + in.varint()
	if k.logAppend() {
		r.Timestamp, r.TimestampType = k.maxTimestamp, record.TimestampLogAppend
	}
	if r.Timestamp == -1 {
		r.TimestampType = record.TimestampNone
	}
	r.Offset = k.first + in.varint()
	r.Key, _ = in.nullable()
	r.Value, _ = in.nullable()
	if n := in.varint(); n > 0 && !in.bad {
		r.Headers = d.headers(s, n, in)
	}
}

// headers takes the header list from a block that the records of the slab share.
func (d *decoder) headers(s *slab, n int64, in *reader) []record.Header {
	if n > int64(len(in.in)) { // each takes two bytes and more
		in.fail()
		return nil
	}
	if int(n) > len(s.headers) {
		s.headers = make([]record.Header, max(int(n), 512))
	}
	list := s.headers[:n:n]
	s.headers = s.headers[n:]
	for i := range list {
		name, _ := in.nullable()
		list[i].Key = d.name(name)
		list[i].Value, _ = in.nullable()
	}
	return list
}

// name is b as a string that stays valid when the batch is gone.
func (d *decoder) name(b []byte) string {
	if s, ok := d.names[string(b)]; ok {
		return s
	}
	s := string(b)
	if len(d.names) < 1024 && len(s) <= 256 {
		if d.names == nil {
			d.names = map[string]string{}
		}
		d.names[s] = s
	}
	return s
}
