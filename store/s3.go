package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
	gcaws "gocloud.dev/aws"
	"gocloud.dev/blob/s3blob"
)

// partSize is from where an object is uploaded in parts, and how large each is but the last. S3 allows 10,000 parts,
// so the largest object has 156 GiB.
const partSize = 16 << 20

// s3Uploads is the writing half of an S3 bucket: create-only uploads that end in certainty or say that they do not.
//
// The client library repeats a request that failed, and reports only the last attempt. So a "no" may follow an attempt
// that was carried out and whose reply was lost, and the answer to a repetition may be "exists" about our own object.
// Each upload therefore carries an [outcome], in which the HTTP client below the library notes every attempt that may
// have changed something; a failure after such an attempt is ErrUnknown.
type s3Uploads struct {
	client  *s3.Client
	bucket  string
	prefix  string
	timeout time.Duration

	encryption types.ServerSideEncryption
	kmsKey     *string
}

func openS3(ctx context.Context, u *url.URL, opt Options) (Bucket, error) {
	q := u.Query()
	up := &s3Uploads{bucket: u.Host, timeout: opt.Timeout, encryption: types.ServerSideEncryption(q.Get("ssetype"))}
	if p := strings.Trim(u.Path, "/"); p != "" {
		up.prefix = p + "/"
	}
	if k := q.Get("kmskeyid"); k != "" {
		up.kmsKey = &k
	}
	client, idle, err := dialS3(ctx, q, opt.transport)
	if err != nil {
		return nil, &Error{Op: "open", Key: "s3://" + u.Host, Kind: ErrPermission, Err: err}
	}
	up.client = client
	b, err := s3blob.OpenBucket(ctx, client, u.Host, nil)
	if err != nil {
		return nil, &Error{Op: "open", Key: "s3://" + u.Host, Kind: ErrPermission, Err: err}
	}
	closeAll := func() error { defer idle(); return b.Close() }
	return &blobBucket{b: b, prefix: up.prefix, timeout: opt.Timeout, spool: opt.SpoolDir, s3: up, close: closeAll}, nil
}

// dialS3 makes the client; idle closes the connections that it keeps.
func dialS3(ctx context.Context, q url.Values, rt http.RoundTripper) (_ *s3.Client, idle func(), err error) {
	base, pathStyle := q.Get("endpoint"), q.Get("use_path_style")
	for _, k := range []string{"endpoint", "use_path_style", "ssetype", "kmskeyid"} {
		q.Del(k)
	}
	cfg, err := gcaws.V2ConfigFromURLParams(ctx, q)
	if err != nil {
		return nil, nil, err
	}
	if cfg.Region == "" && base == "" {
		return nil, nil, errors.New("the region is not known: add ?region=… to the location or set AWS_REGION")
	}
	if cfg.Region == "" {
		cfg.Region = "us-east-1" // what servers other than Amazon's expect who do not care
	}
	idle = func() {}
	if rt == nil {
		rt, idle = network(cfg)
	}
	cfg.HTTPClient = noting{&http.Client{Transport: rt, CheckRedirect: noRedirect}}
	client := s3.NewFromConfig(cfg, func(o *s3.Options) {
		if base != "" {
			o.BaseEndpoint = &base
		}
		o.UsePathStyle, _ = strconv.ParseBool(pathStyle)
		o.DisableLogOutputChecksumValidationSkipped = true
	})
	return client, idle, nil
}

// network is the library's own transport, which knows AWS_CA_BUNDLE.
func network(cfg aws.Config) (_ http.RoundTripper, idle func()) {
	built, ok := cfg.HTTPClient.(*awshttp.BuildableClient)
	if !ok {
		built = awshttp.NewBuildableClient()
	}
	t := built.GetTransport()
	return t, t.CloseIdleConnections
}

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// outcome notes what the attempts of one upload may have done. It belongs to one upload, whose requests follow one
// another.
type outcome struct{ maybe bool }

type outcomeKey struct{}

func withOutcome(ctx context.Context) (context.Context, *outcome) {
	o := &outcome{}
	return context.WithValue(ctx, outcomeKey{}, o), o
}

// noting is the HTTP client below the library.
type noting struct{ client *http.Client }

func (n noting) Do(r *http.Request) (*http.Response, error) {
	resp, err := n.client.Do(r)
	if o, ok := r.Context().Value(outcomeKey{}).(*outcome); ok && unclear(resp, err) {
		o.maybe = true
	}
	return resp, err
}

// unclear tells whether an attempt may have changed something, or may yet. It has not if it never reached the server,
// or if the server has refused it; 408 is what proxies say about requests whose fate they do not know. A 200 may still turn out an
// error in its body.
func unclear(resp *http.Response, err error) bool {
	if err != nil {
		return !neverSent(err)
	}
	return resp.StatusCode < 300 || resp.StatusCode >= 500 || resp.StatusCode == http.StatusRequestTimeout
}

// s3Kind classifies an answer that is not about an upload's outcome.
func s3Kind(err error) error {
	code, status := answer(err)
	switch {
	case code == "NoSuchKey" || code == "NotFound":
		return ErrNotFound
	case slices.Contains(refusals, code):
		return ErrPermission
	case status == http.StatusUnauthorized || status == http.StatusForbidden || status == http.StatusNotImplemented:
		return ErrPermission
	case status == http.StatusMovedPermanently || status == http.StatusTemporaryRedirect:
		return ErrPermission // another region, or another service altogether
	case strings.Contains(err.Error(), noCredentials), badTLS(err):
		return ErrPermission
	}
	return nil
}

// noCredentials is how the library begins when it has found no credentials; the error has no type of its own.
const noCredentials = "get identity: get credentials"

// refusals are the codes that a person has to do something about.
var refusals = []string{
	"NoSuchBucket", "AccessDenied", "AccountProblem", "AllAccessDisabled", "AuthorizationHeaderMalformed", "ExpiredToken",
	"InvalidAccessKeyId", "InvalidBucketName", "InvalidToken", "KMS.DisabledException", "KMS.NotFoundException", "MethodNotAllowed",
	"NotImplemented", "PermanentRedirect", "SignatureDoesNotMatch", "Forbidden",
}

// answer is the error code and the HTTP status that a server sent, as far as there are any.
func answer(err error) (code string, status int) {
	var api smithy.APIError
	if errors.As(err, &api) {
		code = api.ErrorCode()
	}
	var resp *awshttp.ResponseError
	if errors.As(err, &resp) {
		status = resp.HTTPStatusCode()
	}
	return code, status
}

func beyondEnd(err error) bool {
	code, status := answer(err)
	return code == "InvalidRange" || status == http.StatusRequestedRangeNotSatisfiable
}

// put uploads an object in one request or, from partSize on, in parts.
func (u *s3Uploads) put(ctx context.Context, op, key string, src source, m mode) error {
	ctx, o := withOutcome(ctx)
	var err error
	if src.size < partSize {
		err = u.putOne(ctx, key, src, m)
	} else {
		err = u.putParts(ctx, o, key, src, partSize, m)
	}
	return settled(op, key, o, err)
}

// settled classifies the end of an upload. "Exists" stands whatever went before; see [Bucket.Create]. A 409 says that
// another conditional write was under way: nothing has been stored, and a repetition will tell who won.
func settled(op, key string, o *outcome, err error) error {
	if err == nil {
		return nil
	}
	code, status := answer(err)
	switch {
	case code == "PreconditionFailed" || status == http.StatusPreconditionFailed:
		return &Error{Op: op, Key: key, Kind: ErrExists}
	case o.maybe:
		return &Error{Op: op, Key: key, Kind: ErrUnknown, Err: err}
	}
	kind := s3Kind(err)
	if kind == ErrNotFound {
		kind = nil
	}
	return &Error{Op: op, Key: key, Kind: kind, Err: err}
}

func (u *s3Uploads) putOne(ctx context.Context, key string, src source, m mode) error {
	ctx, cancel := limit(ctx, u.timeout)
	defer cancel()
	_, err := u.client.PutObject(ctx, &s3.PutObjectInput{
		Bucket: &u.bucket, Key: aws.String(u.prefix + key), Body: io.NewSectionReader(src, 0, src.size),
		ContentLength: &src.size, ContentType: aws.String(contentType), IfNoneMatch: m.ifNoneMatch(),
		ServerSideEncryption: u.encryption, SSEKMSKeyId: u.kmsKey,
	})
	if err != nil {
		return withCause(ctx, err)
	}
	return nil
}

// ifNoneMatch is the header that makes a write create-only.
func (m mode) ifNoneMatch() *string {
	if m == createOnly {
		return aws.String("*")
	}
	return nil
}

func (u *s3Uploads) delete(ctx context.Context, key string) error {
	_, err := u.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &u.bucket, Key: aws.String(u.prefix + key)})
	if code, _ := answer(err); code == "NoSuchKey" {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	return nil
}
