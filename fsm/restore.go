package fsm

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"slices"
	"time"
)

var (
	// ErrNewer says that a later version of the program wrote a snapshot, and this one would lose what it does not know.
	ErrNewer = errors.New("a later version of twgd wrote this snapshot: run that version")
	// ErrDamaged says that a snapshot is not what was written.
	ErrDamaged = errors.New("the snapshot is damaged")
)

// Restore replaces everything by a snapshot. Where it fails the state machine stays as it was.
func (f *FSM) Restore(r io.ReadCloser) error {
	next := fresh()
	head, err := read(r, next.sections, func(s *section, version uint16, data io.Reader) error {
		return s.Restore(version, data)
	})
	if err != nil {
		return fmt.Errorf("restoring the tables: %w", err)
	}
	next.now, next.index, next.sum = head.Time, head.Index, head.Sum
	if next.index > 0 {
		next.sums.note(Mark{Index: next.index, Sum: next.sum})
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.state = next
	return nil
}

// Verify reads a whole snapshot without loading it: structure, versions, checksums. The error is ErrNewer or ErrDamaged, or r's. A
// snapshot that Verify accepts is, byte for byte, what a state machine wrote; New().Restore would tell whether it can also be loaded.
func Verify(r io.Reader) (Header, error) {
	head, err := read(r, fresh().sections, func(_ *section, _ uint16, data io.Reader) error {
		_, err := io.Copy(io.Discard, data)
		return err
	})
	if err != nil {
		return Header{}, fmt.Errorf("verifying a snapshot: %w", err)
	}
	return head, nil
}

// read goes through a snapshot and hands each section's data to load, which reads it to its end.
func read(r io.Reader, known []section, load func(s *section, version uint16, data io.Reader) error) (Header, error) {
	in := &source{r: bufio.NewReaderSize(r, chunkSize), h: sha256.New()}
	head, n, err := readHead(in)
	if err != nil {
		return Header{}, err
	}
	for range n {
		info, err := readSection(in, head.Sections, known, load)
		if err != nil {
			return Header{}, err
		}
		head.Sections = append(head.Sections, info)
	}
	return head, in.end()
}

func readHead(in *source) (head Header, sections int, err error) {
	b, err := in.checked(fixedHead)
	if err != nil {
		return head, 0, err
	}
	if string(b[:len(magic)]) != magic {
		return head, 0, fmt.Errorf("%w: it does not begin as one", ErrDamaged)
	}
	b = b[len(magic):]
	if v := binary.BigEndian.Uint16(b); v != snapshotV1 {
		return head, 0, fmt.Errorf("%w (format %d)", ErrNewer, v)
	}
	sections = int(binary.BigEndian.Uint16(b[2:]))
	at := binary.BigEndian.Uint64(b[4:])
	head.Index = binary.BigEndian.Uint64(b[12:])
	copy(head.Sum[:], b[20:])
	if sections > maxSections || at > uint64(maxTime) {
		return head, 0, fmt.Errorf("%w: %d sections, time %d", ErrDamaged, sections, at)
	}
	head.Time = time.Duration(at)
	return head, sections, nil
}

func readSection(in *source, before []SectionInfo, known []section, load func(*section, uint16, io.Reader) error) (info SectionInfo, err error) {
	if info, err = readSectionHead(in); err != nil {
		return info, err
	}
	i := slices.IndexFunc(known, func(s section) bool { return s.name == info.Name })
	switch {
	case i < 0:
		return info, fmt.Errorf("section %q: %w", info.Name, ErrNewer)
	case info.Version > known[i].Version():
		return info, fmt.Errorf("section %q of version %d: %w", info.Name, info.Version, ErrNewer)
	case slices.ContainsFunc(before, func(b SectionInfo) bool { return b.Name == info.Name }):
		return info, fmt.Errorf("%w: section %q comes twice", ErrDamaged, info.Name)
	}
	data := &unchunked{in: in}
	if err := load(&known[i], info.Version, data); err != nil {
		return info, fmt.Errorf("section %q: %w", info.Name, err)
	}
	if !data.ended {
		return info, fmt.Errorf("%w: section %q goes on behind its table", ErrDamaged, info.Name)
	}
	info.Bytes = int64(data.total)
	return info, nil
}

func readSectionHead(in *source) (info SectionInfo, err error) {
	size, err := in.peek()
	if err != nil {
		return info, err
	}
	b, err := in.checked(1 + int(size) + 2)
	if err != nil {
		return info, err
	}
	return SectionInfo{Name: string(b[1 : 1+size]), Version: binary.BigEndian.Uint16(b[1+size:])}, nil
}

// source reads, and hashes what it reads.
type source struct {
	r *bufio.Reader
	h hash.Hash
}

// full reads as many bytes as to has. An end before them is damage.
func (s *source) full(to []byte) error {
	_, err := io.ReadFull(s.r, to)
	s.h.Write(to)
	return cut(err)
}

func cut(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it ends too early", ErrDamaged)
	}
	return err
}

func (s *source) peek() (byte, error) {
	b, err := s.r.Peek(1)
	if err != nil {
		return 0, cut(err)
	}
	return b[0], nil
}

// checked is the next n bytes, which their checksum follows.
func (s *source) checked(n int) ([]byte, error) {
	b := make([]byte, n+4)
	if err := s.full(b); err != nil {
		return nil, err
	}
	if crc32.Checksum(b[:n], castagnoli) != binary.BigEndian.Uint32(b[n:]) {
		return nil, fmt.Errorf("%w: a checksum is wrong", ErrDamaged)
	}
	return b[:n], nil
}

// end compares the hash over everything with what follows, and wants nothing behind it.
func (s *source) end() error {
	want := s.h.Sum(nil)
	var got [sha256.Size]byte
	if _, err := io.ReadFull(s.r, got[:]); err != nil {
		return cut(err)
	}
	if !bytes.Equal(want, got[:]) {
		return fmt.Errorf("%w: the hash over all of it is wrong", ErrDamaged)
	}
	switch _, err := s.r.ReadByte(); err {
	case io.EOF:
		return nil
	case nil:
		return fmt.Errorf("%w: something follows it", ErrDamaged)
	default:
		return err
	}
}

// unchunked is a section's data. It hands out nothing whose checksum it has not seen.
type unchunked struct {
	in    *source
	buf   []byte // of the chunk at hand, reused
	rest  []byte // of it, not handed out yet
	total uint64
	ended bool
	err   error
}

func (u *unchunked) Read(p []byte) (int, error) {
	for len(u.rest) == 0 {
		if u.ended {
			return 0, io.EOF
		}
		if u.err == nil {
			u.err = u.next()
		}
		if u.err != nil {
			return 0, u.err
		}
	}
	n := copy(p, u.rest)
	u.rest = u.rest[n:]
	return n, nil
}

// next reads a chunk, or the section's end.
func (u *unchunked) next() error {
	var size [4]byte
	if err := u.in.full(size[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(size[:])
	switch {
	case n == 0:
		return u.close()
	case n > maxChunk:
		return fmt.Errorf("%w: a chunk of %d bytes", ErrDamaged, n)
	}
	return u.chunk(int(n))
}

func (u *unchunked) chunk(n int) error {
	var sum [4]byte
	if err := u.in.full(sum[:]); err != nil {
		return err
	}
	u.buf = slices.Grow(u.buf[:0], n)[:n]
	if err := u.in.full(u.buf); err != nil {
		return err
	}
	if crc32.Checksum(u.buf, castagnoli) != binary.BigEndian.Uint32(sum[:]) {
		return fmt.Errorf("%w: a chunk's checksum is wrong", ErrDamaged)
	}
	u.rest, u.total = u.buf, u.total+uint64(n)
	return nil
}

func (u *unchunked) close() error {
	var total [8]byte
	if err := u.in.full(total[:]); err != nil {
		return err
	}
	if binary.BigEndian.Uint64(total[:]) != u.total {
		return fmt.Errorf("%w: a section has lost chunks", ErrDamaged)
	}
	u.ended = true
	return nil
}
