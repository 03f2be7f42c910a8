package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"regexp"
	"strings"
	"syscall"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"
)

// Error is how every operation of this package fails: what was being done to which object, what the caller has to make
// of it, and the cause. errors.Is reaches both the kind and the cause.
type Error struct {
	Op   string // create, publish, read, …
	Key  string // the key, or the path of an append file or a lock; may be empty
	Kind error  // ErrExists, ErrNotFound, ErrUnknown, ErrPermission, ErrBroken, ErrLocked; nil: nothing was done, try again
	Err  error  // the cause; nil where the kind says all
}

// The kinds of errors. What is none of them has changed nothing and may be tried again.
var (
	// ErrExists: an object has this key already. It may be our own, see [Bucket.Create].
	ErrExists = errors.New("exists already")
	// ErrNotFound: no object has this key.
	ErrNotFound = errors.New("does not exist")
	// ErrUnknown: the object may have been stored, or may yet be; reading it back tells.
	ErrUnknown = errors.New("may or may not have been stored")
	// ErrPermission: trying again will not help until a person has mended something: credentials, rights, a bucket that
	// does not exist, a file system that is read-only or not able to do what is needed.
	ErrPermission = errors.New("refused")
	// ErrBroken: this append file can take no more blocks; the owner goes on in a new one.
	ErrBroken = errors.New("cannot be appended to any more")
	// ErrLocked: another process holds the lock.
	ErrLocked = errors.New("is locked by another process")
)

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("store: " + e.Op)
	if e.Key != "" {
		b.WriteString(" " + e.Key)
	}
	if e.Kind != nil {
		b.WriteString(": " + e.Kind.Error())
	}
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	return b.String()
}

// Unwrap gives errors.Is and errors.As the kind and the cause.
func (e *Error) Unwrap() []error {
	var all []error
	for _, err := range []error{e.Kind, e.Err} {
		if err != nil {
			all = append(all, err)
		}
	}
	return all
}

// fileError classifies what a local file system said.
func fileError(op, key string, err error) error {
	return &Error{Op: op, Key: key, Kind: fileKind(err), Err: err}
}

// needsPerson are the answers of a file system that do not go away by themselves.
var needsPerson = []error{
	syscall.EACCES, syscall.EPERM, syscall.EROFS, syscall.ENOTDIR, syscall.EISDIR, syscall.ELOOP, syscall.EXDEV,
	syscall.ENAMETOOLONG, syscall.EOPNOTSUPP, syscall.ENOSYS, fs.ErrPermission,
}

func fileKind(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ErrNotFound
	case errors.Is(err, fs.ErrExist):
		return ErrExists
	}
	for _, p := range needsPerson {
		if errors.Is(err, p) {
			return ErrPermission
		}
	}
	return nil
}

// badKey refuses a key before anything is touched.
func badKey(op, key string) error {
	if err := CheckKey(key); err != nil {
		return &Error{Op: op, Kind: ErrPermission, Err: err}
	}
	return nil
}

// secrets is what must not reach a status page: credentials in a URL, everything behind its question mark, and AWS key
// ids.
var secrets = regexp.MustCompile(`//[^/@\s]*@|\?[^\s":]*|\b(?:AKIA|ASIA)[A-Z0-9]{12,}\b`)

// maxDescription is the length in bytes at which Describe cuts, so that a page of HTML from a proxy does not fill the
// status page.
const maxDescription = 300

// Describe says in one line, without secrets, what went wrong: fit for a status page.
func Describe(err error) string {
	if err == nil {
		return ""
	}
	var e *Error
	text := cause(err)
	if errors.As(err, &e) {
		text = e.describe()
	}
	text = secrets.ReplaceAllStringFunc(text, func(s string) string {
		if strings.HasPrefix(s, "//") {
			return "//…@"
		}
		return "…"
	})
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > maxDescription {
		text = strings.ToValidUTF8(text[:maxDescription], "") + "…"
	}
	return text
}

func (e *Error) describe() string {
	parts := []string{strings.TrimSpace(e.Op + " " + e.Key)}
	if e.Kind != nil {
		parts = append(parts, e.Kind.Error())
	}
	if e.Err != nil {
		parts = append(parts, cause(e.Err))
	}
	return strings.Join(parts, ": ")
}

// cause finds the innermost thing worth saying: an S3 error code with its status, a network error without its URL, an
// errno; else the whole text.
func cause(err error) string {
	var api smithy.APIError
	var resp *awshttp.ResponseError
	var op *net.OpError
	var ue *url.Error
	var pe *fs.PathError
	var le *linkError
	switch {
	case errors.Is(err, errTimeout):
		return errTimeout.Error()
	case errors.As(err, &api) && errors.As(err, &resp) && resp.HTTPStatusCode() > 0:
		return fmt.Sprintf("%s (HTTP %d)", api.ErrorCode(), resp.HTTPStatusCode())
	case errors.As(err, &resp) && resp.HTTPStatusCode() > 0 && !errors.As(err, &op):
		return fmt.Sprintf("HTTP %d", resp.HTTPStatusCode())
	case errors.Is(err, context.Canceled):
		return context.Canceled.Error()
	case errors.As(err, &op):
		return op.Error()
	case errors.As(err, &ue):
		return ue.Err.Error()
	case errors.As(err, &le):
		return le.Error()
	case errors.As(err, &pe):
		return pe.Error()
	}
	return err.Error()
}
