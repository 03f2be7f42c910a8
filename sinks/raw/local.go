package raw

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/stream-arrow/twgd/avrofile"
	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks"
	"github.com/stream-arrow/twgd/store"
)

type readerAt = io.ReaderAt

// files is the layout of a local directory that one process owns: a chain is a row of append-only files, each named by its first
// offset, and a commit is one appended and synced block. What lies behind the last valid block of the last file was never
// acknowledged, or is damage that looks like it: tail.go tells them apart. Names win: whatever a file holds at or above the name of
// the next one was never acknowledged either.
type files struct {
	dir    string
	codec  avrofile.Codec
	stream string
	roll   int64
	log    *slog.Logger
	fs     store.FS
	index  *index
	idle   *openFiles
}

func newFiles(opt Options, dir string, codec avrofile.Codec) *files {
	m := &files{dir: dir, codec: codec, stream: opt.Stream, roll: opt.Roll, log: opt.Log, fs: opt.FS}
	if m.fs == nil {
		m.fs = store.OS
	}
	m.index, m.idle = newIndex(), newOpenFiles(descriptorLimit())
	return m
}

func (m *files) path(c chainID) string { return filepath.Join(m.dir, filepath.FromSlash(c.dir)) }

func (m *files) file(c chainID, first int64) string {
	return filepath.Join(m.path(c), record.OffsetName(first)+suffix)
}

// names lists the first offsets of a chain's files, ascending. The first one must be the chain's genesis.
func (m *files) names(c chainID) ([]int64, error) {
	names, err := m.list(c)
	if err == nil && len(names) > 0 && names[0] != c.genesis {
		err = fmt.Errorf("%w: the chain of %v begins at %d, but its first file is %d", avrofile.ErrDamaged, c.partition, c.genesis, names[0])
	}
	return names, err
}

func (m *files) list(c chainID) ([]int64, error) {
	entries, err := m.fs.ReadDir(m.path(c))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing the chain of %v: %w", c.partition, err)
	}
	var names []int64
	for _, e := range entries {
		if first, ok := fileOffset(e.Name()); ok {
			names = append(names, first)
		}
	}
	slices.Sort(names)
	return names, nil
}

func fileOffset(name string) (int64, bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	first, err := record.ParseOffset(digits)
	return first, ok && err == nil
}

// open implements medium. It trusts only what it has checked: the last block is read and compared with its checksum, and
// OpenAppend writes it anew before anything is built on it.
func (m *files) open(_ context.Context, c chainID) (writer, sinks.Head, error) {
	head := sinks.Head{Genesis: c.genesis, Last: c.genesis, Next: c.genesis, LeaderEpoch: -1}
	names, err := m.names(c)
	if err != nil {
		return nil, head, err
	}
	w := &fileWriter{m: m, c: c, next: c.genesis, tried: -1}
	if len(names) == 0 {
		return w, head, nil
	}
	end, err := m.end(c, names)
	if err != nil {
		return nil, head, err
	}
	if err := m.dropTail(c, end); err != nil {
		return nil, head, err
	}
	w.path, w.header, w.next, w.size, w.last = end.path, end.header, end.next, end.valid, end.last
	if err := w.reopen(); err != nil {
		return nil, head, err
	}
	return w, end.head(c.genesis), nil
}

// dropTail reports what open is about to cut off, and keeps aside what a killed process does not leave behind.
func (m *files) dropTail(c chainID, end fileEnd) error {
	log := m.log.With("partition", c.partition.String(), "file", end.path, "byte", end.valid, "bytes", end.tail.size, "offset", end.next)
	switch end.tail.kind {
	case tailTorn:
		log.Warn("cutting an unfinished write off the end of raw")
	case tailDoubtful:
		kept, err := m.keepAside(end)
		if err != nil {
			return fmt.Errorf("keeping aside the end of %s: %w", end.path, err)
		}
		log.Error("raw ends in bytes that are no valid block and that a killed process does not leave behind: a power loss or damage; "+
			"they are kept aside and cut off, and what they held is read again from the source", "kept", kept, "cause", end.tail.cause)
	}
	return nil
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
	valid  int64 // bytes up to the end of the last valid block, or of the header
	last   int64 // where that block begins; 0 where there is none
	tail   tail  // what is behind it
	first  int64 // of the last commit
	next   int64
	epoch  int32
}

func (e fileEnd) head(genesis int64) sinks.Head {
	return sinks.Head{Genesis: genesis, Last: e.first, Next: e.next, LeaderEpoch: e.epoch}
}

// end finds the end of the chain. A last file without a block says by its name where the chain stands; the last commit then is in
// the file in front.
func (m *files) end(c chainID, names []int64) (fileEnd, error) {
	n := len(names) - 1
	end := fileEnd{path: m.file(c, names[n]), first: names[n], next: names[n], epoch: -1}
	s, err := m.openSegment(c, names[n])
	if err != nil {
		return end, err
	}
	defer s.close()
	if err := s.resolveLast(); err != nil {
		return end, err
	}
	end.header, end.valid, end.tail = s.header, s.end(), s.tail
	if len(s.frames) > 0 {
		end.last = s.frames[len(s.frames)-1].Offset
		end.first, end.next, end.epoch = s.final.first, s.final.next, s.final.epoch
	} else if n > 0 {
		prev, err := m.resolved(c, names[n-1], names[n])
		if err != nil {
			return end, err
		}
		defer prev.close()
		end.first, end.epoch = prev.final.first, prev.final.epoch
	}
	return end, nil
}

// resolved opens a file and finds its last valid block; next is the name of the file behind it, -1 where there is none.
func (m *files) resolved(c chainID, first, next int64) (*segment, error) {
	s, err := m.openSegment(c, first)
	if err != nil {
		return nil, err
	}
	if next < 0 {
		err = s.resolveLast()
	} else {
		err = s.resolve(next)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
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
	s, err := m.resolved(c, first, next)
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
		got, err := s.commit(i)
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
		if got.next >= span.To { // the next block need not be decoded to see that it lies behind
			return nil
		}
	}
	return nil
}
