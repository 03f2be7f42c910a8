package parquet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks"
	"github.com/stream-arrow/twgd/sinks/sinktest"
	"github.com/stream-arrow/twgd/store"
)

func plains(from, to int64) (out []record.Record) {
	for o := from; o < to; o++ {
		out = append(out, record.Record{Offset: o, Key: []byte("k"), Value: []byte("value")})
	}
	return out
}

// failing makes one operation fail with err.
func failing(op string, err error) func(string) error {
	return func(o string) error {
		if o == op {
			return err
		}
		return nil
	}
}

func TestCommitClassifies(t *testing.T) {
	f := func(op string, cause error, want sinks.Kind) {
		t.Helper()
		b := openFaulty(t, "mem://"+op+want.String()+t.Name())
		s := newSink(t, b, Options{})
		l := loadOf(t, s, rowsOf(partition, 0, 3, plains(0, 3)...))
		b.set(failing(op, cause))
		_, err := l.Commit(t.Context(), nil)
		var e *sinks.Error
		if !errors.As(err, &e) || e.Kind != want || !errors.Is(err, cause) {
			t.Errorf("%s fails with %v: the error is %v, want kind %v", op, cause, err, want)
		}
		b.set(nil)
		if _, err := l.Commit(t.Context(), nil); err != nil {
			t.Errorf("%s failed once with %v: the next commit fails too: %v", op, cause, err)
		}
		expectRows(t, s, partition, plains(0, 3))
	}
	denied := &store.Error{Op: "publish", Kind: store.ErrPermission, Err: syscall.EROFS}
	full := &store.Error{Op: "stage", Err: syscall.ENOSPC}
	f("stage", full, sinks.Retry)
	f("stage", denied, sinks.Blocked)
	f("write", full, sinks.Retry)
	f("publish", errors.New("connection reset"), sinks.Retry)
	f("publish", denied, sinks.Blocked)
	f("publish", &store.Error{Op: "publish", Kind: store.ErrUnknown}, sinks.Retry)
	f("published", &store.Error{Op: "publish", Kind: store.ErrUnknown}, sinks.Retry) // stored; the reply is lost
}

// TestDiskFullBetweenRowGroups: the disk refuses for a while in the middle of a long load. Nothing is lost, and Add goes on.
func TestDiskFullBetweenRowGroups(t *testing.T) {
	b := openFaulty(t, "file://"+t.TempDir())
	s := newSink(t, b, Options{RowGroup: 1}) // a row group every blockRows rows
	l := loadOf(t, s)
	records := plains(0, 20*blockRows)
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range records {
		records[i].Value = make([]byte, 2000)
		for j := range records[i].Value {
			records[i].Value[j] = byte(rng.Uint32())
		}
	}
	for from := 0; from < len(records); from += blockRows {
		switch from / blockRows {
		case 5:
			b.set(failing("write", syscall.ENOSPC))
		case 12:
			b.set(nil)
		}
		if err := l.Add(rowsOf(partition, int64(from), int64(from+blockRows), records[from:from+blockRows]...)); err != nil {
			t.Fatal(err)
		}
	}
	if b.refused < 2 || l.Size().Rows != int64(len(records)) {
		t.Fatalf("the stage refused %d writes, the load has %d rows", b.refused, l.Size().Rows)
	}
	if _, err := l.Commit(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	expectRows(t, s, partition, records)
}

// TestCaseD31LateUpload: a load of a lane is held back, recovery writes the span, the upload lands.
func TestCaseD31LateUpload(t *testing.T) {
	b := openFaulty(t, memURL(t))
	lane, recovery := newSink(t, b, Options{}), newSink(t, b, Options{Compression: "snappy"})
	late := loadOf(t, lane, rowsOf(partition, 0, 4, plains(0, 3)...))
	first := loadOf(t, recovery, rowsOf(partition, 0, 4, plains(0, 3)...))
	if _, err := first.Commit(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	r, err := late.Commit(t.Context(), nil)
	if err != nil || r.Rows != 3 {
		t.Fatalf("receipt %+v, %v", r, err)
	}
	files, err := lane.Files(t.Context(), partition)
	if err != nil || len(files) != 1 || files[0].Size != r.Bytes {
		t.Errorf("files %v, %v; the receipt says %d bytes", files, err, r.Bytes)
	}
	expectRows(t, lane, partition, plains(0, 3))
}

// TestOtherContentBlocks: a file of the same name with other rows is never taken for ours, and stays as it is.
func TestOtherContentBlocks(t *testing.T) {
	f := func(name, want string, first func(s *Sink) error) {
		t.Helper()
		b := openFaulty(t, "mem://"+name)
		s := newSink(t, b, Options{})
		if err := first(s); err != nil {
			t.Fatal(err)
		}
		late := loadOf(t, s, rowsOf(partition, 0, 4, plains(0, 3)...))
		_, err := late.Commit(t.Context(), nil)
		if sinks.KindOf(err) != sinks.Blocked || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error is %v, want a blocked one with %q", name, err, want)
		}
	}
	commit := func(p record.Partition, to int64) func(*Sink) error {
		return func(s *Sink) error {
			l := loadOf(t, s, rowsOf(p, 0, 4, plains(0, to)...))
			_, err := l.Commit(t.Context(), nil)
			return err
		}
	}
	f("rows", "2 rows", commit(partition, 2))
	twin := partition
	twin.TopicID[15] = 9 // the same first eight digits
	f("topic-id", "topic id 010203040500", commit(twin, 3))
	f("junk", "damaged or not one of ours", func(s *Sink) error {
		return s.options.Bucket.Create(t.Context(), s.key(partition, checkpoint.Span{From: 0, To: 4}), []byte("not Parquet at all"))
	})
}

// TestRealPermissionBlocks asks a real file system.
func TestRealPermissionBlocks(t *testing.T) {
	dir := t.TempDir()
	s := newSink(t, openFaulty(t, "file://"+dir), Options{})
	l := loadOf(t, s, rowsOf(partition, 0, 3, plains(0, 3)...))
	obstacle := filepath.Join(dir, "orders")
	if err := os.WriteFile(obstacle, nil, 0o644); err != nil { // a file where the folder must be
		t.Fatal(err)
	}
	if _, err := l.Commit(t.Context(), nil); sinks.KindOf(err) != sinks.Blocked {
		t.Fatalf("the error is %v", err)
	}
	if err := os.Remove(obstacle); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Commit(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	expectRows(t, s, partition, plains(0, 3))
}

// TestOpenProbesOnce, and again once a load was blocked.
func TestOpenProbesOnce(t *testing.T) {
	b := openFaulty(t, memURL(t))
	s := newSink(t, b, Options{})
	f := func(wantErr bool, probes int) {
		t.Helper()
		if err := s.Open(t.Context()); (err != nil) != wantErr || b.calls["probe"] != probes {
			t.Errorf("Open gives %v after %d probes, want an error: %v, after %d", err, b.calls["probe"], wantErr, probes)
		}
	}
	b.set(failing("probe", &store.Error{Op: "probe", Kind: store.ErrPermission, Err: errors.New("the store ignores create-only")}))
	f(true, 1)
	b.set(nil)
	f(false, 2)
	f(false, 2)
	b.set(failing("publish", &store.Error{Op: "publish", Kind: store.ErrPermission}))
	if _, err := loadOf(t, s, rowsOf(partition, 0, 1, plains(0, 1)...)).Commit(t.Context(), nil); sinks.KindOf(err) != sinks.Blocked {
		t.Fatal(err)
	}
	b.set(nil)
	f(false, 3)
}

// TestReadersClassify: a store that fails is worth another try, a file that is damaged is not.
func TestReadersClassify(t *testing.T) {
	b := openFaulty(t, memURL(t))
	s := newSink(t, b, Options{})
	if _, err := loadOf(t, s, rowsOf(partition, 0, 3, plains(0, 3)...)).Commit(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	spans := []checkpoint.Span{{From: 0, To: 3}}
	for _, op := range []string{"list", "read"} {
		b.set(failing(op, errors.New("connection reset")))
		if _, err := s.Count(t.Context(), partition, spans); sinks.KindOf(err) != sinks.Retry {
			t.Errorf("%s fails: Count gives %v", op, err)
		}
	}
	b.set(failing("list", errors.New("connection reset")))
	if there, err := s.Holds(t.Context(), partition, spans[0]); there || sinks.KindOf(err) != sinks.Retry {
		t.Errorf("list fails: Holds gives %v, %v", there, err)
	}
	b.set(nil)
	if err := b.Create(t.Context(), s.key(partition, checkpoint.Span{From: 3, To: 5}), []byte("PAR1 torn")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Count(t.Context(), partition, []checkpoint.Span{{From: 0, To: 5}}); sinks.KindOf(err) != sinks.Blocked {
		t.Errorf("Count over a damaged file gives %v", err)
	}
	if n, err := s.Count(t.Context(), partition, spans); err != nil || n[0] != 3 {
		t.Errorf("Count beside a damaged file gives %v, %v", n, err)
	}
}

// TestFlippedBytesAreFound changes each byte of a file in turn. Reading then fails, or gives the same keys, values and headers,
// never others.
func TestFlippedBytesAreFound(t *testing.T) {
	b := openFaulty(t, memURL(t))
	s := newSink(t, b, Options{})
	records := sinktest.Unusual(0)[:9]
	n := int64(len(records))
	if _, err := loadOf(t, s, rowsOf(partition, 0, n, records...)).Commit(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	e := Entry{Key: s.key(partition, checkpoint.Span{From: 0, To: n}), Span: checkpoint.Span{From: 0, To: n}}
	whole, err := b.Read(t.Context(), e.Key)
	if err != nil {
		t.Fatal(err)
	}
	e.Size = int64(len(whole))
	found := 0
	for at := range whole {
		torn := bytes.Clone(whole)
		torn[at] ^= 0x10
		if err := b.Replace(t.Context(), e.Key, torn); err != nil {
			t.Fatal(err)
		}
		if d, err := firstDifference(t, s, e, records); err != nil {
			found++
		} else if d != "" {
			t.Errorf("byte %d of %d is changed, and nobody notices that %s", at, len(whole), d)
		}
	}
	t.Logf("%d of %d changed bytes are found", found, len(whole))
	if found < len(whole)/4 {
		t.Errorf("only %d of %d changed bytes are found", found, len(whole))
	}
}

// firstDifference reads a file and says where it is not what was written.
func firstDifference(t *testing.T, s *Sink, e Entry, want []record.Record) (d string, err error) {
	i := 0
	_, err = s.ReadFile(t.Context(), e, func(_ record.ID, r *record.Record) error {
		if d == "" && i < len(want) {
			d = differentBytes(r, &want[i])
		}
		i++
		return nil
	})
	if i != len(want) && d == "" {
		d = fmt.Sprintf("there are %d rows", i)
	}
	return d, err
}

// differentBytes leaves out the numbers.
func differentBytes(got, want *record.Record) string {
	g, w := record.Record{Key: got.Key, Value: got.Value, Headers: got.Headers}, record.Record{Key: want.Key, Value: want.Value, Headers: want.Headers}
	return sinktest.Difference(&g, &w)
}

func TestForeignNamesAreNoCoverage(t *testing.T) {
	b := openFaulty(t, memURL(t))
	s := newSink(t, b, Options{})
	for _, name := range []string{
		"readme.txt", "_SUCCESS", ".hidden.parquet", "0-5.parquet",
		"00000000000000000000-00000000000000000005.parquet.crc",
		"00000000000000000005-00000000000000000005.parquet",
		"00000000000000000006-00000000000000000005.parquet",
		"00000000000000000000-00000000000000000005",
		"deeper/00000000000000000000-00000000000000000005.parquet",
	} {
		if err := b.Create(t.Context(), s.folder(partition)+name, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	if set, err := s.Coverage(t.Context(), partition); err != nil || set.Len() != 0 {
		t.Errorf("coverage of foreign names is %v, %v", set, err)
	}
}

func TestAddRefusesWhatDoesNotBelong(t *testing.T) {
	s := newSink(t, openFaulty(t, memURL(t)), Options{})
	l := loadOf(t, s, rowsOf(partition, 5, 8, plains(5, 8)...))
	other := partition
	other.Generation++
	f := func(p record.Partition, from, to int64) {
		t.Helper()
		if err := l.Add(rowsOf(p, from, to)); err == nil {
			t.Errorf("[%d, %d) of %v was taken", from, to, p)
		}
	}
	f(partition, 9, 10)
	f(partition, 7, 9)
	f(partition, 8, 8)
	f(other, 8, 9)
	if _, err := l.Commit(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	f(partition, 8, 9) // committed
}

func TestCommitWithoutRowsWritesNoFile(t *testing.T) {
	s := newSink(t, openFaulty(t, memURL(t)), Options{})
	r, err := loadOf(t, s, rowsOf(partition, 0, 5)).Commit(t.Context(), nil)
	if err != nil || r.Rows != 0 || !r.Spans[partition].Covers(checkpoint.Span{From: 0, To: 5}) {
		t.Errorf("the receipt is %+v, %v", r, err)
	}
	if files, err := s.Files(t.Context(), partition); err != nil || len(files) != 0 {
		t.Errorf("files %v, %v", files, err)
	}
}

func TestNewRefusesUnknownCompression(t *testing.T) {
	if _, err := New(Options{Compression: "lzo"}); err == nil || !strings.Contains(err.Error(), "lzo") {
		t.Errorf("the error is %v", err)
	}
}

// TestReportFailureKeepsItsKind: a lane that is told to stop by the trail must not be told to try again.
func TestReportFailureKeepsItsKind(t *testing.T) {
	s := newSink(t, openFaulty(t, memURL(t)), Options{})
	bad := record.Record{Offset: 0, Headers: []record.Header{{Key: "\xff"}}}
	l := loadOf(t, s, rowsOf(partition, 0, 2, bad, plains(1, 2)[0]))
	_, err := l.Commit(t.Context(), func(context.Context, []sinks.Reject) error {
		return &sinks.Error{Kind: sinks.Blocked, Reason: "the trail is read-only"}
	})
	if sinks.KindOf(err) != sinks.Blocked {
		t.Errorf("the error is %v", err)
	}
}
