package store

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// tempPrefix begins the names of files that are not objects yet. No key may hold a part that begins so, and no listing
// shows one.
const tempPrefix = ".tmp-"

// maxKey is the longest key in bytes: what S3 allows.
const maxKey = 1024

// CheckKey says why a key is refused: it is empty or longer than 1,024 bytes, not UTF-8, holds a control character, is
// absolute, has an empty part, a part that is `.` or ends with `..` (it could leave the directory, or be rewritten by
// S3 gateways), or a part that begins with `.tmp-`.
func CheckKey(key string) error {
	switch {
	case key == "":
		return fmt.Errorf("the key is empty")
	case len(key) > maxKey:
		return fmt.Errorf("the key has %d bytes, more than %d", len(key), maxKey)
	case !utf8.ValidString(key):
		return fmt.Errorf("key %q is not UTF-8", key)
	case strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return fmt.Errorf("key %q holds a control character", key)
	}
	for part := range strings.SplitSeq(key, "/") {
		if why := checkPart(part); why != "" {
			return fmt.Errorf("key %q has a part that %s", key, why)
		}
	}
	return nil
}

func checkPart(part string) string {
	switch {
	case part == "":
		return "is empty"
	case part == ".":
		return "is a dot"
	case strings.HasSuffix(part, ".."):
		return "ends with two dots"
	case strings.HasPrefix(part, tempPrefix):
		return "begins with " + tempPrefix
	}
	return ""
}

// checkDirPrefix accepts what Dirs takes: nothing, or a key that ends with a slash.
func checkDirPrefix(prefix string) error {
	if prefix == "" {
		return nil
	}
	dir, ok := strings.CutSuffix(prefix, "/")
	if !ok {
		return fmt.Errorf("prefix %q does not end with a slash", prefix)
	}
	return CheckKey(dir)
}
