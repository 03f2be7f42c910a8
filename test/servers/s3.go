package servers

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// The credentials of a server that we start, and its region.
const (
	s3AccessKey = "twgd-test"
	s3SecretKey = "twgd-test-secret"
	s3Region    = "us-east-1"
)

// S3Server is a versitygw over a folder: of the servers that are small enough for a test it is the one whose create-only writes hold under
// races, multipart uploads included. A key cannot be both an object and another's folder there, and it does not fsync.
type S3Server struct {
	external string // endpoint of a server that is not ours; then dir, ports, process are nil
	dir      string
	ports    *ports
	program  string
	process  *process

	mu      sync.Mutex
	buckets []string // made by NewBucket
}

// S3 starts a server, or returns the one that TWGD_E2E_S3 names. Close it.
func S3(ctx context.Context) (*S3Server, error) {
	if endpoint := os.Getenv(EnvS3); endpoint != "" {
		return &S3Server{external: strings.TrimSuffix(endpoint, "/")}, nil
	}
	program, err := installVersitygw(ctx)
	if err != nil {
		return nil, err
	}
	s := &S3Server{program: program}
	if err := s.prepare(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if err := s.Start(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *S3Server) prepare() (err error) {
	if s.dir, err = os.MkdirTemp("", "twgd-s3-"); err != nil {
		return fmt.Errorf("make the S3 server's folder: %w", err)
	}
	if err := os.Mkdir(filepath.Join(s.dir, "data"), 0o755); err != nil {
		return fmt.Errorf("make the S3 server's folder: %w", err)
	}
	if s.ports, err = reservePorts(1); err != nil {
		return err
	}
	s.process = &process{name: "versitygw", command: s.command, death: syscall.SIGKILL, log: filepath.Join(s.dir, "versitygw.log"),
		ready: s.answers, limit: time.Minute}
	return nil
}

func (s *S3Server) command() *exec.Cmd {
	cmd := exec.Command(s.program, "--port", loopback(s.ports.numbers[0]), "posix", filepath.Join(s.dir, "data"))
	cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+s3AccessKey, "ROOT_SECRET_KEY="+s3SecretKey)
	return cmd
}

func (s *S3Server) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", loopback(s.ports.numbers[0]))
	if err != nil {
		return err
	}
	conn.Close()
	_, err = s.Client().ListBuckets(ctx, nil)
	return err
}

// Start starts the server again after Stop or Kill, on the same port and data, and returns when it answers.
func (s *S3Server) Start(ctx context.Context) error {
	if s.external != "" {
		return ErrExternal
	}
	return s.process.start(ctx)
}

// Stop ends the server by SIGTERM and waits for its end.
func (s *S3Server) Stop() error { return s.end(syscall.SIGTERM) }

// Kill ends the server by SIGKILL and waits for its end.
func (s *S3Server) Kill() error { return s.end(syscall.SIGKILL) }

func (s *S3Server) end(sig syscall.Signal) error {
	if s.external != "" {
		return ErrExternal
	}
	return s.process.stop(sig)
}

// Pause stops the server's process until Continue: connections stay open and nothing answers.
func (s *S3Server) Pause() error { return s.send(syscall.SIGSTOP) }

// Continue ends a Pause.
func (s *S3Server) Continue() error { return s.send(syscall.SIGCONT) }

func (s *S3Server) send(sig syscall.Signal) error {
	if s.external != "" {
		return ErrExternal
	}
	return s.process.signal(sig)
}

// Close ends the server and removes all it kept. Of an external one it removes the buckets that NewBucket made.
func (s *S3Server) Close() error {
	if s.external != "" {
		return s.removeBuckets()
	}
	var err error
	if s.process != nil {
		err = s.process.stop(syscall.SIGKILL)
	}
	if s.ports != nil {
		s.ports.release()
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

// PID is the server's process, 0 while it is stopped or external.
func (s *S3Server) PID() int {
	if s.external != "" {
		return 0
	}
	return s.process.pid()
}

// Endpoint is the server's http:// URL without a path.
func (s *S3Server) Endpoint() string {
	if s.external != "" {
		return s.external
	}
	return "http://" + loopback(s.ports.numbers[0])
}

// AccessKey and SecretKey are the credentials: those of the environment for an external server.
func (s *S3Server) AccessKey() string { return s.credential("AWS_ACCESS_KEY_ID", s3AccessKey) }

// SecretKey goes with AccessKey.
func (s *S3Server) SecretKey() string { return s.credential("AWS_SECRET_ACCESS_KEY", s3SecretKey) }

func (s *S3Server) credential(name, ours string) string {
	if s.external != "" {
		return os.Getenv(name)
	}
	return ours
}

// Env is what a program needs in its environment beside the URL: the credentials, which no URL carries, and a word that keeps the SDK from
// asking a cloud's metadata service.
func (s *S3Server) Env() map[string]string {
	return map[string]string{"AWS_ACCESS_KEY_ID": s.AccessKey(), "AWS_SECRET_ACCESS_KEY": s.SecretKey(), "AWS_EC2_METADATA_DISABLED": "true"}
}

// URL is the location of a prefix in a bucket as twgd and gocloud.dev take it: with region and endpoint, without credentials. A test sets
// those first: for name, value := range s.Env() { t.Setenv(name, value) }. Note that gocloud.dev's own opener ignores the path.
func (s *S3Server) URL(bucket, prefix string) string { return s3URL(s.Endpoint(), bucket, prefix) }

func s3URL(endpoint, bucket, prefix string) string {
	query := url.Values{"region": {s3Region}, "endpoint": {endpoint}, "use_path_style": {"true"}}
	u := url.URL{Scheme: "s3", Host: bucket, Path: prefix, RawQuery: query.Encode()}
	return u.String()
}

// Client is an S3 client with the server's credentials.
func (s *S3Server) Client() *s3.Client { return s.clientOf(s.Endpoint()) }

func (s *S3Server) clientOf(endpoint string) *s3.Client {
	return s3.New(s3.Options{Region: s3Region, BaseEndpoint: aws.String(endpoint), UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(s.AccessKey(), s.SecretKey(), "")})
}

// NewBucket makes a fresh, empty bucket and returns its name.
func (s *S3Server) NewBucket(ctx context.Context) (string, error) {
	name := "twgd-" + strings.ToLower(rand.Text()[:12])
	if _, err := s.Client().CreateBucket(ctx, &s3.CreateBucketInput{Bucket: &name}); err != nil {
		return "", fmt.Errorf("create a bucket: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buckets = append(s.buckets, name)
	return name, nil
}

func (s *S3Server) removeBuckets() error {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, bucket := range s.buckets {
		errs = append(errs, removeBucket(ctx, s.Client(), bucket))
	}
	s.buckets = nil
	return errors.Join(errs...)
}

func removeBucket(ctx context.Context, client *s3.Client, bucket string) error {
	pages := s3.NewListObjectsV2Paginator(client, &s3.ListObjectsV2Input{Bucket: &bucket})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return fmt.Errorf("empty bucket %s: %w", bucket, err)
		}
		for _, object := range page.Contents {
			if _, err := client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &bucket, Key: object.Key}); err != nil {
				return fmt.Errorf("empty bucket %s: %w", bucket, err)
			}
		}
	}
	if _, err := client.DeleteBucket(ctx, &s3.DeleteBucketInput{Bucket: &bucket}); err != nil {
		return fmt.Errorf("remove bucket %s: %w", bucket, err)
	}
	return nil
}

// versitygw is pinned; it names the folder in the cache.
const versitygw = "v1.8.0"

func installVersitygw(ctx context.Context) (program string, err error) {
	dir, err := installed(ctx, "versitygw-"+versitygw, func(ctx context.Context, dir string) error {
		goTool, err := need("versitygw", "go", "Go 1.26 or newer from https://go.dev/dl/")
		if err != nil {
			return err
		}
		return runTool(ctx, []string{"GOBIN=" + dir, "GOFLAGS=", "CGO_ENABLED=0"}, goTool, "install",
			"github.com/versity/versitygw/cmd/versitygw@"+versitygw)
	})
	return filepath.Join(dir, "versitygw"), err
}
