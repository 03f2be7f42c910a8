package backup

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// Names below the cluster's folder. The numbers in a backup's name have twenty digits, so that the order of names is the order of
// backups: first by incarnation, then by index.
const (
	suffix       = ".twgb"
	claimPrefix  = "incarnation-"
	uploadPrefix = "_upload-"
	noteName     = "voters"
	timeLayout   = "20060102T150405Z"
)

func (p *Place) key(name string) string { return p.cluster + "/" + name }

// backupName names a backup.
func backupName(m Meta) string {
	return fmt.Sprintf("%020d-%020d-%s%s", m.Incarnation, m.Index, m.Time.UTC().Format(timeLayout), suffix)
}

// parseName reads a backup's name; ok is false for every other name, also for one that only looks alike.
func parseName(name string) (m Meta, ok bool) {
	parts := strings.SplitN(strings.TrimSuffix(name, suffix), "-", 3)
	if len(parts) != 3 {
		return m, false
	}
	var err [3]error
	m.Incarnation, err[0] = strconv.ParseUint(parts[0], 10, 64)
	m.Index, err[1] = strconv.ParseUint(parts[1], 10, 64)
	m.Time, err[2] = time.Parse(timeLayout, parts[2])
	return m, err == [3]error{} && backupName(m) == name
}

// uploadName is a name under which no backup is looked for.
func uploadName() string { return fmt.Sprintf("%s%016x", uploadPrefix, rand.Uint64()) }

func claimName(incarnation uint64) string { return claimPrefix + strconv.FormatUint(incarnation, 10) }

func parseClaim(name string) (incarnation uint64, ok bool) {
	digits, ok := strings.CutPrefix(name, claimPrefix)
	n, err := strconv.ParseUint(digits, 10, 64)
	return n, ok && err == nil && n > 0 && claimName(n) == name
}
