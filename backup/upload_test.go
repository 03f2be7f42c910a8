package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stream-arrow/twgd/internal/faultbucket"
	"github.com/stream-arrow/twgd/store"
)

func TestBackupsComeBack(t *testing.T) {
	recipient, file := keyPair(t)
	sizes := [][]int{{0, 9 << 20, 1000}, {10, 64 << 10, chunk}} // in clear, encrypted
	buckets(t, func(t *testing.T, b store.Bucket) {
		for i, opt := range []Options{{}, {EncryptTo: []string{recipient}, IdentityFile: file}} {
			p := place(t, b, opt)
			for n := range 3 {
				m, body := meta(uint64(i+1), uint64(n+1)), snapshot(sizes[i][n])
				info := put(t, p, m, body)
				got, plain := newest(t, p)
				if !bytes.Equal(plain, body) {
					t.Fatalf("%s came back as other bytes", info.Name)
				}
				if got.Meta != m || got.Name != info.Name || got.Size != info.Size || got.Plain != int64(len(body)) || got.Sealed != (i == 1) || info.Plain != got.Plain {
					t.Errorf("stored as %+v, read as %+v", info, got)
				}
			}
		}
		p := place(t, b, Options{IdentityFile: file})
		all := everyNameVerifies(t, p)
		if len(all) != 6 || !slices.IsSortedFunc(all, func(x, y Info) int { return strings.Compare(x.Name, y.Name) }) {
			t.Errorf("listed: %+v", all)
		}
		if entries, err := b.List(t.Context(), "", "", 0); err != nil || len(entries) != 6 {
			t.Errorf("something else is left: %+v, %v", entries, err)
		}
	})
}

func TestNames(t *testing.T) {
	f := func(name string, want bool) {
		t.Helper()
		if m, ok := parseName(name); ok != want {
			t.Errorf("%q is the name of %+v, %v", name, m, ok)
		}
	}
	good := backupName(meta(12, 345))
	f(good, true)
	f("00000000000000000012-00000000000000000345-20260101T120545Z.twgb", true)
	f(strings.TrimSuffix(good, suffix), false)
	f(good+".tmp", false)
	f("_upload-0123456789abcdef", false)
	f("12-345-20260101T120545Z.twgb", false)
	f("00000000000000000012-00000000000000000345-20261301T120545Z.twgb", false)
	f("00000000000000000012-00000000000000000345.twgb", false)
	f("+0000000000000000012-00000000000000000345-20260101T120545Z.twgb", false)
	f("voters", false)
	f("", false)
}

// TestTheNewestComesFirst: the incarnation counts before the index, and both as numbers.
func TestTheNewestComesFirst(t *testing.T) {
	p := place(t, faultbucket.New(), Options{})
	for _, m := range []Meta{meta(1, 9), meta(1, 10), meta(2, 3), meta(10, 1), meta(9, 400)} {
		put(t, p, m, snapshot(10))
	}
	if info, _ := newest(t, p); info.Meta != meta(10, 1) {
		t.Errorf("the newest is %+v", info)
	}
}

// TestDamagedBackupsArePassedOver: torn, flipped, misplaced and foreign ones, each with its reason.
func TestDamagedBackupsArePassedOver(t *testing.T) {
	b := faultbucket.New()
	p := place(t, b, Options{})
	for i := range uint64(7) {
		put(t, p, meta(1, i+1), snapshot(100+int(i)))
	}
	key := func(i uint64) string { return "prod/" + backupName(meta(1, i)) }
	good := b.Get(key(2))
	b.Put(key(7), good[:len(good)/2])
	flipped := bytes.Clone(b.Get(key(6)))
	flipped[len(flipped)/2] ^= 1
	b.Put(key(6), flipped)
	b.Put(key(5), good)
	b.Put(key(4), foreign(t))
	b.Put(key(3), pack(t, meta(1, 3), []byte("no snapshot")))

	info, plain := newest(t, p)
	if info.Meta != meta(1, 2) || !bytes.Equal(plain, snapshot(101)) {
		t.Errorf("restored %+v", info)
	}
	for i, want := range []string{"ends within", "checksum", "it is the backup", "cluster \"test\"", "no snapshot"} {
		if i >= len(info.Skipped) || info.Skipped[i].Name != backupName(meta(1, 7-uint64(i))) || !strings.Contains(info.Skipped[i].Err.Error(), want) {
			t.Errorf("skipped %d should say %q: %+v", i, want, info.Skipped)
		}
	}
	for _, i := range []uint64{1, 2} {
		b.Put(key(i), nil)
	}
	if info, r, err := p.Newest(t.Context(), verify); !errors.Is(err, ErrNone) || r != nil || len(info.Skipped) != 7 {
		t.Errorf("where none verifies: %+v, %v", info, err)
	}
}

func foreign(t *testing.T) []byte {
	var out bytes.Buffer
	if _, err := writeContainer(&out, head{Meta: meta(1, 4), cluster: "test"}, nil, bytes.NewReader(snapshot(9))); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestWhatCannotBeReadIsNotPassedOver: an older backup would be restored without need.
func TestWhatCannotBeReadIsNotPassedOver(t *testing.T) {
	recipient, _ := keyPair(t)
	_, other := keyPair(t)
	f := func(want error, change func(b *faultbucket.Bucket, key string), opt Options) {
		t.Helper()
		b := faultbucket.New()
		put(t, place(t, b, Options{}), meta(1, 1), snapshot(10))
		info := put(t, place(t, b, Options{EncryptTo: []string{recipient}}), meta(1, 2), snapshot(10))
		if change != nil {
			change(b, "prod/"+info.Name)
		}
		if _, r, err := place(t, b, opt).Newest(t.Context(), verify); !errors.Is(err, want) || r != nil {
			t.Errorf("want %v: %v", want, err)
		}
	}
	f(ErrIdentity, nil, Options{})
	f(ErrIdentity, nil, Options{IdentityFile: other})
	f(ErrVersion, func(b *faultbucket.Bucket, key string) {
		later := bytes.Clone(b.Get(key))
		later[9] = 2
		b.Put(key, later)
	}, Options{})
	f(faultbucket.ErrFault, func(b *faultbucket.Bucket, key string) { b.Script("read", faultbucket.Refuse) }, Options{})
}

// TestEncryptedToOthers: who only encrypts still checks that what is stored is what was written.
func TestEncryptedToOthers(t *testing.T) {
	recipient, file := keyPair(t)
	b := faultbucket.New()
	p := place(t, b, Options{EncryptTo: []string{recipient}})
	info := put(t, p, meta(1, 1), snapshot(1000))
	if bytes.Contains(b.Get("prod/"+info.Name), snapshot(1000)[600:640]) {
		t.Error("the snapshot lies in clear")
	}
	if _, err := p.Check(t.Context(), info.Name, verify); !errors.Is(err, ErrIdentity) {
		t.Errorf("looking into it: %v", err)
	}
	if _, err := place(t, b, Options{IdentityFile: file}).Check(t.Context(), info.Name, verify); err != nil {
		t.Error(err)
	}
}

// TestASnapshotThatDoesNotVerifyGetsNoName, nor does one that breaks off or goes on behind its end.
func TestASnapshotThatDoesNotVerifyGetsNoName(t *testing.T) {
	broken := errors.New("the disk is gone")
	f := func(r io.Reader, v Verify, want string) {
		t.Helper()
		b := faultbucket.New()
		_, err := place(t, b, Options{}).Store(t.Context(), meta(1, 1), r, v)
		if err == nil || !strings.Contains(err.Error(), want) || len(b.Keys()) > 0 {
			t.Errorf("want %q: %v, objects %v", want, err, b.Keys())
		}
	}
	f(strings.NewReader("nonsense"), verify, "this is no snapshot")
	f(io.MultiReader(bytes.NewReader(snapshot(9 << 20)[:8<<20]), failingReader{broken}), verify, "the disk is gone")
	f(bytes.NewReader(snapshot(1<<20)), func(r io.Reader) error { return errors.New("of version 9") }, "of version 9")
	f(bytes.NewReader(snapshot(100)), func(r io.Reader) error { _, err := io.CopyN(io.Discard, r, 100); return err }, "something follows it")
}

type failingReader struct{ err error }

func (f failingReader) Read([]byte) (int, error) { return 0, f.err }

func TestOldOnesAreDeleted(t *testing.T) {
	buckets(t, func(t *testing.T, b store.Bucket) {
		p := place(t, b, Options{Keep: 3})
		f := func(m Meta, want ...Meta) {
			t.Helper()
			put(t, p, m, snapshot(10))
			all := everyNameVerifies(t, p)
			if !slices.EqualFunc(all, want, func(i Info, m Meta) bool { return i.Name == backupName(m) }) {
				t.Errorf("left: %+v", all)
			}
		}
		f(meta(2, 1), meta(2, 1))
		f(meta(2, 2), meta(2, 1), meta(2, 2))
		f(meta(2, 3), meta(2, 1), meta(2, 2), meta(2, 3))
		f(meta(2, 4), meta(2, 2), meta(2, 3), meta(2, 4))
		f(meta(1, 9), meta(1, 9), meta(2, 2), meta(2, 3), meta(2, 4)) // of an incarnation that does not know that it is over
		f(meta(3, 1), meta(2, 3), meta(2, 4), meta(3, 1))
	})
}

// TestWhatCannotBeDeletedIsNoFailure: the backup is made; the next one tries again.
func TestWhatCannotBeDeletedIsNoFailure(t *testing.T) {
	b := faultbucket.New()
	p := place(t, b, Options{Keep: 1})
	put(t, p, meta(1, 1), snapshot(10))
	b.Fault(func(c faultbucket.Call) faultbucket.Fault {
		if c.Op == "delete" {
			return faultbucket.Deny
		}
		return faultbucket.None
	})
	put(t, p, meta(1, 2), snapshot(10))
	b.Fault(nil)
	put(t, p, meta(1, 3), snapshot(10))
	if all := everyNameVerifies(t, p); len(all) != 1 {
		t.Errorf("left: %+v", all)
	}
}

func TestOrphansAreTakenAwayByTheStoresClock(t *testing.T) {
	p := place(t, faultbucket.New(), Options{})
	entries := []store.Entry{
		{Key: "prod/_upload-0000000000000001", Time: noon.Add(-orphan - 1)},
		{Key: "prod/_upload-0000000000000002", Time: noon.Add(-orphan)},
		{Key: "prod/_upload-0000000000000003", Time: noon},
		{Key: "prod/voters", Time: noon.Add(-9 * orphan)},
	}
	f := func(ours string, want ...string) {
		t.Helper()
		if got := p.orphans(entries, ours); !slices.Equal(got, want) {
			t.Errorf("beside %s: %v", ours, got)
		}
	}
	f("_upload-0000000000000003", "_upload-0000000000000001")
	f("_upload-0000000000000001")
	f("_upload-00000000000000ff") // it is not listed: nobody knows what time it is there
}

// TestStoreThatFlipsBits: what a store damages on its way in is found, and has no name of a backup in the end.
func TestStoreThatFlipsBits(t *testing.T) {
	f := func(bad func(key string) bool) {
		t.Helper()
		b := &flipping{Bucket: faultbucket.New(), bad: bad}
		p := place(t, b, Options{})
		if _, err := p.Store(t.Context(), meta(1, 1), bytes.NewReader(snapshot(100)), verify); !errors.Is(err, ErrDamaged) {
			t.Errorf("stored with a flipped bit: %v", err)
		}
		if keys := b.Keys(); len(keys) > 0 {
			t.Errorf("left: %v", keys)
		}
	}
	f(func(key string) bool { return strings.Contains(key, uploadPrefix) })
	f(func(key string) bool { return strings.HasSuffix(key, suffix) })
}

// flipping damages what it is given to keep.
type flipping struct {
	*faultbucket.Bucket
	bad func(key string) bool
}

func (b *flipping) Stage(ctx context.Context) (store.Stage, error) {
	st, err := b.Bucket.Stage(ctx)
	return &flippingStage{st, b}, err
}

type flippingStage struct {
	store.Stage
	b *flipping
}

func (s *flippingStage) Publish(ctx context.Context, key string) error {
	if err := s.Stage.Publish(ctx, key); err != nil || !s.b.bad(key) {
		return err
	}
	body := bytes.Clone(s.b.Get(key))
	body[len(body)-60] ^= 4
	s.b.Put(key, body)
	return nil
}

// TestTheSameMomentTwice: another node has stored its backup of the same state under the same name. It counts, if it verifies.
func TestTheSameMomentTwice(t *testing.T) {
	recipient, file := keyPair(t) // encrypted: no two are alike
	b := faultbucket.New()
	p := place(t, b, Options{EncryptTo: []string{recipient}, IdentityFile: file})
	first := put(t, p, meta(1, 1), snapshot(100))
	theirs := b.Get("prod/" + first.Name)
	if second := put(t, p, meta(1, 1), snapshot(100)); second.Name != first.Name || second.Size != int64(len(theirs)) {
		t.Errorf("%+v, then %+v", first, second)
	}
	if !bytes.Equal(b.Get("prod/"+first.Name), theirs) {
		t.Error("the first one was replaced")
	}
}

func TestOpenRefuses(t *testing.T) {
	recipient, file := keyPair(t)
	f := func(cluster string, opt Options, want string) {
		t.Helper()
		_, err := Open(faultbucket.New(), cluster, opt)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q, %+v: %v", cluster, opt, err)
		}
	}
	f("", Options{}, "cannot name a cluster")
	f("a/b", Options{}, "cannot name a cluster")
	f("prod", Options{EncryptTo: []string{recipient, "age1nothing"}}, "recipient 2")
	f("prod", Options{EncryptTo: []string{recipient + "\n" + recipient}}, "recipient 1")
	f("prod", Options{IdentityFile: file + ".not"}, "reading the age identities")
	f("prod", Options{IdentityFile: "place.go"}, "holds no age identities")
}

// TestCaseK19TheBucketAnswers503: three times, and then it is well: the schedule tries again, and nothing half-done has a name.
func TestCaseK19TheBucketAnswers503(t *testing.T) {
	for _, op := range []string{"create", "read"} {
		b := faultbucket.New()
		p := place(t, b, Options{})
		b.Script(op, faultbucket.Refuse, faultbucket.Refuse, faultbucket.Refuse)
		s, now := NewSchedule(time.Hour, 0, 0), time.Duration(0)
		for s.Due(now, 7) {
			if info, err := p.Store(t.Context(), meta(1, 7), bytes.NewReader(snapshot(100)), verify); err != nil {
				everyNameVerifies(t, place(t, quiet{b}, Options{}))
				s.Failed(now, 0)
				now = s.Next()
			} else {
				s.Done(now, info.Index)
			}
		}
		if now != 17500*time.Millisecond || s.Failures() != 0 {
			t.Errorf("%s: the backup was made after %v", op, now)
		}
		if all := everyNameVerifies(t, p); len(all) != 1 {
			t.Errorf("%s: left: %+v", op, all)
		}
	}
}

// quiet looks at a bucket without using up its faults.
type quiet struct{ *faultbucket.Bucket }

func (q quiet) ReadRange(_ context.Context, key string, off, n int64) ([]byte, error) {
	body := q.Get(key)
	body = body[min(off, int64(len(body))):]
	return body[:min(n, int64(len(body)))], nil
}

// TestCaseK19TheProcessDiesAtEveryCall: at each call to the bucket of one backup, whose own outcome is each of the possible ones.
func TestCaseK19TheProcessDiesAtEveryCall(t *testing.T) {
	total := 0
	dies(t, func(faultbucket.Call) faultbucket.Fault { total++; return faultbucket.None }, "nothing")
	if total < 7 { // create, read, create, read, list, delete, delete
		t.Fatalf("a backup makes %d calls", total)
	}
	for k := 1; k <= total; k++ {
		for last := faultbucket.None; last <= faultbucket.Late; last++ {
			n := 0
			dies(t, func(faultbucket.Call) faultbucket.Fault {
				switch n++; {
				case n < k:
					return faultbucket.None
				case n == k:
					return last
				}
				return faultbucket.Refuse
			}, fmt.Sprintf("call %d of %d with fault %d", k, total, last))
		}
	}
}

// dies makes a third backup under faults, and a fourth without.
func dies(t *testing.T, fault func(faultbucket.Call) faultbucket.Fault, name string) {
	t.Helper()
	b := faultbucket.New()
	p := place(t, b, Options{Keep: 2})
	put(t, p, meta(1, 1), snapshot(10))
	put(t, p, meta(1, 2), snapshot(20))
	b.Fault(fault)
	_, err := p.Store(t.Context(), meta(1, 3), bytes.NewReader(snapshot(30)), verify)
	b.Fault(nil)
	everyNameVerifies(t, p)
	for b.Pending() > 0 {
		b.Land(0, false)
	}
	all := everyNameVerifies(t, p)
	if len(all) < 2 {
		t.Errorf("%s: only %d backups are left", name, len(all))
	}
	if err == nil && all[len(all)-1].Name != backupName(meta(1, 3)) {
		t.Errorf("%s: it said that it was made; there is %+v", name, all)
	}
	put(t, p, meta(1, 4), snapshot(40))
	if got, _ := newest(t, p); got.Meta != meta(1, 4) {
		t.Errorf("%s: the next one is not the newest: %+v", name, got)
	}
}

// TestTrap10WhatIsReadIsWhatWasVerified: the object changes, and is deleted, between the verification and the reading.
func TestTrap10WhatIsReadIsWhatWasVerified(t *testing.T) {
	b := faultbucket.New()
	p := place(t, b, Options{})
	info := put(t, p, meta(1, 1), snapshot(1<<20))
	f := func(read func() (Info, io.ReadCloser, error), after func()) {
		t.Helper()
		got, r, err := read()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		after()
		if plain, err := io.ReadAll(r); err != nil || !bytes.Equal(plain, snapshot(1<<20)) || got.Plain != int64(len(plain)) {
			t.Errorf("%d bytes of %d, %v", len(plain), got.Plain, err)
		}
	}
	f(func() (Info, io.ReadCloser, error) { return p.Newest(t.Context(), verify) }, func() {})
	f(func() (Info, io.ReadCloser, error) { return p.Read(t.Context(), info.Name, verify) }, func() {
		b.Put("prod/"+info.Name, foreign(t))
	})
	if _, r, err := p.Read(t.Context(), info.Name, verify); !errors.Is(err, ErrDamaged) || r != nil {
		t.Errorf("of another cluster: %v", err)
	}
	if _, _, err := p.Read(t.Context(), "voters", verify); err == nil {
		t.Error("the note was read as a backup")
	}
}

// TestAStoreThatHangs: a backup ends with its context, at each call, and leaves nothing running.
func TestAStoreThatHangs(t *testing.T) {
	for _, op := range []string{"create", "read"} {
		synctest.Test(t, func(t *testing.T) {
			b := faultbucket.New()
			p := place(t, b, Options{})
			b.Script(op, faultbucket.None, faultbucket.Hang)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			begun := time.Now()
			_, err := p.Store(ctx, meta(1, 1), bytes.NewReader(snapshot(100)), verify)
			if err == nil || time.Since(begun) != time.Minute {
				t.Errorf("%s: after %v: %v", op, time.Since(begun), err)
			}
			everyNameVerifies(t, p)
		})
	}
}
