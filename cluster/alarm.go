package cluster

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// sayAgain is how often what goes on is said again in the log.
const sayAgain = time.Minute

// alarms are what needs an operator, by a key. Each is logged when it is raised and then each minute, and stands in the status until it is
// cleared. Safe for concurrent use.
type alarms struct {
	log *slog.Logger
	mu  struct {
		sync.Mutex
		open map[string]*alarm
	}
}

type alarm struct {
	text string
	said time.Time
}

func newAlarms(log *slog.Logger) *alarms {
	a := &alarms{log: log}
	a.mu.open = map[string]*alarm{}
	return a
}

func (a *alarms) raise(key, text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if o := a.mu.open[key]; o != nil && o.text == text && now.Sub(o.said) < sayAgain {
		return
	}
	a.mu.open[key] = &alarm{text: text, said: now}
	a.log.Error(text)
}

func (a *alarms) clear(key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.mu.open, key)
}

func (a *alarms) raised(key string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mu.open[key] != nil
}

// keep clears all alarms whose key begins with prefix, except these keys.
func (a *alarms) keep(prefix string, keys ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for k := range a.mu.open {
		if strings.HasPrefix(k, prefix) && !slices.Contains(keys, k) {
			delete(a.mu.open, k)
		}
	}
}

// texts returns what is open, in a steady order.
func (a *alarms) texts() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []string
	for _, k := range slices.Sorted(maps.Keys(a.mu.open)) {
		out = append(out, a.mu.open[k].text)
	}
	return out
}

// repeater logs a text when it has stood for a second, and then each minute, for what is waited for. It has one owner.
type repeater struct {
	log   *slog.Logger
	text  string
	since time.Time // when the text became what it is
	said  time.Time // zero: not yet
}

const standsFor = time.Second

func (r *repeater) say(text string) {
	now := time.Now()
	if text != r.text {
		r.text, r.since, r.said = text, now, time.Time{}
	}
	if text == "" || now.Sub(r.since) < standsFor || !r.said.IsZero() && now.Sub(r.said) < sayAgain {
		return
	}
	r.said = now
	r.log.Info(text)
}
