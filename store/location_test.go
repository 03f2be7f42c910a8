package store_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/stream-arrow/twgd/store"
)

func TestCheck(t *testing.T) {
	f := func(location, want string) {
		t.Helper()
		err := store.Check(location)
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", location, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q in it", location, err, want)
		case err != nil && strings.Contains(err.Error(), "hunter2"):
			t.Errorf("the error shows the password: %v", err)
		}
	}
	f("file:///var/lib/twgd", "")
	f("s3://bucket", "")
	f("s3://bucket/a/b/?region=eu-1&endpoint=https://s3.test:9000&use_path_style=true", "")
	f("mem://name", "")
	f("", "needs a scheme")
	f("/var/lib", "needs a scheme")
	f("ftp://x", `unknown scheme "ftp"`)
	f("file://var/lib", "file:///var/lib")
	f("file:var/lib", "absolute")
	f("file:///x?sync=false", "takes no settings")
	f("mem:", "needs a name")
	f("s3:///prefix", "needs a bucket")
	f("s3://b/../c", "two dots")
	f("s3://b?regoin=x", `unknown setting "regoin"`)
	f("s3://b?region=x&region=y", "given 2 times")
	f("s3://b?region=", "is empty")
	f("s3://b?use_path_style=maybe", "true or false")
	f("s3://b?endpoint=localhost:9000", "must be a URL")
	f("s3://b?endpoint=http://u:hunter2@h", "must not hold credentials")
	f("s3://key:hunter2@b", "must not hold credentials")
	f("s3://key:hunter2@b:port", "cannot be read")
	f("s3://b?role=admin", "must be an ARN")
	f("s3://b?ssetype=rot13", "must be one of")
	f("s3://b#x", "fragment")
}

func TestTraits(t *testing.T) {
	f := func(location string, durable, shared bool) {
		t.Helper()
		if store.Durable(location) != durable || store.Shared(location) != shared {
			t.Errorf("%s: durable %v, shared %v", location, store.Durable(location), store.Shared(location))
		}
	}
	f("file:///x", true, false)
	f("s3://b", true, true)
	f("mem://n", false, true)
	f("nonsense", false, false)
}

func TestLocal(t *testing.T) {
	dir := t.TempDir()
	if got, ok := open(t, "file://"+dir, store.Options{}).Local(); got != dir || !ok {
		t.Errorf("the directory is %q, %v", got, ok)
	}
	if got, ok := open(t, memURL(), store.Options{}).Local(); got != "" || ok {
		t.Errorf("memory has the directory %q, %v", got, ok)
	}
}

func TestMemIsOneNamespaceAName(t *testing.T) {
	name := memURL()
	if err := open(t, name, store.Options{}).Create(t.Context(), "k", []byte("v")); err != nil {
		t.Fatal(err)
	}
	wantHolds(t, open(t, name, store.Options{}), "k", []byte("v"))
}

func TestS3WithoutRegionIsRefused(t *testing.T) {
	credentials(t)
	t.Setenv("AWS_REGION", "")
	t.Setenv("AWS_DEFAULT_REGION", "")
	_, err := store.Open(t.Context(), "s3://bucket", store.Options{})
	wantIs(t, err, store.ErrPermission)
	if !strings.Contains(err.Error(), "?region=") {
		t.Fatal(err)
	}
}

func TestNobodyListens(t *testing.T) {
	onS3(t, func(t *testing.T, s *fakeS3, b store.Bucket) {
		s.fault = always("put", refused)
		err := b.Create(t.Context(), "k", nil)
		wantRetry(t, err) // surely not stored
		if got := store.Describe(err); got != "create k: dial tcp: connection refused" {
			t.Error(got)
		}
	})
}

func TestDescribe(t *testing.T) {
	f := func(err error, want string) {
		t.Helper()
		if got := store.Describe(err); got != want {
			t.Errorf("%v is described as %q, want %q", err, got, want)
		}
	}
	f(nil, "")
	f(errors.Join(errors.New("two"), errors.New("lines")), "two lines")
	f(fmt.Errorf("raw: %w", &store.Error{Op: "create", Key: "a", Kind: store.ErrExists}), "create a: exists already")
	f(&store.Error{Op: "read", Err: &os.PathError{Op: "open", Path: "/x", Err: os.ErrPermission}}, "read: open /x: permission denied")
	f(&store.Error{Op: "list", Err: context.Canceled}, "list: context canceled")
	f(&store.Error{Op: "read", Key: "k", Err: &url.Error{Op: "Get", URL: "https://u:p@h/k?X-Amz-Signature=1", Err: errors.New("reset")}}, "read k: reset")
	f(errors.New("Get https://u:hunter2@h/k?X-Amz-Credential=1: no for AKIAIOSFODNN7EXAMPLE"), "Get https://…@h/k…: no for …")
	f(errors.New(strings.Repeat("é", 200)), strings.Repeat("é", 150)+"…")
}

func TestDescribeS3(t *testing.T) {
	onS3(t, func(t *testing.T, s *fakeS3, b store.Bucket) {
		s.fault = always("put", denied)
		if got := store.Describe(b.Create(t.Context(), "k", nil)); got != "create k: refused: AccessDenied (HTTP 403)" {
			t.Error(got)
		}
	})
}

func TestMissingCredentialsNeedAPerson(t *testing.T) {
	credentials(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	b := open(t, s3URL, store.Over(newFakeS3(), store.Options{}))
	wantIs(t, b.Create(t.Context(), "k", nil), store.ErrPermission)
}
