//go:build e2e

package servers

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
	"gocloud.dev/blob"
	_ "gocloud.dev/blob/s3blob"
	"gocloud.dev/gcerrors"
)

func TestS3(t *testing.T) {
	ctx := t.Context()
	s, err := S3(ctx)
	must(t, err)
	if s.external == "" {
		leavesNothing(t, s.dir)
	}
	closes(t, s)
	for name, value := range s.Env() {
		t.Setenv(name, value)
	}
	bucket, err := s.NewBucket(ctx)
	must(t, err)
	t.Run("create-only", func(t *testing.T) {
		must(t, putOnce(t, s.Client(), bucket, "once", "first"))
		wantCode(t, putOnce(t, s.Client(), bucket, "once", "second"), "PreconditionFailed")
		wantObject(t, s, bucket, "once", "first")
	})
	t.Run("gocloud", func(t *testing.T) { throughGocloud(t, s.URL(bucket, "prefix")) })
	t.Run("faults", func(t *testing.T) { s3Faults(t, s, bucket) })
	if s.external != "" {
		if err := s.Kill(); !errors.Is(err, ErrExternal) {
			t.Errorf("Kill of an external server: %v, want ErrExternal", err)
		}
		return
	}
	t.Run("Pause and Continue", func(t *testing.T) {
		must(t, s.Pause())
		eventually(t, func() bool { return stateOf(s.PID()) == "T" })
		must(t, s.Continue())
		wantObject(t, s, bucket, "once", "first")
	})
	for name, end := range map[string]func() error{"Stop": s.Stop, "Kill": s.Kill} {
		t.Run(name+" and Start", func(t *testing.T) {
			must(t, end())
			must(t, s.Start(ctx))
			wantObject(t, s, bucket, "once", "first")
		})
	}
}

func putOnce(t *testing.T, client *s3.Client, bucket, key, value string) error {
	_, err := client.PutObject(t.Context(), &s3.PutObjectInput{Bucket: &bucket, Key: &key, Body: strings.NewReader(value),
		IfNoneMatch: aws.String("*")})
	return err
}

func wantCode(t *testing.T, err error, code string) {
	t.Helper()
	var api smithy.APIError
	if !errors.As(err, &api) || api.ErrorCode() != code {
		t.Errorf("error %v, want %s", err, code)
	}
}

func wantObject(t *testing.T, s *S3Server, bucket, key, want string) {
	t.Helper()
	object, err := s.Client().GetObject(t.Context(), &s3.GetObjectInput{Bucket: &bucket, Key: &key})
	must(t, err)
	defer object.Body.Close()
	got, err := io.ReadAll(object.Body)
	must(t, err)
	if string(got) != want {
		t.Errorf("%s is %q, want %q", key, got, want)
	}
}

func throughGocloud(t *testing.T, location string) {
	b, err := blob.OpenBucket(t.Context(), location)
	must(t, err)
	defer b.Close()
	const key = "T~00000000/0/00000000000000000000 %5Fx.avro"
	must(t, b.WriteAll(t.Context(), key, []byte("value"), &blob.WriterOptions{IfNotExist: true}))
	err = b.WriteAll(t.Context(), key, []byte("other"), &blob.WriterOptions{IfNotExist: true})
	if gcerrors.Code(err) != gcerrors.FailedPrecondition {
		t.Errorf("second create-only write: %v, want FailedPrecondition", err)
	}
	got, err := b.ReadAll(t.Context(), key)
	must(t, err)
	if string(got) != "value" {
		t.Errorf("read %q", got)
	}
}

func s3Faults(t *testing.T, s *S3Server, bucket string) {
	f, err := NewS3Faults(s)
	must(t, err)
	closes(t, f)
	client := s.clientOf(f.Endpoint())
	once := s3.New(client.Options(), func(o *s3.Options) { o.RetryMaxAttempts = 1 })
	t.Run("503 twice, the client retries", func(t *testing.T) {
		f.Add(S3Fault{S3Match: S3Match{Op: "PutObject", Key: "busy"}, Times: 2, Do: Unavailable()})
		must(t, putOnce(t, client, bucket, "busy", "v"))
		if n := f.Count(S3Match{Method: http.MethodPut, Key: "busy"}); n != 3 {
			t.Errorf("%d requests, want 3", n)
		}
	})
	t.Run("stored, answer lost, the retry is refused", func(t *testing.T) {
		f.Add(S3Fault{S3Match: S3Match{Op: "PutObject", Key: "lost"}, Do: DropAnswer()})
		wantCode(t, putOnce(t, client, bucket, "lost", "v"), "PreconditionFailed")
		wantObject(t, s, bucket, "lost", "v")
	})
	t.Run("stored, answer late", func(t *testing.T) {
		f.Add(S3Fault{S3Match: S3Match{Key: "late"}, Do: DelayAnswer(time.Hour)})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		key := "late"
		_, err := once.PutObject(ctx, &s3.PutObjectInput{Bucket: &bucket, Key: &key, Body: strings.NewReader("v")})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v, want the deadline", err)
		}
		wantObject(t, s, bucket, "late", "v")
	})
	t.Run("a store that ignores If-None-Match", func(t *testing.T) {
		f.Add(S3Fault{S3Match: S3Match{Key: "ignored"}, Times: -1, Do: IgnoreIfNoneMatch()})
		must(t, putOnce(t, client, bucket, "ignored ~%5F=", "first"))
		must(t, putOnce(t, client, bucket, "ignored ~%5F=", "second"))
		wantObject(t, s, bucket, "ignored ~%5F=", "second")
		must(t, multipart(t, client, bucket, "ignored-parts"))
		must(t, multipart(t, client, bucket, "ignored-parts"))
	})
	t.Run("error inside 200", func(t *testing.T) {
		f.Add(S3Fault{S3Match: S3Match{Op: "CompleteMultipartUpload"}, Do: ErrorInOK("InternalError")})
		wantCode(t, multipart(t, once, bucket, "parts"), "InternalError")
		must(t, multipart(t, client, bucket, "parts"))
		wantCode(t, multipart(t, client, bucket, "parts"), "PreconditionFailed")
	})
	t.Run("gocloud through the proxy", func(t *testing.T) { throughGocloud(t, f.URL(fresh(t, s), "p")) })
	if f.Left() != 0 {
		t.Errorf("%d faults were not met", f.Left())
	}
}

func fresh(t *testing.T, s *S3Server) string {
	t.Helper()
	bucket, err := s.NewBucket(t.Context())
	must(t, err)
	return bucket
}

// multipart writes an object in one part, create-only.
func multipart(t *testing.T, client *s3.Client, bucket, key string) error {
	t.Helper()
	upload, err := client.CreateMultipartUpload(t.Context(), &s3.CreateMultipartUploadInput{Bucket: &bucket, Key: &key})
	must(t, err)
	part, err := client.UploadPart(t.Context(), &s3.UploadPartInput{Bucket: &bucket, Key: &key, UploadId: upload.UploadId,
		PartNumber: aws.Int32(1), Body: bytes.NewReader(make([]byte, 5<<20))})
	must(t, err)
	_, err = client.CompleteMultipartUpload(t.Context(), &s3.CompleteMultipartUploadInput{Bucket: &bucket, Key: &key, UploadId: upload.UploadId,
		IfNoneMatch:     aws.String("*"),
		MultipartUpload: &types.CompletedMultipartUpload{Parts: []types.CompletedPart{{PartNumber: aws.Int32(1), ETag: part.ETag}}}})
	return err
}
