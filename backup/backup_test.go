package backup

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"filippo.io/age"
	"go.uber.org/goleak"

	"github.com/stream-arrow/twgd/internal/faultbucket"
	"github.com/stream-arrow/twgd/store"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		child(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

// snapshot is n bytes that check themselves: half of them compress, half do not.
func snapshot(n int) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(1, uint64(n)))
	for i := n / 2; i < n; i++ {
		b[i] = byte(r.Uint32())
	}
	return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
}

func verify(r io.Reader) error {
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if len(b) < 4 || crc32.ChecksumIEEE(b[:len(b)-4]) != binary.BigEndian.Uint32(b[len(b)-4:]) {
		return errors.New("this is no snapshot")
	}
	return nil
}

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// meta is of the index-th entry of an incarnation, taken a second after the one in front.
func meta(incarnation, index uint64) Meta {
	return Meta{Incarnation: incarnation, Index: index, Term: 3, Time: noon.Add(time.Duration(index) * time.Second)}
}

func place(t *testing.T, b store.Bucket, opt Options) *Place {
	t.Helper()
	opt.SpoolDir = t.TempDir()
	p, err := Open(b, "prod", opt)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// put stores a backup that must succeed.
func put(t *testing.T, p *Place, m Meta, body []byte) Info {
	t.Helper()
	info, err := p.Store(t.Context(), m, bytes.NewReader(body), verify)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// buckets runs f over every kind of bucket that a test has at hand.
func buckets(t *testing.T, f func(t *testing.T, b store.Bucket)) {
	for kind, url := range map[string]string{"file": "file://" + t.TempDir(), "mem": fmt.Sprintf("mem://%s-%d", t.Name(), rand.Uint64())} {
		t.Run(kind, func(t *testing.T) {
			b, err := store.Open(t.Context(), url, store.Options{SpoolDir: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			f(t, b)
		})
	}
	t.Run("fault", func(t *testing.T) { f(t, faultbucket.New()) })
}

// keyPair is a recipient and the file of its identity.
func keyPair(t *testing.T) (recipient, file string) {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "identity")
	if err := os.WriteFile(file, []byte(id.String()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return id.Recipient().String(), file
}

// everyNameVerifies reads all that has the name of a backup.
func everyNameVerifies(t *testing.T, p *Place) []Info {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	all, err := p.List(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range all {
		if _, err := p.Check(ctx, b.Name, verify); err != nil {
			t.Errorf("%s has the name of a backup: %v", b.Name, err)
		}
	}
	return all
}

// newest reads the newest backup, which must be there.
func newest(t *testing.T, p *Place) (Info, []byte) {
	t.Helper()
	info, r, err := p.Newest(t.Context(), verify)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return info, b
}
