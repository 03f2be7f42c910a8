package backup

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/stream-arrow/twgd/store"
)

const (
	childDir  = "TWGD_BACKUP_CHILD"
	childTurn = "TWGD_BACKUP_TURN"
)

// child makes one backup in a directory and says each thing that it is about to do.
func child(dir string) {
	turn, err := strconv.ParseUint(os.Getenv(childTurn), 10, 64)
	if err != nil {
		panic(err)
	}
	b, err := store.Open(context.Background(), "file://"+dir, store.Options{})
	if err != nil {
		panic(err)
	}
	p, err := Open(telling{b}, "prod", Options{Keep: 3})
	if err != nil {
		panic(err)
	}
	if _, err := p.Store(context.Background(), meta(1, turn), slowly{bytes.NewReader(snapshot(1 << 20))}, verify); err != nil {
		panic(err)
	}
	fmt.Println("end")
}

// slowly tells of each part that is read.
type slowly struct{ r io.Reader }

func (s slowly) Read(p []byte) (int, error) {
	fmt.Println("snapshot")
	return s.r.Read(p[:min(len(p), 128<<10)])
}

// telling tells of each call before it is made.
type telling struct{ store.Bucket }

func (b telling) Stage(ctx context.Context) (store.Stage, error) {
	fmt.Println("stage")
	st, err := b.Bucket.Stage(ctx)
	return tellingStage{st}, err
}

type tellingStage struct{ store.Stage }

func (s tellingStage) Publish(ctx context.Context, key string) error {
	fmt.Println("publish", key)
	defer fmt.Println("published", key)
	return s.Stage.Publish(ctx, key)
}

func (b telling) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	fmt.Println("read", key)
	return b.Bucket.ReadRange(ctx, key, off, n)
}

func (b telling) Delete(ctx context.Context, key string) error {
	fmt.Println("delete", key)
	return b.Bucket.Delete(ctx, key)
}

// TestCaseK19SIGKILL kills a process that makes a backup, after each thing that it says it does, on one directory.
func TestCaseK19SIGKILL(t *testing.T) {
	dir := t.TempDir()
	b, err := store.Open(t.Context(), "file://"+dir, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	p := place(t, b, Options{})
	for turn, ended := 1, false; !ended; turn++ {
		ended = killAfter(t, dir, turn)
		everyNameVerifies(t, p)
		if turn > 200 {
			t.Fatal("no child has come to its end")
		}
	}
	if all := everyNameVerifies(t, p); len(all) == 0 {
		t.Error("no backup was made")
	}
}

// killAfter runs a child and kills it once it has said n lines. It reports whether the child had come to its end by then.
func killAfter(t *testing.T, dir string, n int) (ended bool) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), childDir+"="+dir, childTurn+"="+strconv.Itoa(n))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for i := 0; i < n && lines.Scan(); i++ {
		ended = lines.Text() == "end"
	}
	cmd.Process.Kill()
	cmd.Wait()
	return ended
}
