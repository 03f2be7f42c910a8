package harness

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/twmb/avro/ocf"
)

// Objects lists what lies at an s3:// location: ETags by key.
func (s *Suite) Objects(t testing.TB, location string) map[string]string {
	t.Helper()
	u, err := url.Parse(location)
	Must(t, err)
	prefix := strings.Trim(u.Path, "/")
	out := map[string]string{}
	pages := s3.NewListObjectsV2Paginator(s.S3.Client(), &s3.ListObjectsV2Input{Bucket: &u.Host, Prefix: &prefix})
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		Must(t, err)
		for _, o := range page.Contents {
			out[*o.Key] = *o.ETag
		}
	}
	return out
}

// Unchanged fails where an object of before is gone or another now: all that is stored is immutable.
func Unchanged(t testing.TB, before, now map[string]string, which func(key string) bool) {
	t.Helper()
	for _, key := range slices.Sorted(maps.Keys(before)) {
		if which(key) && now[key] != before[key] {
			t.Errorf("object %s was %s and is %q now", key, before[key], now[key])
		}
	}
}

// RawEnds are the ends of a stream's chains on object storage, as far as they are stored now: what the header of each last segment says.
func (s *Suite) RawEnds(t testing.TB, location string, topic Topic) map[int32]int64 {
	t.Helper()
	u, err := url.Parse(location)
	Must(t, err)
	last := map[int32]string{}
	for key := range s.Objects(t, location) {
		for p := range topic.Partitions {
			if strings.Contains(key, "/"+topic.Path(p)+"/") && !strings.Contains(key, "/_") && path.Ext(key) == ".avro" {
				last[p] = max(last[p], key)
			}
		}
	}
	out := map[int32]int64{}
	for p, key := range last {
		out[p], err = s.segmentEnd(t, u.Host, key)
		Must(t, err)
	}
	return out
}

func (s *Suite) segmentEnd(t testing.TB, bucket, key string) (int64, error) {
	got, err := s.S3.Client().GetObject(t.Context(), &s3.GetObjectInput{Bucket: &bucket, Key: &key})
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", key, err)
	}
	defer got.Body.Close()
	defer io.Copy(io.Discard, got.Body)
	r, err := ocf.NewReader(got.Body)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", key, err)
	}
	defer r.Close()
	return strconv.ParseInt(string(r.Metadata()["twgd.next"]), 10, 64)
}

// NotBeyondEnds is NotBeyond for ends that were listed after the group was asked, while others may write.
func NotBeyondEnds(t testing.TB, committed, ends map[int32]int64) {
	t.Helper()
	for p, at := range committed {
		if at > ends[p] {
			t.Errorf("the group's offset of partition %d is %d, but raw ends at %d", p, at, ends[p])
		}
	}
}

// Remove deletes an object, and returns what puts it back.
func (s *Suite) Remove(t testing.TB, location, key string) (restore func()) {
	t.Helper()
	u, err := url.Parse(location)
	Must(t, err)
	client := s.S3.Client()
	got, err := client.GetObject(t.Context(), &s3.GetObjectInput{Bucket: &u.Host, Key: &key})
	Must(t, err)
	body, err := io.ReadAll(got.Body)
	Must(t, err)
	_, err = client.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: &u.Host, Key: &key})
	Must(t, err)
	return func() {
		t.Helper()
		_, err := client.PutObject(t.Context(), &s3.PutObjectInput{Bucket: &u.Host, Key: &key, Body: bytes.NewReader(body)})
		Must(t, err)
	}
}
