// Package backup keeps the replicated tables of a cluster outside of it: snapshots in a container of their own, the claims that
// number a cluster's lives, and the note of who may hold a vote. All of it lies in one [Place], a folder of a [store.Bucket].
//
// What a snapshot holds is not known here. Who stores one hands over a function that reads a whole snapshot and says whether it is
// one; it is asked before a backup gets a name, and before one is restored.
package backup

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"filippo.io/age"

	"github.com/stream-arrow/twgd/store"
)

// Options of a place. The zero value writes in clear and deletes nothing.
type Options struct {
	Keep         int          // how many backups stay, the newest; 0 keeps all
	EncryptTo    []string     // age recipients, as in age1…; none: backups are not encrypted
	IdentityFile string       // file with age identities, to read what is encrypted; empty: what is encrypted cannot be read back
	SpoolDir     string       // where a backup that is being read lies, in files without a name; empty: the system's directory for temporary files
	Log          *slog.Logger // nil means silent
}

// Place is where the backups of one cluster lie: <bucket>/<cluster>/. It is safe for concurrent use, also by several processes:
// everything but the note is create-only, and whatever is read is checked.
type Place struct {
	bucket     store.Bucket
	cluster    string
	opt        Options
	recipients []age.Recipient
	identities []age.Identity
}

// What a backup can suffer. Errors of the store are none of these.
var (
	// ErrDamaged: the object is torn, flipped, or was never a backup.
	ErrDamaged = errors.New("damaged")
	// ErrVersion: a newer program has written it.
	ErrVersion = errors.New("written by a newer version")
	// ErrIdentity: it is encrypted, and none of our identities opens it.
	ErrIdentity = errors.New("encrypted, and none of the identities opens it")
	// ErrNone: there is no backup that verifies.
	ErrNone = errors.New("no backup that verifies")
)

// Open returns the place of a cluster. It does not connect; it reads the identity file.
func Open(bucket store.Bucket, cluster string, opt Options) (*Place, error) {
	if err := store.CheckKey(cluster); err != nil || strings.Contains(cluster, "/") {
		return nil, fmt.Errorf("backup: %q cannot name a cluster's folder", cluster)
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	p := &Place{bucket: bucket, cluster: cluster, opt: opt}
	var err error
	if p.recipients, err = recipients(opt.EncryptTo); err != nil {
		return nil, err
	}
	if p.identities, err = identities(opt.IdentityFile); err != nil {
		return nil, err
	}
	return p, nil
}

// CheckRecipient says what is wrong with an age recipient. It does not repeat it.
func CheckRecipient(text string) error {
	if r, err := age.ParseRecipients(strings.NewReader(text)); err != nil || len(r) != 1 {
		return errors.New("this is no age recipient, which begins with age1")
	}
	return nil
}

func recipients(texts []string) (all []age.Recipient, err error) {
	for i, t := range texts {
		if err := CheckRecipient(t); err != nil {
			return nil, fmt.Errorf("backup: recipient %d: %w", i+1, err)
		}
		r, err := age.ParseRecipients(strings.NewReader(t))
		if err != nil {
			return nil, fmt.Errorf("backup: recipient %d: %w", i+1, err)
		}
		all = append(all, r...)
	}
	return all, nil
}

// identities reads an identity file. An error repeats nothing of what is in it.
func identities(file string) ([]age.Identity, error) {
	if file == "" {
		return nil, nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("backup: reading the age identities: %w", err)
	}
	all, err := age.ParseIdentities(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("backup: %s holds no age identities, which are lines that begin with AGE-SECRET-KEY-", file)
	}
	return all, nil
}

// Meta is what a backup says of the snapshot in it.
type Meta struct {
	Incarnation uint64    `json:"incarnation"`    // of the cluster, from 1
	Index       uint64    `json:"index"`          // of the last log entry in it
	Term        uint64    `json:"term,omitempty"` // of that entry; 0 from List: the name does not say it
	Time        time.Time `json:"time"`           // when it was taken, by the wall clock of who took it, in milliseconds: for people, and for the name
}

// Info describes a backup that is stored.
type Info struct {
	Meta
	Name  string `json:"name"`                  // <incarnation>-<index>-<time>.twgb
	Size  int64  `json:"bytes"`                 // of the object
	Plain int64  `json:"plain_bytes,omitempty"` // of the snapshot in it; 0 from List
	// Sealed: it is encrypted; false from List.
	Sealed bool `json:"encrypted,omitempty"`
	// Skipped are the newer ones that Newest passed over, the newest first.
	Skipped []Skipped `json:"-"`
}

// Skipped is a backup that cannot be restored, and why.
type Skipped struct {
	Name string
	Err  error
}

// Verify reads a whole snapshot and says what is wrong with it.
type Verify = func(snapshot io.Reader) error
