package store_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stream-arrow/twgd/store"
	"github.com/stream-arrow/twgd/store/storetest"
)

// newAppend makes an append file with one block on an empty disk.
func newAppend(t *testing.T, fsys store.FS, path string) *store.AppendFile {
	t.Helper()
	f, err := store.CreateAppend(fsys, path, []byte(header))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if off, err := f.Append(block(0)); err != nil || off != int64(len(header)) {
		t.Fatalf("the first block: offset %d, error %v", off, err)
	}
	return f
}

func TestCaseD11FullDiskHealsByItself(t *testing.T) {
	disk := storetest.NewDisk(3)
	f := newAppend(t, disk, fileName(0))
	acked := f.Size()
	disk.Fault(func(op storetest.Op) error {
		if op.Name == "write" {
			return storetest.Partial{N: op.Size / 2, Err: syscall.ENOSPC}
		}
		return nil
	})
	for range 3 {
		_, err := f.Append(block(1))
		wantRetry(t, err)
		wantIs(t, err, syscall.ENOSPC)
		if !strings.Contains(store.Describe(err), "no space left on device") {
			t.Fatalf("the description does not say why: %s", store.Describe(err))
		}
	}
	disk.Fault(nil)
	if off, err := f.Append(block(1)); err != nil || off != acked {
		t.Fatalf("with room again: offset %d, error %v; want %d", off, err, acked)
	}
	disk.PowerLoss()
	o := &owner{t: t, disk: disk, acked: 2}
	o.check("the disk was full")
}

func TestBrokenFileTakesNoMore(t *testing.T) {
	disk := storetest.NewDisk(4)
	f := newAppend(t, disk, fileName(0))
	disk.Fault(func(op storetest.Op) error {
		if op.Name == "sync" || op.Name == "truncate" {
			return syscall.EIO
		}
		return nil
	})
	_, err := f.Append(block(1))
	wantIs(t, err, store.ErrBroken)
	wantIs(t, err, syscall.EIO)
	disk.Fault(nil)
	_, err = f.Append(block(1))
	wantIs(t, err, store.ErrBroken)
}

func TestCreateAppendIsCreateOnlyAndLeavesNothing(t *testing.T) {
	disk := storetest.NewDisk(5)
	f, err := store.CreateAppend(disk, fileName(0), []byte(header))
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	_, err = store.CreateAppend(disk, fileName(0), []byte("other"))
	wantIs(t, err, store.ErrExists)
	for _, op := range []string{"write", "sync", "link", "syncdir"} {
		disk.Fault(func(o storetest.Op) error {
			if o.Name == op && (op != "syncdir" || o.Path == chainDir) {
				return syscall.EIO
			}
			return nil
		})
		if _, err := store.CreateAppend(disk, fileName(1), []byte(header)); err == nil {
			t.Fatalf("%s failed, and the file was created", op)
		}
	}
	if got := disk.Files(); len(got) != 1 {
		t.Fatalf("left behind: %q", got)
	}
}

func TestOpenAppendRefusesWhatCannotBe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	f := newAppend(t, nil, path)
	size := f.Size()
	f.Close()
	bad := func(path string, valid int64, last []byte) {
		t.Helper()
		if f, err := store.OpenAppend(nil, path, valid, last); err == nil {
			f.Close()
			t.Fatal("it was opened")
		}
	}
	bad(path, size+1, block(0))
	bad(path, size, nil)
	bad(path, 3, block(0))
	_, err := store.OpenAppend(nil, path+"x", size, block(0))
	wantIs(t, err, store.ErrNotFound)
	f, err = store.OpenAppend(nil, path, size, block(0))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, append([]byte(header), block(0)...)) {
		t.Fatalf("the file is another after opening, or %v", err)
	}
}

func TestAppendDoesNotAllocate(t *testing.T) {
	f := newAppend(t, nil, filepath.Join(t.TempDir(), "a"))
	b := block(1)
	n := testing.AllocsPerRun(20, func() {
		if _, err := f.Append(b); err != nil {
			t.Fatal(err)
		}
	})
	if n != 0 {
		t.Fatalf("%v allocations an Append", n)
	}
}

func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{4 << 10, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			f, err := store.CreateAppend(nil, filepath.Join(b.TempDir(), "a"), []byte(header))
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			p := make([]byte, size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := f.Append(p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
