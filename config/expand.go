package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// expander replaces ${NAME}, ${NAME:-default} and ${file:/path} in the text of one scalar. It works on text that YAML has
// already been read from, so that what it puts in can never become a key, a list or a second value. $${ stands for ${.
type expander struct {
	env  func(string) (string, bool)
	read func(path string) ([]byte, error)
}

var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// expand is the text with all references replaced, and whether a part of it came from a file: files are where secrets are.
func (e expander) expand(s string) (out string, secret bool, err error) {
	var b strings.Builder
	for {
		at := strings.Index(s, "${")
		if at < 0 {
			return b.String() + s, secret, nil
		}
		if at > 0 && s[at-1] == '$' {
			b.WriteString(s[:at-1] + "${")
			s = s[at+2:]
			continue
		}
		inner, rest, closed := strings.Cut(s[at+2:], "}")
		if !closed {
			return "", secret, errors.New("${ is not closed by }; a literal ${ is written $${")
		}
		value, file, err := e.lookup(inner)
		if err != nil {
			return "", secret || file, err
		}
		b.WriteString(s[:at] + value)
		s, secret = rest, secret || file
	}
}

func (e expander) lookup(inner string) (value string, file bool, err error) {
	if path, ok := strings.CutPrefix(inner, "file:"); ok {
		value, err = e.content(path)
		return value, true, err
	}
	name, fallback, has := strings.Cut(inner, ":-")
	if !variable.MatchString(name) {
		return "", false, errors.New("between ${ and } stands NAME, NAME:-default or file:/path; a literal ${ is written $${")
	}
	value, ok := e.env(name)
	switch {
	case has && value == "":
		return fallback, false, nil
	case !ok:
		return "", false, fmt.Errorf("the environment has no %s; ${%s:-...} gives a default", name, name)
	}
	return value, false, nil
}

func (e expander) content(path string) (string, error) {
	if !filepath.IsAbs(path) {
		return "", errors.New("the path behind file: is not absolute")
	}
	data, err := e.read(path)
	if err != nil {
		return "", fmt.Errorf("the file cannot be read: %w", err)
	}
	if line, ok := strings.CutSuffix(string(data), "\n"); ok {
		return strings.TrimSuffix(line, "\r"), nil
	}
	return string(data), nil
}

// largest is what a file that is put into a scalar may hold.
const largest = 1 << 20

// readFile reads a regular file: a device or a pipe could keep the start waiting for ever.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file", path)
	case info.Size() > largest:
		return nil, fmt.Errorf("%s is larger than 1MiB", path)
	}
	return os.ReadFile(path)
}

// literal writes a text so that expand gives it back.
func literal(s string) string { return strings.ReplaceAll(s, "${", "$${") }
