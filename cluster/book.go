package cluster

import (
	"encoding/hex"
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

	"github.com/stream-arrow/twgd/roster"
)

// book knows where servers are: server id → host:port of their wire. The last sighting wins, whoever brought it: a check-in, gossip, an
// answer to a hello, the leader's list of members. What it knows survives in a file, because after a restart of all nodes on new disks of
// memory the file is the only place that still names them; an address in it may be old, and costs a failed call, no more.
//
// Raft's own addresses are the server ids, so moving to another address changes no configuration: the next dial asks the book.
// The file also keeps the facts of the founding that this disk belongs to: Raft shows its table only when a leader has told it what is
// committed, and a node has to say whose it is before that. They may lag.
//
// A book is safe for concurrent use.
type book struct {
	path string
	log  *slog.Logger

	mu struct {
		sync.Mutex
		at    map[string]string // server id → address
		facts factsFile
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
	b.mu.facts = f.Facts
	return b
}

// bookFile is the file. docs/formats/node-files.md draws it.
type bookFile struct {
	Version   int               `json:"version"`
	Facts     factsFile         `json:"facts"`
	Addresses map[string]string `json:"addresses"`
}

type factsFile struct {
	ServerID    string `json:"server_id"` // whose disk it was: the facts of another say nothing
	Founding    string `json:"founding"`
	Incarnation uint64 `json:"incarnation"`
	Confirmed   bool   `json:"confirmed"`
}

// know keeps the facts of the founding that the server belongs to.
func (b *book) know(id string, f roster.Facts) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := factsFile{id, hexOf(f.Founding), f.Incarnation, f.Confirmed}
	if b.mu.facts != now {
		b.mu.facts, b.mu.dirty = now, true
	}
}

// known returns the facts that were last known of the server's founding, the key of deduplication left out.
func (b *book) known(id string) roster.Facts {
	b.mu.Lock()
	defer b.mu.Unlock()
	f := b.mu.facts
	if f.ServerID != id {
		return roster.Facts{}
	}
	return roster.Facts{Founding: foundingOf(f.Founding), Incarnation: f.Incarnation, Confirmed: f.Confirmed}
}

func hexOf(f [16]byte) string {
	if f == ([16]byte{}) {
		return ""
	}
	return hex.EncodeToString(f[:])
}

// foundingOf reads a founding id; zero where there is none or it is no such id.
func foundingOf(text string) (f [16]byte) {
	if b, err := hex.DecodeString(text); err == nil && len(b) == len(f) {
		copy(f[:], b)
	}
	return f
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

// addresses returns all known addresses, sorted, each once.
func (b *book) addresses() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Compact(slices.Sorted(maps.Values(b.mu.at)))
}

// save writes the file if anything changed. A failure costs only the next start's shortcut: it is logged and tried again at the next change.
func (b *book) save() {
	b.mu.Lock()
	f := bookFile{Version: 1, Facts: b.mu.facts, Addresses: maps.Clone(b.mu.at)}
	dirty := b.mu.dirty
	b.mu.dirty = false
	b.mu.Unlock()
	if !dirty {
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
