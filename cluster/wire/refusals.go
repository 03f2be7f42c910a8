package wire

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"
)

// refusals tells of peers that were refused, and forgets nothing but repetition: a peer dials again every second or so, and is told of
// once a minute.
type refusals struct {
	tell func(Refusal) // may be nil
	log  *slog.Logger

	mu   sync.Mutex
	last map[string]time.Time // by who and why
}

const (
	tellAgain = time.Minute
	tellMost  = 512 // different refusals that are kept in mind
)

// refused notes a refusal. Only one that has a type is worth an operator's attention; the rest is somebody who does not speak our language.
func (p *Port) refused(r Refusal) {
	if !typed(r.Reason) {
		p.o.Log.Debug("a connection of the cluster's port failed", "peer", r.Address, "inbound", r.Inbound, "error", r.Reason)
		return
	}
	if p.told.news(r, time.Now()) {
		p.o.Log.Warn("a peer was refused", "peer", r.Address, "inbound", r.Inbound, "reason", r.Reason)
		if p.told.tell != nil {
			p.told.tell(r)
		}
	}
}

// news reports whether a refusal has not been told of in the last minute.
func (t *refusals) news(r Refusal, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, at := range t.last {
		if now.Sub(at) >= tellAgain {
			delete(t.last, key)
		}
	}
	key := r.key()
	if _, told := t.last[key]; told || len(t.last) >= tellMost {
		return false
	}
	if t.last == nil {
		t.last = map[string]time.Time{}
	}
	t.last[key] = now
	return true
}

// key tells refusals apart by who and why, without the port that a peer dials from, which is another each time.
func (r Refusal) key() string {
	who, why := r.Address, r.Reason
	if host, _, err := net.SplitHostPort(r.Address); err == nil && r.Inbound {
		who = host
	}
	var foreign ErrForeignCluster
	var foundings ErrFoundings
	var server ErrWrongServer
	switch {
	case errors.As(why, &foreign):
		return fmt.Sprintf("%s cluster %q", who, foreign.Name)
	case errors.As(why, &foundings):
		return fmt.Sprintf("%s founding %s", who, foundings.Theirs)
	case errors.As(why, &server):
		return fmt.Sprintf("%s server %q", who, server.Wanted)
	}
	return who + " secret"
}
