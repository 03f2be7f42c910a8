package raw

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sort"
	"sync"

	"github.com/stream-arrow/twgd/avrofile"
	"github.com/stream-arrow/twgd/store"
)

// segment is an open file of a local chain and where its blocks lie. It is read while its owner may be appending to it: what is
// behind the last whole block at this moment is the owner's business.
type segment struct {
	f      store.File
	path   string
	name   int64
	size   int64
	header avrofile.Header
	index  *index
	known  *fileIndex // shared, and safe to use at once

	// frames are the blocks whose frames are whole, and bad is where the walk over them stopped: size, or where something begins
	// that is no block, with its cause. After resolve only blocks that count are left.
	frames []avrofile.Frame
	bad    int64
	cause  error

	final commit // the last block that counts, after resolve and where there is one
	tail  tail   // what lies behind it in the last file, after resolveLast
}

// openSegment walks over the blocks of the file that is named first.
func (m *files) openSegment(c chainID, first int64) (_ *segment, err error) {
	path := m.file(c, first)
	f, err := m.fs.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("reading the chain of %v: %w", c.partition, err)
	}
	s := &segment{f: f, path: path, name: first, index: m.index}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	if err := s.readHeader(m.stream, c); err != nil {
		return nil, err
	}
	return s, s.walk()
}

func (s *segment) close() { s.f.Close() }

func (s *segment) readHeader(stream string, c chainID) error {
	info, err := s.f.Stat()
	if err != nil {
		return fmt.Errorf("reading %s: %w", s.path, err)
	}
	s.size = info.Size()
	begin := make([]byte, min(s.size, headerPeek))
	if n, err := s.f.ReadAt(begin, 0); n < len(begin) {
		return fmt.Errorf("reading %s: %w", s.path, err)
	}
	if s.header, err = parseHeader(begin, stream, c, s.name); err != nil {
		return fmt.Errorf("%s: %w", s.path, err)
	}
	return nil
}

// walk finds the blocks, of which those that were seen before need not be looked for again.
func (s *segment) walk() error {
	s.known = s.index.of(s.path, s.header.Sync)
	s.frames = s.known.settled()
	if s.end() > s.size {
		return fmt.Errorf("%w: %s has %d bytes, fewer than before", avrofile.ErrDamaged, s.path, s.size)
	}
	end, err := s.header.Walk(s.f, s.end(), s.size, func(f avrofile.Frame) { s.frames = append(s.frames, f) })
	if err != nil && !errors.Is(err, avrofile.ErrTorn) && !errors.Is(err, avrofile.ErrDamaged) {
		return fmt.Errorf("reading %s: %w", s.path, err)
	}
	s.bad, s.cause = end, err
	if n := len(s.frames); n > 1 {
		s.index.settle(s.known, s.frames[:n-1]) // a block with another behind it was acknowledged and stays
	}
	return nil
}

// end is where the last block ends that is not given up yet.
func (s *segment) end() int64 {
	if n := len(s.frames); n > 0 {
		return s.frames[n-1].End()
	}
	return s.header.Size
}

// commit reads block i and checks it.
func (s *segment) commit(i int) (commit, error) {
	got, err := readCommit(&s.header, s.f, s.frames[i])
	if err != nil {
		return commit{}, fmt.Errorf("%s: %w", s.path, err)
	}
	s.known.learn(i, got.first)
	return got, nil
}

// resolve leaves the blocks that count in a file that has a successor: those below its name. What else the file holds was never
// acknowledged, for the next file has the same place in the chain; that no block is lost with it shows in the last one that is
// left, which ends where the next file begins.
func (s *segment) resolve(next int64) error {
	var cause error
	for n := len(s.frames); n > 0; n = len(s.frames) {
		got, err := s.commit(n - 1)
		if err == nil && got.first < next {
			s.final = got
			break
		}
		if err != nil && !errors.Is(err, avrofile.ErrDamaged) {
			return err
		}
		cause = errors.Join(cause, err)
		s.frames = s.frames[:n-1]
	}
	if len(s.frames) > 0 && s.final.next == next {
		return nil
	}
	return fmt.Errorf("%w: %s ends at %d, and the next file begins at %d: bad from byte %d on: %w",
		avrofile.ErrDamaged, s.path, max(s.final.next, s.name), next, s.end(), errors.Join(cause, s.cause))
}

// find is the index of the block that holds offset, by halving: the range of a block stands inside it.
func (s *segment) find(offset int64) (int, error) {
	var failed error
	i := sort.Search(len(s.frames), func(i int) bool { // is the block behind i, so that i+1 is not needed?
		if failed != nil {
			return true
		}
		first, ok := s.known.first(i)
		if !ok {
			got, err := s.commit(i)
			first, failed = got.first, err
		}
		return first > offset
	})
	return max(0, i-1), failed
}

// index remembers where the blocks of files lie, so that reading a file window by window does not walk over it each time.
type index struct {
	mu     sync.Mutex
	files  map[string]*fileIndex
	blocks int // and files
}

// maxIndexed is the number of blocks that an index remembers: 40 bytes each.
const maxIndexed = 1 << 17

func newIndex() *index { return &index{files: map[string]*fileIndex{}} }

// of is the memory of a file; one that was removed and made again has another marker.
func (x *index) of(path string, sync [16]byte) *fileIndex {
	x.mu.Lock()
	defer x.mu.Unlock()
	f := x.files[path]
	if f == nil || f.sync != sync {
		f = &fileIndex{sync: sync}
		x.count(1)
		x.files[path] = f
	}
	return f
}

// count makes room for n more. When there are too many, all is forgotten and learned again.
func (x *index) count(n int) {
	if x.blocks += n; x.blocks > maxIndexed {
		x.blocks = n
		clear(x.files)
	}
}

// settle adds frames to the memory of a file.
func (x *index) settle(f *fileIndex, frames []avrofile.Frame) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.count(f.add(frames))
}

// fileIndex is what is known of one file: frames that will never change, and the first offsets of those that were read.
type fileIndex struct {
	sync   [16]byte
	mu     sync.Mutex
	frames []avrofile.Frame
	firsts []int64 // one a frame; -1 where it is not known
}

func (f *fileIndex) settled() []avrofile.Frame {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clip(f.frames)
}

func (f *fileIndex) add(frames []avrofile.Frame) (added int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, frame := range frames[min(len(f.frames), len(frames)):] {
		f.frames, f.firsts = append(f.frames, frame), append(f.firsts, -1)
		added++
	}
	return added
}

func (f *fileIndex) learn(i int, first int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if i < len(f.firsts) {
		f.firsts[i] = first
	}
}

func (f *fileIndex) first(i int) (int64, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if i < len(f.firsts) && f.firsts[i] >= 0 {
		return f.firsts[i], true
	}
	return 0, false
}
