package store_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stream-arrow/twgd/store"
)

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "lock")
	l, err := store.Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = store.Lock(path)
	wantIs(t, err, store.ErrLocked)
	if pid := fmt.Sprintf("pid %d on ", os.Getpid()); !strings.Contains(err.Error(), pid) {
		t.Fatalf("the holder is not named: %v", err)
	}
	if err := l.Unlock(); err != nil {
		t.Fatal(err)
	}
	l, err = store.Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Unlock()
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	_, err = store.Lock(path)
	wantIs(t, err, store.ErrLocked)
}
