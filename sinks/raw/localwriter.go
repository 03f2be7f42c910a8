package raw

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/stream-arrow/twgd/avrofile"
	"github.com/stream-arrow/twgd/chain"
	"github.com/stream-arrow/twgd/store"
)

// fileWriter extends a chain by blocks of the last file.
//
// An append that fails leaves the file for good, though AppendFile would take another: then no file holds the remains of two
// attempts, on which the judgement of a tail rests. A file that has not got a block yet is made anew, since the next one would have
// its name.
type fileWriter struct {
	m *files
	c chainID

	mu     sync.Mutex        // against being parked in the middle of a commit
	file   *store.AppendFile // nil before the first commit, after a failed append, and while parked
	place  *list.Element     // in m.idle, while file is not nil
	path   string            // of the last file, empty where there is none to go on in
	header avrofile.Header   // of it
	size   int64             // up to the end of its last block
	last   int64             // where that block begins; 0 where there is none
	next   int64             // the chain's head
	tried  int64             // the name of the last file that this writer tried to make, -1 where it has not
}

func (w *fileWriter) commit(_ context.Context, b block) (stored, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.ready(); err != nil {
		return stored{}, err
	}
	if err := b.pack(w.header.Codec); err != nil {
		return stored{}, err
	}
	out := w.header.AppendBlock(b.buf.out[:0], b.count, b.buf.packed)
	b.buf.out = out
	at, err := w.file.Append(out)
	if err != nil {
		w.park()
		w.path = ""
		return stored{}, err
	}
	w.last, w.size, w.next = at, w.file.Size(), b.next
	w.m.idle.touch(w)
	return stored{chain.Link{First: b.first, Next: b.next}, true, b.epoch, b.written, int64(len(out))}, nil
}

// ready makes sure that there is an open file with room for a block. A file has one codec, so another one begins another file,
// unless it has no block yet: then the next one would have its name.
func (w *fileWriter) ready() error {
	switch {
	case w.path == "", w.last > 0 && (w.size >= w.m.roll || w.header.Codec != w.m.codec):
		return w.begin()
	case w.file == nil:
		return w.reopen()
	}
	return nil
}

// begin makes the next file. Where the genesis is gone, so is the chain: somebody has removed the folder, and what came into a
// new one could not be read.
func (w *fileWriter) begin() error {
	if _, err := w.m.fs.Stat(filepath.Join(w.m.path(w.c), "_genesis")); err != nil {
		return fmt.Errorf("the chain of %v cannot go on without its genesis: %w", w.c.partition, err)
	}
	nonce := chain.NewNonce()
	begin, h, err := appendHeader(nil, w.m.codec, meta(w.m.stream, w.c.partition, w.next, nonce), nonce)
	if err != nil {
		return err
	}
	path := w.m.file(w.c, w.next)
	again := w.tried == w.next
	w.tried = w.next
	f, err := store.CreateAppend(w.m.fs, path, begin)
	if errors.Is(err, store.ErrExists) && again {
		// Our own, which broke before its first block was acknowledged.
		if err := w.m.fs.Remove(path); err != nil {
			return fmt.Errorf("removing %s, which holds nothing that was acknowledged: %w", path, err)
		}
		f, err = store.CreateAppend(w.m.fs, path, begin)
	}
	if err != nil {
		return err
	}
	w.park()
	w.file, w.path, w.header, w.size, w.last = f, path, h, h.Size, 0
	w.m.idle.touch(w)
	return nil
}

// reopen opens the last file again. The last block is read back, and only if it is still what it was does anything go behind it.
func (w *fileWriter) reopen() error {
	f, err := w.m.fs.OpenFile(w.path, os.O_RDONLY, 0)
	if err != nil {
		return fmt.Errorf("opening %s: %w", w.path, err)
	}
	defer f.Close()
	last := make([]byte, w.size-w.last)
	if n, err := f.ReadAt(last, w.last); n < len(last) {
		return fmt.Errorf("%w: %s lacks its last block: %v", avrofile.ErrDamaged, w.path, err)
	}
	if err := w.check(f); err != nil {
		return err
	}
	if w.file, err = store.OpenAppend(w.m.fs, w.path, w.size, last); err != nil {
		return err
	}
	w.m.idle.touch(w)
	return nil
}

func (w *fileWriter) check(f store.File) error {
	if w.last == 0 {
		return nil
	}
	frame, err := w.header.NextFrame(f, w.last, w.size)
	if err == nil {
		_, err = readCommit(&w.header, f, frame)
	}
	if err != nil {
		return fmt.Errorf("%s, the last block at byte %d: %w", w.path, w.last, err)
	}
	return nil
}

// park closes the file; a later commit opens it again. The caller holds mu.
func (w *fileWriter) park() error {
	if w.file == nil {
		return nil
	}
	w.m.idle.leave(w)
	err := w.file.Close()
	w.file = nil
	return err
}

func (w *fileWriter) close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.park()
}

// openFiles bounds the file descriptors that idle chains hold: when there are too many, the file that waited longest is parked.
type openFiles struct {
	mu    sync.Mutex
	max   int
	order *list.List // of *fileWriter, the one used last in front
}

func newOpenFiles(limit int) *openFiles { return &openFiles{max: limit, order: list.New()} }

// touch notes that w has used its file. The caller holds w.mu; a writer in the middle of a commit is never waited for.
func (o *openFiles) touch(w *fileWriter) {
	o.mu.Lock()
	if w.place == nil {
		w.place = o.order.PushFront(w)
	} else {
		o.order.MoveToFront(w.place)
	}
	var idle *fileWriter
	if o.order.Len() > o.max {
		idle = o.order.Back().Value.(*fileWriter)
	}
	o.mu.Unlock()
	if idle != nil && idle != w && idle.mu.TryLock() {
		defer idle.mu.Unlock()
		if err := idle.park(); err != nil {
			idle.m.log.Warn("closing an idle chain", "partition", idle.c.partition.String(), "error", err)
		}
	}
}

func (o *openFiles) leave(w *fileWriter) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if w.place != nil {
		o.order.Remove(w.place)
		w.place = nil
	}
}
