package store_test

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stream-arrow/twgd/store"
	"github.com/stream-arrow/twgd/store/storetest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, url string, opt store.Options) store.Bucket {
	t.Helper()
	b, err := store.Open(t.Context(), url, opt)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestFileBucket(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Bucket {
		return open(t, "file://"+t.TempDir()+"/made/on/the/way", store.Options{})
	})
}

func TestFileBucketOnDisk(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Bucket {
		return open(t, "file:///raw", store.Options{FS: storetest.NewDisk(1)})
	})
}

var memNames atomic.Int64

func memURL() string { return "mem://test" + strings.Repeat("x", int(memNames.Add(1))) }

func TestMemBucket(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Bucket {
		return open(t, memURL(), store.Options{SpoolDir: t.TempDir()})
	})
}
