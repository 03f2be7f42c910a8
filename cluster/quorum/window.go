package quorum

import "github.com/hashicorp/raft"

// window is the newest entries of the log, as far as a number of bytes reaches. Their indexes are contiguous.
type window struct {
	limit   int64
	bytes   int64
	first   uint64
	entries []*raft.Log
}

func (w *window) get(index uint64) *raft.Log {
	if i := index - w.first; index >= w.first && i < uint64(len(w.entries)) {
		return w.entries[i]
	}
	return nil
}

func (w *window) add(e *raft.Log) {
	if e.Index != w.first+uint64(len(w.entries)) {
		w.clear()
		w.first = e.Index
	}
	w.entries = append(w.entries, e)
	w.bytes += size(e)
	for w.bytes > w.limit && len(w.entries) > 0 {
		w.drop()
	}
}

func (w *window) drop() {
	w.bytes -= size(w.entries[0])
	w.entries[0] = nil
	w.entries = w.entries[1:]
	w.first++
}

func (w *window) dropTo(index uint64) {
	for len(w.entries) > 0 && w.first <= index {
		w.drop()
	}
}

func (w *window) clear() { w.entries, w.bytes = nil, 0 }

// tail knows how many entries of the log's end a number of bytes are. It counts in blocks of a sixty-fourth of that number and a little more, so that
// what it takes does not grow with the log.
type tail struct {
	limit  int64
	bytes  int64 // of all blocks
	last   uint64
	blocks []block // the oldest first
}

type block struct {
	first uint64
	bytes int64
}

func (t *tail) add(index uint64, size int64) {
	if index != t.last+1 {
		t.clear()
	}
	t.last = index
	if n := len(t.blocks); n == 0 || t.blocks[n-1].bytes > t.limit/64 {
		t.blocks = append(t.blocks, block{first: index})
	}
	t.blocks[len(t.blocks)-1].bytes += size
	t.bytes += size
	for t.bytes > t.limit && len(t.blocks) > 0 {
		t.bytes -= t.blocks[0].bytes
		t.blocks = t.blocks[1:]
	}
}

// entries is how many entries the blocks hold: as many as limit allows, less one block.
func (t *tail) entries() uint64 {
	if len(t.blocks) == 0 {
		return 0
	}
	return t.last - t.blocks[0].first + 1
}

func (t *tail) clear() { t.blocks, t.bytes = nil, 0 }
