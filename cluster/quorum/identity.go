package quorum

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/stream-arrow/twgd/fsm"
)

// keyID holds the server id in the Bolt file of log, term and vote: who loses those loses the id with them. A server that came back
// under its old id without its log would help to elect a stale one, and what was committed with its help would be lost.
var keyID = []byte("twgd/id")

// birthBytes is the random part of an id.
const birthBytes = 8

// Create makes the directory and a server id in it: the name and a random birth, durable when it returns. An id that is there already,
// with a disk that is whole, is returned as it is. A disk that is not whole counts as empty: it is put aside as <dir>.broken, where an
// operator may look at it, and replaces an earlier one there.
func Create(dir, name string) (id string, err error) {
	if name == "" || strings.ContainsRune(name, '~') {
		return "", fmt.Errorf("%q is no name for a server: it must not be empty nor contain ~", name)
	}
	found, err := Inspect(dir)
	if err != nil {
		return "", err
	}
	if found.ID != "" {
		return found.ID, nil
	}
	if found.Broken != "" {
		if err := putAside(dir); err != nil {
			return "", err
		}
	}
	return create(dir, name)
}

func putAside(dir string) error {
	aside := dir + ".broken"
	if err := os.RemoveAll(aside); err != nil {
		return fmt.Errorf("putting a broken raft directory aside: %w", err)
	}
	if err := os.Rename(dir, aside); err != nil {
		return fmt.Errorf("putting a broken raft directory aside: %w", err)
	}
	return syncDir(filepath.Dir(dir))
}

func create(dir, name string) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("making the raft directory: %w", err)
	}
	d, err := openDisk(dir, quiet)
	if err != nil {
		return "", err
	}
	var birth [birthBytes]byte
	rand.Read(birth[:])
	id := name + "~" + hex.EncodeToString(birth[:])
	err = errors.Join(d.kv.Set(keyID, []byte(id)), d.close())
	if err != nil {
		return "", fmt.Errorf("storing the server id: %w", naming(err))
	}
	if err := errors.Join(syncDir(dir), syncDir(filepath.Dir(dir))); err != nil {
		return "", fmt.Errorf("storing the server id: %w", err)
	}
	return id, nil
}

// Inspect tells what lies in a directory of which no server runs. It changes nothing that counts. A directory that is not there is
// an empty Disk.
func Inspect(dir string) (Disk, error) {
	if _, err := os.Stat(filepath.Join(dir, boltName)); errors.Is(err, os.ErrNotExist) {
		return Disk{}, nil
	} else if err != nil {
		return Disk{}, fmt.Errorf("looking for a raft directory: %w", err)
	}
	d, err := openDisk(dir, quiet)
	if errors.Is(err, bolterrors.ErrInvalid) || errors.Is(err, bolterrors.ErrChecksum) || errors.Is(err, bolterrors.ErrVersionMismatch) {
		return Disk{Broken: err.Error()}, nil
	}
	if err != nil {
		return Disk{}, err
	}
	out, _, err := d.inspect()
	return out, errors.Join(err, d.close())
}

func (d *disk) inspect() (Disk, lookout, error) {
	id, err := d.id()
	if err != nil {
		return Disk{}, lookout{}, err
	}
	l, err := d.look()
	if err != nil {
		return Disk{}, lookout{}, err
	}
	if id == "" || l.broken != "" {
		return Disk{Broken: l.broken}, l, nil
	}
	out := Disk{ID: id, LastIndex: l.index, LastTerm: l.term, Servers: servers(l.config)}
	cut := strings.LastIndexByte(id, '~')
	out.Name, out.Birth = id[:cut], id[cut+1:]
	out.HasState, err = raft.HasExistingState(d.logs, newBallot(d.kv, nil), d.snaps)
	return out, l, err
}

// id is empty where none was made.
func (d *disk) id() (string, error) {
	id, err := d.kv.Get(keyID)
	if isNotFound(err) {
		return "", nil
	}
	if err == nil && strings.LastIndexByte(string(id), '~') < 1 {
		err = fmt.Errorf("%q is no server id", id)
	}
	if err != nil {
		return "", fmt.Errorf("reading the server id: %w", err)
	}
	return string(id), nil
}

// lookout is what a disk holds, as raft will see it when it starts.
type lookout struct {
	snap        mark   // the newest snapshot that verifies
	snapConfig  uint64 // the index of its configuration
	snapSize    int64  // its bytes
	index, term uint64 // of the last entry, in the log or in the snapshot
	config      raft.Configuration
	broken      string // why it counts as an empty disk
}

// look reads the newest snapshot that verifies and the log behind it.
func (d *disk) look() (lookout, error) {
	metas, err := d.snaps.List()
	if err != nil {
		return lookout{}, fmt.Errorf("listing snapshots: %w", err)
	}
	var l lookout
	if snap := d.newest(metas); snap != nil {
		l = lookout{snap: mark{snap.Index, snap.Term}, snapConfig: snap.ConfigurationIndex, snapSize: snap.Size, index: snap.Index, term: snap.Term,
			config: snap.Configuration}
	} else if len(metas) > 0 {
		return lookout{broken: "no snapshot has the checksum that it should have"}, nil
	}
	return d.walk(l)
}

// newest is the first snapshot that reads back as it was written.
func (d *disk) newest(metas []*raft.SnapshotMeta) *raft.SnapshotMeta {
	for _, m := range metas {
		if _, r, err := d.snaps.Open(m.ID); err == nil {
			r.Close()
			return m
		}
	}
	return nil
}

// walk takes in the log behind the snapshot.
func (d *disk) walk(l lookout) (lookout, error) {
	last, err := d.logs.LastIndex()
	if err != nil {
		return l, fmt.Errorf("reading the log: %w", err)
	}
	for i := l.index + 1; i <= last; i++ {
		var e raft.Log
		if err := d.logs.GetLog(i, &e); errors.Is(err, raft.ErrLogNotFound) {
			return lookout{broken: fmt.Sprintf("entry %d is in no snapshot that verifies, and is missing in the log, which ends at %d", i, last)}, nil
		} else if err != nil {
			return l, fmt.Errorf("reading entry %d of the log: %w", i, err)
		}
		l.index, l.term = e.Index, e.Term
		if e.Type == raft.LogConfiguration {
			l.config = raft.DecodeConfiguration(e.Data)
		}
	}
	return l, nil
}

func servers(c raft.Configuration) []Server {
	out := make([]Server, 0, len(c.Servers))
	for _, s := range c.Servers {
		out = append(out, Server{ID: string(s.ID), Voter: s.Suffrage == raft.Voter})
	}
	return out
}

// Rewrite makes the server of the directory, which no process runs, the only one of its quorum. It costs commits that only other
// servers held, and makes true what this one held without knowing whether it was committed. For an operator who has lost a majority.
func Rewrite(dir string, log *slog.Logger) (err error) {
	hlog := newLogger(log)
	d, err := openDisk(dir, hlog)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	found, l, err := d.inspect()
	if err != nil {
		return err
	}
	if found.ID == "" || !found.HasState {
		return fmt.Errorf("%s holds no state to go on from %s", dir, found.Broken)
	}
	if _, err := newJournal(d.logs, nil, Limits{}, l, func() {}); err != nil {
		return err
	}
	_, trans := raft.NewInmemTransport(raft.ServerAddress(found.ID))
	err = raft.RecoverCluster(config(found.ID, hlog), fsm.New(), d.logs, newBallot(d.kv, nil), d.snaps, trans, alone(found.ID))
	if err != nil {
		return fmt.Errorf("writing a quorum of this server alone: %w", naming(err))
	}
	return nil
}

// alone is the configuration of a quorum of one.
func alone(id string) raft.Configuration {
	return raft.Configuration{Servers: []raft.Server{{ID: raft.ServerID(id), Address: raft.ServerAddress(id), Suffrage: raft.Voter}}}
}

// quiet is for who looks and does not run.
var quiet = hclog.NewNullLogger()
