package store_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stream-arrow/twgd/store"
	"github.com/stream-arrow/twgd/store/storetest"
)

const s3URL = "s3://bucket/some/prefix?region=us-east-1&endpoint=http://s3.test:9000&use_path_style=true"

func credentials(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI")
	t.Setenv("AWS_CONFIG_FILE", "/dev/null")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
}

// onS3 runs a test in fake time over a fake server.
func onS3(t *testing.T, f func(t *testing.T, s *fakeS3, b store.Bucket)) {
	t.Helper()
	credentials(t)
	synctest.Test(t, func(t *testing.T) {
		s := newFakeS3()
		b := open(t, s3URL, store.Over(s, store.Options{SpoolDir: t.TempDir()}))
		defer b.Close()
		f(t, s, b)
	})
}

func TestS3Bucket(t *testing.T) {
	credentials(t)
	storetest.Run(t, func(t *testing.T) store.Bucket {
		return open(t, s3URL, store.Over(newFakeS3(), store.Options{SpoolDir: t.TempDir()}))
	})
}

func wantIs(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error %v, want %v", err, want)
	}
}

// wantRetry wants an error that has none of the kinds.
func wantRetry(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	for _, kind := range []error{store.ErrExists, store.ErrNotFound, store.ErrUnknown, store.ErrPermission, store.ErrBroken} {
		if errors.Is(err, kind) {
			t.Fatalf("error %v, want one that may be tried again", err)
		}
	}
}

func wantHolds(t *testing.T, b store.Bucket, key string, want []byte) {
	t.Helper()
	got, err := b.Read(t.Context(), key)
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%s holds %d bytes, error %v; want %d", key, len(got), err, len(want))
	}
}

// large is uploaded in two parts.
var large = bytes.Repeat([]byte("x"), 17<<20)

func stage(t *testing.T, b store.Bucket, body []byte) store.Stage {
	t.Helper()
	st, err := b.Stage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Discard() })
	if _, err := st.Write(body); err != nil {
		t.Fatal(err)
	}
	return st
}

func TestCaseD08BusyStoreThenErrorInside200(t *testing.T) {
	onS3(t, func(t *testing.T, s *fakeS3, b store.Bucket) {
		s.fault = script("complete", busy, busy, busy, busy, busy, errorIn200)
		st := stage(t, b, large)
		tries, err := 1, st.Publish(t.Context(), "seg")
		for ; err != nil && tries < 10; tries++ {
			if errors.Is(err, store.ErrExists) || errors.Is(err, store.ErrPermission) {
				t.Fatalf("a busy store gave %v", err)
			}
			if _, rerr := b.Read(t.Context(), "seg"); !errors.Is(rerr, store.ErrNotFound) {
				t.Fatalf("after %v the segment can be read: %v", err, rerr)
			}
			err = st.Publish(t.Context(), "seg")
		}
		if err != nil {
			t.Fatal(err)
		}
		wantHolds(t, b, "seg", large)
		if s.count("complete") != 7 {
			t.Fatalf("%d completions, want 7", s.count("complete"))
		}
		if len(s.uploads) != 0 {
			t.Fatalf("%d uploads were left behind", len(s.uploads))
		}
	})
}

func TestCaseD10LostReply(t *testing.T) {
	onS3(t, func(t *testing.T, s *fakeS3, b store.Bucket) {
		s.fault = script("put", lostReply)
		wantIs(t, b.Create(t.Context(), "seg", []byte("ours")), store.ErrExists)
		wantHolds(t, b, "seg", []byte("ours"))

		s.fault = script("put", lostReply, busy, busy)
		err := b.Create(t.Context(), "seg2", []byte("ours"))
		wantIs(t, err, store.ErrUnknown)
		wantHolds(t, b, "seg2", []byte("ours"))

		s.fault = script("complete", lostReply)
		st := stage(t, b, large)
		wantIs(t, st.Publish(t.Context(), "big"), store.ErrUnknown)
		wantIs(t, st.Publish(t.Context(), "big"), store.ErrExists)
		wantHolds(t, b, "big", large)
	})
}

func TestWhatSurelyWasNotStoredIsNotUnknown(t *testing.T) {
	onS3(t, func(t *testing.T, s *fakeS3, b store.Bucket) {
		s.fault = always("put", conflict)
		wantRetry(t, b.Create(t.Context(), "k", nil))
		s.fault = always("put", denied)
		wantIs(t, b.Create(t.Context(), "k", nil), store.ErrPermission)
		s.fault = always("put", noBucket)
		wantIs(t, b.Create(t.Context(), "k", nil), store.ErrPermission)
		st := stage(t, b, large)
		s.fault = always("part", busy)
		wantRetry(t, st.Publish(t.Context(), "k"))
		s.fault = always("part", lostReply)
		wantRetry(t, st.Publish(t.Context(), "k"))
		s.fault = always("begin", lostReply)
		wantRetry(t, st.Publish(t.Context(), "k"))
		if len(s.objects) != 0 {
			t.Fatal("something was stored")
		}
		s.fault = nil
		if err := st.Publish(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
	})
}

func TestReadErrors(t *testing.T) {
	onS3(t, func(t *testing.T, s *fakeS3, b store.Bucket) {
		if err := b.Create(t.Context(), "k", []byte("0123456789")); err != nil {
			t.Fatal(err)
		}
		f := func(op string, ft fault, want error) {
			t.Helper()
			s.fault = always(op, ft)
			_, err := b.Read(t.Context(), "k")
			if op == "list" {
				_, err = b.List(t.Context(), "", "", 0)
			}
			if want == nil {
				wantRetry(t, err)
			} else {
				wantIs(t, err, want)
			}
		}
		f("get", busy, nil)
		f("get", lostReply, nil)
		f("get", halfBody, nil)
		f("get", denied, store.ErrPermission)
		f("get", noBucket, store.ErrPermission)
		f("list", busy, nil)
		f("list", noBucket, store.ErrPermission)
		f("list", denied, store.ErrPermission)
	})
}

func TestHangingStoreBecomesAnError(t *testing.T) {
	onS3(t, func(t *testing.T, s *fakeS3, b store.Bucket) {
		f := func(op string, want error, do func() error) {
			t.Helper()
			s.fault = always(op, hang)
			begun := time.Now()
			err := do()
			if d := time.Since(begun); d != store.DefaultTimeout {
				t.Fatalf("%s hung for %v", op, d)
			}
			if !strings.Contains(store.Describe(err), "not answered in time") {
				t.Fatalf("%s: %s", op, store.Describe(err))
			}
			if want == nil {
				wantRetry(t, err)
			} else {
				wantIs(t, err, want)
			}
		}
		ctx := t.Context()
		f("put", store.ErrUnknown, func() error { return b.Create(ctx, "k", nil) })
		f("get", nil, func() error { _, err := b.Read(ctx, "k"); return err })
		f("list", nil, func() error { _, err := b.List(ctx, "", "", 0); return err })
		f("list", nil, func() error { _, err := b.Dirs(ctx, ""); return err })
		f("delete", nil, func() error { return b.Delete(ctx, "k") })
		st := stage(t, b, large)
		f("begin", nil, func() error { return st.Publish(ctx, "k") })
		f("part", nil, func() error { return st.Publish(ctx, "k") })
		f("complete", store.ErrUnknown, func() error { return st.Publish(ctx, "k") })
	})
}

func TestEndedContextAbandonsTheUpload(t *testing.T) {
	onS3(t, func(t *testing.T, s *fakeS3, b store.Bucket) {
		s.fault = always("part", hang)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		st := stage(t, b, large)
		wantIs(t, st.Publish(ctx, "k"), context.DeadlineExceeded)
		if len(s.objects) != 0 || len(s.uploads) != 0 {
			t.Fatalf("%d objects and %d uploads are left", len(s.objects), len(s.uploads))
		}
	})
}

func TestCaseD37StoreWithoutCreateOnly(t *testing.T) {
	onS3(t, func(t *testing.T, s *fakeS3, b store.Bucket) {
		f := func(op, named string) {
			t.Helper()
			s.fault = always(op, unconditional)
			err := b.Probe(t.Context())
			wantIs(t, err, store.ErrPermission)
			for _, part := range []string{named, "If-None-Match", "records would be lost"} {
				if !strings.Contains(err.Error(), part) {
					t.Fatalf("the refusal does not speak of %s: %v", part, err)
				}
			}
			if len(s.objects) != 0 {
				t.Fatalf("the probe has left %d objects", len(s.objects))
			}
		}
		f("put", "PutObject")
		f("complete", "CompleteMultipartUpload")
		s.fault = nil
		if err := b.Probe(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.racy = true
		f("none", "were told that they had won")
	})
}

func TestProbeSurvivesALostReply(t *testing.T) {
	onS3(t, func(t *testing.T, s *fakeS3, b store.Bucket) {
		s.fault = script("put", lostReply)
		if err := b.Probe(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestProbeRemovesOrphans(t *testing.T) {
	onS3(t, func(t *testing.T, s *fakeS3, b store.Bucket) {
		if err := b.Create(t.Context(), "_probe-0000000000000000-a", nil); err != nil {
			t.Fatal(err)
		}
		f := func(age time.Duration, left int) {
			t.Helper()
			time.Sleep(age)
			if err := b.Probe(t.Context()); err != nil {
				t.Fatal(err)
			}
			if len(s.objects) != left {
				t.Fatalf("%d probe objects are left after %v, want %d", len(s.objects), age, left)
			}
		}
		f(23*time.Hour, 1) // its process may be alive
		f(2*time.Hour, 0)
	})
}
