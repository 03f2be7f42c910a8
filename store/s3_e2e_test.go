//go:build e2e

package store_test

import (
	"crypto/rand"
	"net/url"
	"os"
	"testing"

	"github.com/stream-arrow/twgd/store"
	"github.com/stream-arrow/twgd/store/storetest"
)

// TestS3 runs the suite against the bucket that TWGD_E2E_S3 names, as an s3: location; each bucket of the suite is a
// prefix of its own in it. Credentials come from the environment.
func TestS3(t *testing.T) {
	base := os.Getenv("TWGD_E2E_S3")
	if base == "" {
		t.Fatal("TWGD_E2E_S3 is not set: it names an S3 bucket for tests, as s3://bucket/prefix?region=…&endpoint=…&use_path_style=true")
	}
	storetest.Run(t, func(t *testing.T) store.Bucket {
		u, err := url.Parse(base)
		if err != nil {
			t.Fatal(err)
		}
		u.Path += "/" + rand.Text()
		return open(t, u.String(), store.Options{SpoolDir: t.TempDir()})
	})
}
