package main

import (
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
)

// limitMemory sets the garbage collector's limit to nine tenths of what the cgroup allows, less what is kept outside of the collector's
// heap, unless GOMEMLIMIT says otherwise. It returns the limit, 0 where there is none.
func limitMemory(lookup func(string) (string, bool), root string, outside int64) int64 {
	if _, set := lookup("GOMEMLIMIT"); set {
		return debug.SetMemoryLimit(-1)
	}
	limit := cgroupLimit(root)
	if limit <= 0 {
		return 0
	}
	limit = max(limit-outside, limit/4) / 10 * 9 // a quarter of too little is better than a collector that never rests
	debug.SetMemoryLimit(limit)
	return limit
}

// cgroupLimit is the memory in bytes that the process's cgroup, or one above it, allows; 0 where none does. root is the file
// system's root.
func cgroupLimit(root string) int64 {
	groups, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return 0
	}
	least := int64(math.MaxInt64)
	for line := range strings.Lines(string(groups)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		switch {
		case parts[0] == "0" && parts[1] == "":
			least = min(least, lowest(filepath.Join(root, "sys/fs/cgroup"), parts[2], "memory.max"))
		case strings.Contains(","+parts[1]+",", ",memory,"):
			least = min(least, lowest(filepath.Join(root, "sys/fs/cgroup/memory"), parts[2], "memory.limit_in_bytes"))
		}
	}
	if least >= math.MaxInt64/2 { // version 1 writes an absurdly large number where there is no limit
		return 0
	}
	return least
}

// lowest is the least limit from a group up to the mount.
func lowest(mount, group, file string) int64 {
	least := int64(math.MaxInt64)
	for dir := filepath.Clean("/" + group); ; dir = filepath.Dir(dir) {
		if b, err := os.ReadFile(filepath.Join(mount, dir, file)); err == nil {
			if n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil && n > 0 {
				least = min(least, n)
			}
		}
		if dir == "/" {
			return least
		}
	}
}
