package duplicates

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/stream-arrow/twgd/avrofile"
	"github.com/stream-arrow/twgd/store"
)

// growing is a file of a local directory that takes blocks. It is never repaired and never opened again: a new one begins at each start
// of the process, after an append that failed, at rollAt, and where too many are open. So its torn end, where it has one, is the last
// thing in it.
//
// A file begins behind all that this writer's files hold of the partition: then what stands under a name ends where the next one begins.
// What comes late, from in front of the open file, becomes an aside.
type growing struct {
	file   *store.AppendFile
	header avrofile.Header
	first  int64
	place  *list.Element // in the writer's files
}

const rollAt = 16 << 20

// grow stores a block in the open file, or where that does not take it in another.
func (pt *part) grow(ctx context.Context, b block) error {
	err := ctx.Err()
	switch g := pt.file; {
	case err != nil:
	case g != nil && b.first >= g.first && g.file.Size() < pt.w.roll:
		err = pt.extend(g, b)
	case b.first < pt.reach:
		err = pt.create(ctx, b, kindAside)
	default:
		err = pt.begin(b)
	}
	if err == nil {
		pt.reach = max(pt.reach, b.to)
	}
	return err
}

func (pt *part) extend(g *growing, b block) error {
	out, err := appendBlock(nil, &g.header, b)
	if err != nil {
		return err
	}
	if _, err = g.file.Append(out); err != nil {
		return errors.Join(err, pt.leave())
	}
	pt.w.files.touch(pt)
	return nil
}

// begin makes a file with its first block in it: a name never leads to less.
func (pt *part) begin(b block) error {
	body, h, err := pt.seal(b, kindFile)
	if err != nil {
		return err
	}
	dir, ok := pt.w.opt.Bucket.Local()
	if !ok {
		return errors.New("raw is no local directory")
	}
	err = pt.leave()
	for n := 0; err == nil && n < sameName; n++ {
		path := filepath.Join(dir, filepath.FromSlash(pt.folder.key(b.first, n)))
		file, cerr := store.CreateAppend(pt.w.opt.FS, path, body)
		if cerr == nil {
			pt.file = &growing{file: file, header: h, first: b.first}
			pt.w.files.touch(pt)
			return nil
		}
		if !errors.Is(cerr, store.ErrExists) {
			err = cerr
		}
	}
	if err == nil {
		err = fmt.Errorf("all %d names for the first offset %d are taken", sameName, b.first)
	}
	return err
}

// leave closes the open file for good.
func (pt *part) leave() error {
	if pt.file == nil {
		return nil
	}
	g := pt.file
	pt.file = nil
	pt.w.files.forget(g)
	return g.file.Close()
}

// openFiles bounds the descriptors that a writer holds. Where more partitions than that are written in turns, each append begins a
// file, as on object storage.
type openFiles struct {
	mu    sync.Mutex
	max   int
	order list.List // of *part, the one used last in front
}

const maxOpen = 512

// touch notes that pt, whose turn the caller holds, has used its file, and closes the one that was used longest ago where there are
// too many. One that is being written is never waited for.
func (o *openFiles) touch(pt *part) {
	o.mu.Lock()
	if pt.file.place == nil {
		pt.file.place = o.order.PushFront(pt)
	} else {
		o.order.MoveToFront(pt.file.place)
	}
	var idle *part
	if o.order.Len() > o.max {
		idle = o.order.Back().Value.(*part)
	}
	o.mu.Unlock()
	if idle == nil || idle == pt {
		return
	}
	select {
	case idle.turn <- struct{}{}:
		if err := idle.leave(); err != nil {
			pt.w.opt.Log.Warn("closing notes of duplicates", "partition", idle.p.String(), "error", err)
		}
		<-idle.turn
	default:
	}
}

func (o *openFiles) forget(g *growing) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if g.place != nil {
		o.order.Remove(g.place)
		g.place = nil
	}
}
