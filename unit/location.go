package unit

import (
	"errors"
	"net/url"
	"path"
	"strings"
)

// Location is a directory or a prefix of a bucket, as a URL: file:///absolute/dir, s3://bucket/prefix?region=…&endpoint=…&
// use_path_style=true, or mem://name, which forgets everything when the process ends. It never holds credentials: those come
// from the environment or the machine's role, so that a location may be printed.
type Location string

// ParseLocation reads a location. Its errors repeat nothing of s.
func ParseLocation(s string) (Location, error) {
	u, err := url.Parse(s)
	if err != nil {
		return "", errors.New("not a URL")
	}
	if u.User != nil || u.Fragment != "" || u.Opaque != "" {
		return "", errors.New("a location has no credentials and no fragment; credentials come from the environment")
	}
	switch u.Scheme {
	case "file":
		return Location(s), checkFile(u)
	case "s3":
		return Location(s), checkS3(u)
	case "mem":
		return Location(s), checkMem(u)
	}
	if u.Scheme == "" {
		return "", errors.New("the scheme is missing, which says what kind of place this is")
	}
	return "", errors.New("the scheme is not known")
}

func checkFile(u *url.URL) error {
	switch {
	case u.Host != "" || !path.IsAbs(u.Path):
		return errors.New("the directory is not absolute: file: is followed by three slashes")
	case path.Clean(u.Path) == "/":
		return errors.New("the root directory cannot be used")
	case u.RawQuery != "":
		return errors.New("file: takes no parameters")
	}
	return nil
}

func checkMem(u *url.URL) error {
	if u.Host == "" || u.RawQuery != "" {
		return errors.New("mem: is followed by two slashes and a name")
	}
	return nil
}

func checkS3(u *url.URL) error {
	if u.Host == "" {
		return errors.New("the bucket is missing")
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return errors.New("the parameters cannot be read")
	}
	return checkEndpoint(q)
}

func checkEndpoint(q url.Values) error {
	if !q.Has("endpoint") {
		return nil
	}
	e, err := url.Parse(q.Get("endpoint"))
	if err != nil || (e.Scheme != "http" && e.Scheme != "https") || e.Host == "" {
		return errors.New("the endpoint is not a URL that begins with http:// or https://")
	}
	if e.User != nil || e.RawQuery != "" {
		return errors.New("the endpoint has no credentials and no parameters; credentials come from the environment")
	}
	return nil
}

// Directory is the location of a directory, given by its absolute path.
func Directory(dir string) Location {
	return Location((&url.URL{Scheme: "file", Path: dir}).String())
}

// UnmarshalText reads a location.
func (l *Location) UnmarshalText(text []byte) (err error) {
	*l, err = ParseLocation(string(text))
	return err
}

func (l Location) String() string { return string(l) }

// Scheme is file, s3 or mem.
func (l Location) Scheme() string {
	scheme, _, _ := strings.Cut(string(l), ":")
	return scheme
}

// Durable reports whether what is stored there outlives the process.
func (l Location) Durable() bool { return l.Scheme() != "mem" }

// Below is the location of a name within l.
func (l Location) Below(name string) Location {
	u, err := url.Parse(string(l))
	if err != nil {
		return l
	}
	return Location(u.JoinPath(name).String())
}

// Place names what the location points at, however it is spelled: two locations with one place share their objects. Only what
// decides where that is takes part: scheme, endpoint, bucket, path.
func (l Location) Place() string {
	u, err := url.Parse(string(l))
	if err != nil {
		return string(l)
	}
	endpoint := strings.TrimSuffix(u.Query().Get("endpoint"), "/")
	return u.Scheme + "://" + u.Host + path.Clean("/"+u.Path) + strings.TrimSuffix("?"+endpoint, "?")
}

// Form says what a location looks like.
func (Location) Form() string { return "file:///absolute/dir or s3://bucket/prefix" }

// Pattern is what a location matches.
func (Location) Pattern() string { return `^(file:///|s3://|mem://)` }
