package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// book knows where servers are: server id → host:port of their wire. The last sighting wins, whoever brought it: a check-in, gossip, an
// answer to a hello, the leader's list of members. What it knows survives in a file, because after a restart of all nodes on new disks of
// memory the file is the only place that still names them; an address in it may be old, and costs a failed call, no more.
//
// Raft's own addresses are the server ids, so moving to another address changes no configuration: the next dial asks the book.
// A book is safe for concurrent use.
type book struct {
	path string // empty: kept in memory only
	log  *slog.Logger

	mu struct {
		sync.Mutex
		at    map[string]string // server id → address
		dirty bool
	}
}

func openBook(path string, log *slog.Logger) *book {
	b := &book{path: path, log: log}
	b.mu.at = map[string]string{}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return b
	}
	var f bookFile
	if err == nil {
		err = json.Unmarshal(data, &f)
	}
	if err != nil {
		log.Warn("the last known addresses cannot be read; peers are found through join and gossip", "file", path, "error", err)
		return b
	}
	maps.Copy(b.mu.at, f.Addresses)
	return b
}

type bookFile struct {
	Version   int               `json:"version"`
	Addresses map[string]string `json:"addresses"`
}

// find returns the address of a server.
func (b *book) find(id string) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a := b.mu.at[id]; a != "" {
		return a, nil
	}
	return "", fmt.Errorf("no address of %s is known yet", id)
}

// see notes a sighting and reports whether it is news.
func (b *book) see(id, address string) bool {
	if id == "" || address == "" {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.at[id] == address {
		return false
	}
	b.mu.at[id] = address
	b.mu.dirty = true
	return true
}

// keep forgets all servers but these.
func (b *book) keep(ids []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id := range b.mu.at {
		if !slices.Contains(ids, id) {
			delete(b.mu.at, id)
			b.mu.dirty = true
		}
	}
}

// addresses returns all known addresses, sorted, each once.
func (b *book) addresses() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Compact(slices.Sorted(maps.Values(b.mu.at)))
}

// save writes the file if anything changed. A failure costs only the next start's shortcut: it is logged and tried again at the next change.
func (b *book) save() {
	b.mu.Lock()
	f := bookFile{Version: 1, Addresses: maps.Clone(b.mu.at)}
	dirty := b.mu.dirty
	b.mu.dirty = false
	b.mu.Unlock()
	if !dirty || b.path == "" {
		return
	}
	if err := writeJSON(b.path, f); err != nil {
		b.log.Debug("last known addresses not written", "file", b.path, "error", err)
	}
}

// writeJSON replaces a small file whole: readers, and a crash, see the old or the new one.
func writeJSON(path string, v any) error {
	data, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err
	}
	tmp := path + ".tmp"
	if err := writeSynced(tmp, append(data, '\n')); err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func writeSynced(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
