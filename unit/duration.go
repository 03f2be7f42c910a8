package unit

import (
	"errors"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Duration is a span of time, written 250ms, 5m, 1h30m or 30d. It is never negative. As with sizes, only 0 needs no unit.
type Duration time.Duration

// A day is 24 hours: durations measure time that passes, not a calendar.
const day = 24 * time.Hour

var durations = []struct {
	name string
	unit time.Duration
}{
	{"d", day}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second},
	{"ms", time.Millisecond}, {"us", time.Microsecond}, {"ns", 1},
}

const (
	durationPart    = `([0-9]{1,19}(?:\.[0-9]{1,9})?)(ns|us|ms|s|m|h|d)`
	durationPattern = `^(([0-9]{1,19}(\.[0-9]{1,9})?(ns|us|ms|s|m|h|d))+|0)$`
)

var (
	durationText  = regexp.MustCompile(durationPattern)
	durationParts = regexp.MustCompile(durationPart)
)

// ParseDuration reads a duration.
func ParseDuration(s string) (Duration, error) {
	if s == "0" {
		return 0, nil
	}
	if !durationText.MatchString(s) {
		return 0, refusal(s, "not a duration")
	}
	var sum time.Duration
	for _, m := range durationParts.FindAllStringSubmatch(s, -1) {
		n, ok := times(m[1], int64(durationOf(m[2])))
		if sum += time.Duration(n); !ok || sum < 0 {
			return 0, errors.New("a duration is a whole number of nanoseconds below 292 years")
		}
	}
	return Duration(sum), nil
}

func durationOf(name string) time.Duration {
	for _, u := range durations {
		if u.name == name {
			return u.unit
		}
	}
	return 0
}

// UnmarshalText reads a duration.
func (d *Duration) UnmarshalText(text []byte) (err error) {
	*d, err = ParseDuration(string(text))
	return err
}

// String writes the duration in whole units, as in 1d12h.
func (d Duration) String() string {
	var b strings.Builder
	rest := time.Duration(d)
	for _, u := range durations {
		if n := rest / u.unit; n > 0 {
			b.WriteString(strconv.FormatInt(int64(n), 10) + u.name)
			rest %= u.unit
		}
	}
	if b.Len() == 0 {
		return "0s"
	}
	return b.String()
}

// Form says what a duration looks like.
func (Duration) Form() string { return "a duration such as 250ms, 5m or 30d" }

// Pattern is what a duration matches.
func (Duration) Pattern() string { return durationPattern }
