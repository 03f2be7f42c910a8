package lease

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// version of the section that Snapshot writes and Restore reads. docs/formats/lease.md draws it.
const version = 1

// Version is the section's.
func (t *Table) Version() uint16 { return version }

// Snapshot pins the table, which takes one pointer for 64 attempts, and returns what writes it. Equal tables write equal bytes.
func (t *Table) Snapshot() func(io.Writer) error {
	s := image{
		epoch: t.epoch, count: t.count, places: t.places,
		rows: t.rows.pages.pin(), held: t.past.held.pin(), refused: t.past.refused.pin(),
	}
	return s.write
}

// image is a table as it was when it was pinned.
type image struct {
	epoch, count, places uint64
	rows                 pages[row]
	held, refused        ring
}

func (s *image) write(w io.Writer) error {
	out := bufio.NewWriter(w)
	var buf []byte
	for _, v := range []uint64{s.epoch, s.count, s.places} {
		buf = binary.AppendUvarint(buf, v)
	}
	live := s.live()
	if _, err := out.Write(binary.AppendUvarint(buf, uint64(len(live)))); err != nil {
		return err
	}
	for _, r := range live {
		buf = appendRow(buf[:0], r)
		if _, err := out.Write(buf); err != nil {
			return err
		}
	}
	for _, past := range []*ring{&s.held, &s.refused} {
		if err := writePast(out, past); err != nil {
			return err
		}
	}
	return out.Flush()
}

// live are the rows in use, by place.
func (s *image) live() []*row {
	var out []*row
	for i := range s.rows.n {
		if r := s.rows.at(i); r.place != 0 {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b *row) int {
		if a.place < b.place {
			return -1
		}
		return 1
	})
	return out
}

func appendRow(to []byte, r *row) []byte {
	to = append(to, r.request[:]...)
	for _, v := range []uint64{r.place, r.token, uint64(r.ttl), uint64(r.until)} {
		to = binary.AppendUvarint(to, v)
	}
	return text(text(to, r.name), r.holder)
}

func writePast(out *bufio.Writer, past *ring) error {
	if _, err := out.Write(binary.AppendUvarint(nil, uint64(past.pages.n))); err != nil {
		return err
	}
	var buf []byte
	return past.each(func(e *ended) error {
		buf = append(buf[:0], e.request[:]...)
		buf = binary.AppendUvarint(buf, e.token)
		_, err := out.Write(append(buf, flag(e.done)))
		return err
	})
}

// Restore replaces the table by what a section holds, or leaves it and says what is wrong with the section. It never takes more
// memory than what it has read deserves.
func (t *Table) Restore(v uint16, r io.Reader) error {
	if v != version {
		return fmt.Errorf("leases of version %d, this program reads version %d", v, version)
	}
	in := &stream{r: bufio.NewReader(r)}
	var fresh Table
	fresh.restore(in)
	if _, err := in.r.ReadByte(); in.err == nil && err != io.EOF {
		in.fail("there is more than the leases")
	}
	if in.err != nil {
		return fmt.Errorf("reading the leases: %w", in.err)
	}
	*t = fresh
	return nil
}

func (t *Table) restore(in *stream) {
	t.epoch, t.count, t.places = in.uvarint(), in.uvarint(), in.uvarint()
	if t.epoch > MaxEpoch || t.count >= 1<<tokenBits {
		in.fail("the epoch is damaged")
	}
	n := in.uvarint()
	if n > MaxRows {
		in.fail("%d leases", n)
	}
	for last := uint64(0); n > 0 && in.err == nil; n-- {
		r := in.row()
		t.admit(in, r, last)
		last = r.place
	}
	t.restorePast(in, true)
	t.restorePast(in, false)
}

// restorePast reads the attempts that held, or those that never did.
func (t *Table) restorePast(in *stream, held bool) {
	n := in.uvarint()
	if n > pastSize {
		in.fail("%d past attempts", n)
	}
	for ; n > 0 && in.err == nil; n-- {
		e := in.ended()
		if held != (e.token != 0) {
			in.fail("a past attempt is in the wrong place")
		}
		t.admitPast(in, e)
	}
}

// admit lets a row in, unless no table could have written it after the one before.
func (t *Table) admit(in *stream, r row, last uint64) {
	_, twice := t.rows.byRequest[r.request]
	_, tokenTwice := t.rows.byToken[r.token]
	l := t.rows.names[r.name]
	switch {
	case in.err != nil:
	case r.place <= last || r.place > t.places || twice:
		in.fail("the attempt with place %d is not the next", r.place)
	case r.token > t.token() || tokenTwice:
		in.fail("token %d was not given, or given twice", r.token)
	case r.token != 0 && l != nil && l.holder >= 0:
		in.fail("%q has two holders", r.name)
	case r.token != 0 && l != nil:
		in.fail("%q has a holder that came after one who waits", r.name)
	default:
		i := t.rows.add(r)
		if r.token != 0 {
			t.rows.hold(i, r.token, r.until)
		}
	}
}

func (t *Table) admitPast(in *stream, e ended) {
	_, live := t.rows.byRequest[e.request]
	_, held := t.rows.byToken[e.token]
	_, twice := t.past.ended(e.token)
	switch {
	case in.err != nil:
	case live || held || twice || t.past.knows(e.request) || e.token > t.token():
		in.fail("a past attempt is damaged")
	default:
		t.past.note(e)
	}
}

// stream takes values off a reader. After the first error every value is zero.
type stream struct {
	r   *bufio.Reader
	err error
}

func (s *stream) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf(format, args...)
	}
}

func (s *stream) note(err error) bool {
	if s.err == nil && err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		s.err = err
	}
	return s.err == nil
}

func (s *stream) uvarint() uint64 {
	if s.err != nil {
		return 0
	}
	v, err := binary.ReadUvarint(s.r)
	s.note(err)
	return v
}

func (s *stream) fill(to []byte) {
	if s.err == nil {
		_, err := io.ReadFull(s.r, to)
		s.note(err)
	}
}

func (s *stream) text(most uint64) string {
	n := s.uvarint()
	if n > most {
		s.fail("a text of %d bytes", n)
	}
	if s.err != nil {
		return ""
	}
	buf := make([]byte, n)
	s.fill(buf)
	return string(buf)
}

func (s *stream) row() (r row) {
	s.fill(r.request[:])
	r.place, r.token = s.uvarint(), s.uvarint()
	ttl, until := s.uvarint(), s.uvarint()
	r.name, r.holder = s.text(MaxName), s.text(MaxHolder)
	if ttl < uint64(MinTTL) || ttl > uint64(MaxTTL) || until > 1<<63-1 || r.name == "" {
		s.fail("the attempt with place %d is damaged", r.place)
	}
	r.ttl, r.until = time.Duration(ttl), time.Duration(until)
	return r
}

func (s *stream) ended() (e ended) {
	s.fill(e.request[:])
	e.token = s.uvarint()
	var done [1]byte
	s.fill(done[:])
	if done[0] > 1 || done[0] == 1 && e.token == 0 {
		s.fail("a past attempt is damaged")
	}
	e.done = done[0] == 1
	return e
}
