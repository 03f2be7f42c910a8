package dedupset

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"
)

// version of the section that Snapshot writes and Restore reads. docs/formats/dedup.md draws it.
const version = 1

// Version is the section's.
func (t *Table) Version() uint16 { return version }

// maxTime bounds the times in a section, so that windows can be added to them.
const maxTime = 1<<62 + MaxWindow

// Snapshot pins the chunks with known rows, and returns what writes them, once. Equal tables write equal bytes. Chunks are pinned
// until they have been written; what is never written is left to the collector, and so are its chunks.
func (t *Table) Snapshot() func(io.Writer) error {
	images := make([]image, 0, len(t.sets))
	for _, s := range t.sets {
		images = append(images, s.image())
	}
	var written atomic.Bool
	return func(w io.Writer) error {
		if !written.CompareAndSwap(false, true) {
			return errors.New("a snapshot of the claims is written once")
		}
		return write(w, images)
	}
}

// image is a set as it was when it was pinned.
type image struct {
	head         []byte
	oldest, next uint64
	chunks       []*chunk
}

func (s *set) image() image {
	return image{head: s.appendHead(nil), oldest: s.oldest, next: s.next, chunks: s.chunks.pin(s.oldest, s.next)}
}

// appendHead adds everything of a set but its rows.
func (s *set) appendHead(to []byte) []byte {
	to = append(append(to, byte(len(s.stream))), s.stream...)
	to = append(to, s.check[:]...)
	for _, v := range []uint64{
		uint64(s.terms.Window), uint64(s.terms.Entries), uint64(s.used), uint64(s.lost),
		s.claimed, s.twins, s.evicted, s.oldest, s.next, s.settled,
	} {
		to = binary.BigEndian.AppendUint64(to, v)
	}
	to = appendMarks(to, s.marks, s.oldest)
	return appendMarks(to, s.young, s.settled)
}

// appendMarks adds marks of rows from first on: where the first mark began is forgotten as its rows go.
func appendMarks(to []byte, all marks, first uint64) []byte {
	to = binary.BigEndian.AppendUint16(to, uint16(len(all)))
	for _, m := range all {
		to = binary.BigEndian.AppendUint64(to, uint64(m.end))
		to = binary.BigEndian.AppendUint64(to, max(m.first, first))
	}
	return to
}

func write(w io.Writer, images []image) error {
	defer func() {
		for _, m := range images {
			m.release()
		}
	}()
	if _, err := w.Write(binary.BigEndian.AppendUint16(nil, uint16(len(images)))); err != nil {
		return err
	}
	for _, m := range images {
		if err := m.write(w); err != nil {
			return err
		}
	}
	return nil
}

func (m *image) release() {
	for _, c := range m.chunks {
		c.pins.Add(-1)
	}
}

func (m *image) write(w io.Writer) error {
	if _, err := w.Write(m.head); err != nil {
		return err
	}
	for at, i := m.oldest, 0; at < m.next; i++ {
		to := min(m.next, (at>>chunkBits+1)<<chunkBits)
		if _, err := w.Write(m.chunks[i].bytes(at, to)); err != nil {
			return err
		}
		at = to
	}
	runtime.KeepAlive(m.chunks)
	return nil
}

// bytes are the rows [from, to) of the chunk that has them. The chunk is kept alive by whoever looks at them.
func (c *chunk) bytes(from, to uint64) []byte {
	first := int(from & (chunkRows - 1))
	return unsafe.Slice(&c.rows[first][0], int(to-from)*rowSize)
}

// Restore replaces the table by what a section holds, or leaves it and says what is wrong with the section. It never takes more
// memory than what it has read deserves.
func (t *Table) Restore(v uint16, r io.Reader) error {
	if v != version {
		return fmt.Errorf("claims of version %d, this program reads version %d", v, version)
	}
	in := bufio.NewReader(r)
	var fresh Table
	if err := fresh.restore(in); err != nil {
		return fmt.Errorf("reading the claims: %w", err)
	}
	if _, err := in.ReadByte(); err != io.EOF {
		return errors.New("there is more than the claims")
	}
	*t = fresh
	return nil
}

func (t *Table) restore(in *bufio.Reader) error {
	b, err := take(in, 2)
	if err != nil {
		return err
	}
	n := int(binary.BigEndian.Uint16(b))
	if n > MaxSets {
		return fmt.Errorf("%d sets", n)
	}
	for range n {
		s, err := readSet(in)
		if err != nil {
			return err
		}
		if last := len(t.sets) - 1; last >= 0 && t.sets[last].stream >= s.stream {
			return fmt.Errorf("the set of %q is in the wrong place", s.stream)
		}
		t.sets = append(t.sets, s)
	}
	return nil
}

func take(in *bufio.Reader, n int) ([]byte, error) {
	b := make([]byte, n)
	if _, err := io.ReadFull(in, b); err != nil {
		return nil, fmt.Errorf("it ends too early: %w", io.ErrUnexpectedEOF)
	}
	return b, nil
}

func readSet(in *bufio.Reader) (*set, error) {
	s, err := readHead(in)
	if err != nil {
		return nil, err
	}
	if s.marks, err = readMarks(in, s.oldest, s.next); err != nil {
		return nil, fmt.Errorf("the set of %q: %w", s.stream, err)
	}
	if s.young, err = readMarks(in, s.settled, s.next); err != nil {
		return nil, fmt.Errorf("the young rows of the set of %q: %w", s.stream, err)
	}
	if err := s.readRows(in); err != nil {
		return nil, fmt.Errorf("the set of %q: %w", s.stream, err)
	}
	return s, nil
}

func readHead(in *bufio.Reader) (*set, error) {
	b, err := take(in, 1)
	if err != nil {
		return nil, err
	}
	n := int(b[0])
	if b, err = take(in, n+8+10*8); err != nil {
		return nil, err
	}
	u := func(i int) uint64 { return binary.BigEndian.Uint64(b[n+8+8*i:]) }
	s := &set{
		stream: string(b[:n]), check: [8]byte(b[n:]),
		terms: Terms{Window: time.Duration(u(0)), Entries: int64(u(1))}, used: time.Duration(u(2)), lost: time.Duration(u(3)),
		claimed: u(4), twins: u(5), evicted: u(6), oldest: u(7), next: u(8), settled: u(9), swept: u(7),
	}
	if !s.plausible() {
		return nil, fmt.Errorf("the set of %q is damaged", s.stream)
	}
	return s, nil
}

// plausible says that a set could have such a head.
func (s *set) plausible() bool {
	within := func(d time.Duration) bool { return d >= 0 && d <= maxTime }
	return s.stream != "" && within(s.used) && within(s.lost) &&
		s.terms.Window >= MinWindow && s.terms.Window <= MaxWindow && s.terms.Entries >= MinEntries && s.terms.Entries <= MaxEntries &&
		s.oldest <= s.next && s.next < 1<<63 && s.known() <= MaxEntries && s.settled <= s.next
}

// readMarks reads the marks of rows [from, to).
func readMarks(in *bufio.Reader, from, to uint64) (out marks, err error) {
	b, err := take(in, 2)
	if err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint16(b))
	if n > maxMarks || (n == 0) != (from == to) {
		return nil, fmt.Errorf("%d marks", n)
	}
	if b, err = take(in, n*16); err != nil {
		return nil, err
	}
	for ; len(b) > 0; b = b[16:] {
		m := mark{end: time.Duration(binary.BigEndian.Uint64(b)), first: binary.BigEndian.Uint64(b[8:])}
		if !out.follows(m, from, to) {
			return nil, fmt.Errorf("mark %d is damaged", len(out))
		}
		out = append(out, m)
	}
	return out, nil
}

// follows says that a mark can be the next.
func (m marks) follows(next mark, from, to uint64) bool {
	if next.end < 0 || next.end > maxTime || next.first >= to {
		return false
	}
	if len(m) == 0 {
		return next.first == from
	}
	last := m[len(m)-1]
	return next.end > last.end && next.first > last.first
}

// readRows reads the rows, and then makes the index: how large it has to be is not believed before.
func (s *set) readRows(in *bufio.Reader) error {
	s.chunks.reset(s.oldest)
	for at := s.oldest; at < s.next; {
		to := min(s.next, (at>>chunkBits+1)<<chunkBits)
		s.chunks.place(at)
		c := s.chunks.ring[int(at>>chunkBits)&(len(s.chunks.ring)-1)]
		if _, err := io.ReadFull(in, c.bytes(at, to)); err != nil {
			return fmt.Errorf("it ends too early: %w", io.ErrUnexpectedEOF)
		}
		at = to
	}
	s.index = newIndex(startLimit(s.known(), max(s.known(), s.terms.Entries)))
	return s.enter()
}

// enter makes the index's entries, and sees that no content comes twice.
func (s *set) enter() error {
	end := s.next
	for s.next = s.oldest; s.next < end; {
		piece := min(end, s.next+group)
		s.touchPlaces(s.next, piece)
		for ; s.next < piece; s.next++ {
			r := s.chunks.row(s.next)
			if s.find(r[:tailAt]) != nil {
				return errors.New("a content is held twice")
			}
			s.index.add(r[:], uint32(s.next))
		}
	}
	return nil
}
