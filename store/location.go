package store

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
)

// queryKeys are the settings that an s3: URL may carry and the check of each value. Credentials are not among them: a
// URL ends up in logs and on status pages.
var queryKeys = map[string]func(string) error{
	"region":                       nonEmpty,
	"endpoint":                     endpoint,
	"use_path_style":               boolean,
	"profile":                      nonEmpty,
	"anonymous":                    boolean,
	"dualstack":                    boolean,
	"fips":                         boolean,
	"role":                         arn,
	"role_session_name":            nonEmpty,
	"role_external_id":             nonEmpty,
	"web_identity_token_file":      nonEmpty,
	"ssetype":                      oneOf("AES256", "aws:kms", "aws:kms:dsse"),
	"kmskeyid":                     nonEmpty,
	"request_checksum_calculation": oneOf("when_supported", "when_required"),
	"response_checksum_validation": oneOf("when_supported", "when_required"),
}

// Check says what is wrong with the URL of a bucket, without touching anything outside the process.
func Check(rawURL string) error {
	_, err := parse(rawURL)
	return err
}

// Durable tells whether what the bucket acknowledges outlives the process. It is false for a URL that Check refuses.
func Durable(rawURL string) bool {
	u, err := parse(rawURL)
	return err == nil && u.Scheme != "mem"
}

// Shared tells whether all nodes that open this URL see the same objects: object storage, and mem: as far as one
// process goes. A file: directory may be shared too, but its URL does not say so.
func Shared(rawURL string) bool {
	u, err := parse(rawURL)
	return err == nil && u.Scheme != "file"
}

func parse(rawURL string) (*url.URL, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		// The error of url.Parse repeats the whole text, which may hold a password.
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err
		}
		return nil, fmt.Errorf("the location cannot be read as a URL: %w", err)
	}
	switch {
	case u.User != nil:
		return nil, errors.New("a location must not hold credentials: S3 takes them from the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY), a profile or a role")
	case u.Fragment != "":
		return nil, errors.New("a location must not hold a fragment (#)")
	}
	switch u.Scheme {
	case "file":
		return u, checkFile(u)
	case "s3":
		return u, checkS3(u)
	case "mem":
		return u, checkMem(u)
	case "":
		return nil, fmt.Errorf("a location needs a scheme: file:///absolute/dir, s3://bucket/prefix or mem://name, not %q", rawURL)
	default:
		return nil, fmt.Errorf("unknown scheme %q: allowed are file, s3 and mem", u.Scheme)
	}
}

func checkFile(u *url.URL) error {
	switch {
	case u.Host != "":
		return fmt.Errorf("file: needs an absolute path behind three slashes: file:///%s%s", u.Host, u.Path)
	case u.Opaque != "" || !path.IsAbs(u.Path):
		return errors.New("file: needs an absolute path: file:///absolute/dir")
	case u.RawQuery != "":
		return fmt.Errorf("file: takes no settings, found ?%s", u.RawQuery)
	}
	return nil
}

func checkMem(u *url.URL) error {
	switch {
	case u.Host == "":
		return errors.New("mem: needs a name: mem://name")
	case u.RawQuery != "":
		return fmt.Errorf("mem: takes no settings, found ?%s", u.RawQuery)
	}
	return nil
}

func checkS3(u *url.URL) error {
	if u.Host == "" {
		return errors.New("s3: needs a bucket: s3://bucket/prefix")
	}
	if prefix := strings.Trim(u.Path, "/"); prefix != "" {
		if err := CheckKey(prefix); err != nil {
			return fmt.Errorf("the prefix of an s3: location: %w", err)
		}
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return errors.New("the settings behind ? cannot be read")
	}
	for _, k := range slices.Sorted(maps.Keys(q)) {
		if err := checkSetting(k, q[k]); err != nil {
			return err
		}
	}
	return nil
}

func checkSetting(k string, values []string) error {
	check, known := queryKeys[k]
	switch {
	case !known:
		return fmt.Errorf("unknown setting %q: allowed are %s", k, strings.Join(slices.Sorted(maps.Keys(queryKeys)), ", "))
	case len(values) != 1:
		return fmt.Errorf("setting %q is given %d times", k, len(values))
	}
	if err := check(values[0]); err != nil {
		return fmt.Errorf("setting %q: %w", k, err)
	}
	return nil
}

func nonEmpty(v string) error {
	if v == "" {
		return errors.New("is empty")
	}
	return nil
}

func boolean(v string) error {
	if _, err := strconv.ParseBool(v); err != nil {
		return fmt.Errorf("must be true or false, not %q", v)
	}
	return nil
}

func arn(v string) error {
	if !strings.HasPrefix(v, "arn:") {
		return errors.New("must be an ARN (arn:aws:iam::…)")
	}
	return nil
}

func endpoint(v string) error {
	u, err := url.Parse(v)
	switch {
	case err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https"):
		return errors.New("must be a URL of http or https with a host")
	case u.User != nil:
		return errors.New("must not hold credentials")
	case u.RawQuery != "":
		return errors.New("must not hold settings of its own; write & between the settings of the location")
	}
	return nil
}

func oneOf(allowed ...string) func(string) error {
	return func(v string) error {
		if !slices.Contains(allowed, v) {
			return fmt.Errorf("must be one of %s, not %q", strings.Join(allowed, ", "), v)
		}
		return nil
	}
}
