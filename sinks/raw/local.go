package raw

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/stream-arrow/twgd/avrofile"
	"github.com/stream-arrow/twgd/chain"
	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks"
	"github.com/stream-arrow/twgd/store"
)

// files is the layout of a local directory that one process owns: a chain is a row of append-only files, each named by its first
// offset, and a commit is one appended and synced block. What lies behind the last valid block of the last file was never
// acknowledged. Names win: whatever a file holds at or above the name of the next one was never acknowledged either.
type files struct {
	dir    string
	codec  avrofile.Codec
	stream string
	roll   int64
	log    *slog.Logger
	fs     store.FS // nil for the operating system's
}

// lockStream keeps a second process out of a stream's directory.
func lockStream(dir string) (*store.FileLock, error) { return store.Lock(filepath.Join(dir, "lock")) }

func (m *files) path(c chainID) string { return filepath.Join(m.dir, filepath.FromSlash(c.dir)) }

// names lists the first offsets of a chain's files, ascending.
func (m *files) names(c chainID) ([]int64, error) {
	entries, err := os.ReadDir(m.path(c))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing the chain of %v: %w", c.partition, err)
	}
	var names []int64
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), suffix); ok {
			if first, err := record.ParseOffset(name); err == nil {
				names = append(names, first)
			}
		}
	}
	slices.Sort(names)
	return names, nil
}

func (m *files) file(c chainID, first int64) string {
	return filepath.Join(m.path(c), record.OffsetName(first)+suffix)
}

// open implements medium. It trusts only what it has checked: the last block is read and compared with its checksum, and
// AppendFile writes it anew before anything is built on it.
func (m *files) open(_ context.Context, c chainID) (writer, sinks.Head, error) {
	names, err := m.names(c)
	head := sinks.Head{Genesis: c.genesis, Last: c.genesis, Next: c.genesis, LeaderEpoch: -1}
	if err != nil {
		return nil, head, err
	}
	w := &fileWriter{m: m, c: c, next: c.genesis}
	if len(names) == 0 {
		return w, head, nil
	}
	end, err := m.end(c, names)
	if err != nil {
		return nil, head, err
	}
	if end.torn > 0 {
		m.log.Warn("cutting a block that was never acknowledged off the end of raw", "partition", c.partition.String(), "file", end.path, "bytes", end.torn)
	}
	if w.file, err = store.OpenAppend(m.fs, end.path, end.valid, end.last); err != nil {
		return nil, head, err
	}
	w.header, w.next = end.header, end.next
	return w, end.head(c.genesis), nil
}

func (m *files) head(_ context.Context, c chainID) (sinks.Head, error) {
	names, err := m.names(c)
	if err != nil || len(names) == 0 {
		return sinks.Head{Genesis: c.genesis, Last: c.genesis, Next: c.genesis, LeaderEpoch: -1}, err
	}
	end, err := m.end(c, names)
	return end.head(c.genesis), err
}

// fileEnd is the end of a chain as it lies on disk.
type fileEnd struct {
	path   string
	header avrofile.Header
	valid  int64  // bytes up to the end of the last valid block, or of the header
	last   []byte // that block, or the header
	torn   int64  // bytes behind it
	first  int64  // of the last commit
	next   int64
	epoch  int32
}

func (e fileEnd) head(genesis int64) sinks.Head {
	return sinks.Head{Genesis: genesis, Last: e.first, Next: e.next, LeaderEpoch: e.epoch}
}

// end finds the end of the chain. A last file without a block says by its name where the chain stands; the epoch then comes out of
// the file in front.
func (m *files) end(c chainID, names []int64) (fileEnd, error) {
	name := names[len(names)-1]
	end := fileEnd{path: m.file(c, name), first: name, next: name, epoch: -1}
	s, err := m.scan(c, name, -1)
	if err != nil {
		return end, err
	}
	defer s.close()
	end.header, end.valid, end.torn = s.header, s.header.Size, s.size-s.header.Size
	from := int64(0)
	if n := len(s.frames); n > 0 {
		f := s.frames[n-1]
		got, err := s.commit(f)
		if err != nil {
			return end, err
		}
		end.first, end.next, end.epoch = got.first, got.next, got.epoch
		end.valid, end.torn, from = f.End(), s.size-f.End(), f.Offset
	} else if len(names) > 1 {
		if prev, err := m.end(c, names[:len(names)-1]); err == nil {
			end.first, end.epoch = prev.first, prev.epoch
		}
	}
	end.last = make([]byte, end.valid-from)
	if _, err := s.f.ReadAt(end.last, from); err != nil {
		return end, fmt.Errorf("reading the last block of %s: %w", end.path, err)
	}
	return end, nil
}

// scanned is an open file and where its blocks lie.
type scanned struct {
	f      *os.File
	path   string
	size   int64
	header avrofile.Header
	frames []avrofile.Frame
}

func (s *scanned) close() { s.f.Close() }

// scan walks over the blocks of a file. A torn end is left out. Something bad with a valid block behind it is damage: then
// nothing may be cut, and the error names the place.
func (m *files) scan(c chainID, first, next int64) (_ *scanned, err error) {
	path := m.file(c, first)
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	s := &scanned{f: f, path: path}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	if err := s.readHeader(); err != nil {
		return nil, err
	}
	at := s.header.Size
	for {
		frame, err := s.header.NextFrame(f, at, s.size)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			if err := s.torn(at, err); err != nil {
				return nil, err
			}
			break
		}
		s.frames = append(s.frames, frame)
		at = frame.End()
	}
	return s, s.dropUnacknowledged(next)
}

func (s *scanned) readHeader() error {
	info, err := s.f.Stat()
	if err != nil {
		return err
	}
	s.size = info.Size()
	begin := make([]byte, min(s.size, headerPeek))
	if _, err := s.f.ReadAt(begin, 0); err != nil {
		return err
	}
	if s.header, err = avrofile.ParseHeader(begin); err != nil {
		return fmt.Errorf("%w: the header of %s: %v", avrofile.ErrDamaged, s.path, err)
	}
	return nil
}

// torn decides whether the bad bytes at offset at are the torn end of the last write, which is no error.
func (s *scanned) torn(at int64, cause error) error {
	if !errors.Is(cause, avrofile.ErrTorn) && !errors.Is(cause, avrofile.ErrDamaged) {
		return fmt.Errorf("reading %s: %w", s.path, cause)
	}
	behind, found, err := s.header.FindFrame(s.f, at, s.size, func(f avrofile.Frame) bool {
		_, err := s.commit(f)
		return err == nil
	})
	if err != nil {
		return fmt.Errorf("reading %s: %w", s.path, err)
	}
	if found {
		return fmt.Errorf("%w: %s is bad at byte %d, and a valid block follows at %d", avrofile.ErrDamaged, s.path, at, behind.Offset)
	}
	return nil
}

// dropUnacknowledged takes away what was never acknowledged though it is framed well: a last block whose content is not what its
// checksum says, and, in a file that has a successor, blocks at or above the successor's name.
func (s *scanned) dropUnacknowledged(next int64) error {
	for n := len(s.frames); n > 0; n = len(s.frames) {
		got, err := s.commit(s.frames[n-1])
		switch {
		case err == nil && (next < 0 || got.next <= next):
			return nil
		case err != nil && !errors.Is(err, avrofile.ErrDamaged):
			return err
		case err != nil && next >= 0:
			return fmt.Errorf("%w: the last block of %s, which has a successor: %v", avrofile.ErrDamaged, s.path, err)
		}
		s.frames = s.frames[:n-1]
		if err != nil { // only the very last block can be the torn one
			next = -1
			if n > 1 {
				if _, err := s.commit(s.frames[n-2]); err != nil {
					return fmt.Errorf("%w: the last two blocks of %s are bad: %v", avrofile.ErrDamaged, s.path, err)
				}
			}
			return nil
		}
	}
	return nil
}

// commit reads one block and checks it.
func (s *scanned) commit(f avrofile.Frame) (commit, error) {
	entries, _, err := s.header.ReadBlock(s.f, f, nil, nil)
	if err != nil {
		return commit{}, err
	}
	got, err := parseCommit(entries, f.Count)
	if err != nil {
		return commit{}, fmt.Errorf("%w: %s, the block at byte %d: %v", avrofile.ErrDamaged, s.path, f.Offset, err)
	}
	return got, nil
}

// read implements medium.
func (m *files) read(ctx context.Context, c chainID, span checkpoint.Span, f func(commit) error) error {
	names, err := m.names(c)
	if err != nil {
		return err
	}
	i := max(0, sort.Search(len(names), func(i int) bool { return names[i] > span.From })-1)
	for ; i < len(names) && names[i] < span.To; i++ {
		next := int64(-1)
		if i+1 < len(names) {
			next = names[i+1]
		}
		if err := m.readFile(ctx, c, names[i], next, span, f); err != nil {
			return err
		}
	}
	return nil
}

func (m *files) readFile(ctx context.Context, c chainID, first, next int64, span checkpoint.Span, f func(commit) error) error {
	s, err := m.scan(c, first, next)
	if err != nil {
		return err
	}
	defer s.close()
	i, err := s.find(span.From)
	if err != nil {
		return err
	}
	for ; i < len(s.frames); i++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		got, err := s.commit(s.frames[i])
		if err != nil {
			return err
		}
		if got.first >= span.To {
			return nil
		}
		if got.next <= span.From {
			continue
		}
		if err := f(got); err != nil {
			return err
		}
	}
	return nil
}

// find is the index of the block that holds offset, by halving: the range of a block stands inside it.
func (s *scanned) find(offset int64) (int, error) {
	var failed error
	i := sort.Search(len(s.frames), func(i int) bool {
		if failed != nil {
			return true
		}
		got, err := s.commit(s.frames[i])
		failed = err
		return err != nil || got.next > offset
	})
	return i, failed
}

// fileWriter extends a chain by blocks of the last file.
type fileWriter struct {
	m      *files
	c      chainID
	file   *store.AppendFile // nil before the first commit, and after the file was found broken
	header avrofile.Header
	next   int64
}

func (w *fileWriter) commit(_ context.Context, b block) (chain.Link, bool, int64, error) {
	if err := w.rollIfDue(); err != nil {
		return chain.Link{}, false, 0, err
	}
	out := w.header.AppendBlock((*b.out)[:0], b.count, b.packed)
	*b.out = out
	if _, err := w.file.Append(out); err != nil {
		if errors.Is(err, store.ErrBroken) {
			w.file.Close()
			w.file = nil
		}
		return chain.Link{}, false, 0, err
	}
	w.next = b.next
	return chain.Link{First: b.first, Next: b.next}, true, int64(len(out)), nil
}

// rollIfDue makes sure that there is a file to append to.
func (w *fileWriter) rollIfDue() error {
	if w.file != nil && w.file.Size() < w.m.roll {
		return nil
	}
	nonce := chain.NewNonce()
	h := avrofile.Header{Codec: w.m.codec, Sync: nonce}
	begin := avrofile.AppendHeader(nil, schema, w.m.codec, meta(w.m.stream, w.c.partition, w.next, nonce), h.Sync)
	f, err := w.create(begin)
	if err != nil {
		return err
	}
	if w.file != nil {
		w.file.Close()
	}
	h.Size = int64(len(begin))
	w.file, w.header = f, h
	return nil
}

// create makes the next file. A file of that name can only be one that broke before its first block was acknowledged: it makes way.
func (w *fileWriter) create(begin []byte) (*store.AppendFile, error) {
	path := w.m.file(w.c, w.next)
	f, err := store.CreateAppend(w.m.fs, path, begin)
	if errors.Is(err, store.ErrExists) {
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("removing %s, which holds nothing that was acknowledged: %w", path, err)
		}
		f, err = store.CreateAppend(w.m.fs, path, begin)
	}
	return f, err
}

func (w *fileWriter) close() error {
	if w.file == nil {
		return nil
	}
	return w.file.Close()
}
