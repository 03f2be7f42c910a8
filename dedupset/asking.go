package dedupset

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

var errNoTurn = errors.New("other commands took all the time")

// claim sends the parts beside each other. The first that fails ends the others: what is known of a part only is of no use.
func (f *Filter) claim(ctx context.Context, key *[32]byte, parts [][][24]byte) ([]Held, *Unavailable) {
	if len(parts) == 1 {
		return f.send(ctx, key, parts[0])
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make([][]Held, len(parts))
	var first struct {
		sync.Once
		un *Unavailable
	}
	var all sync.WaitGroup
	for i, part := range parts {
		all.Go(func() {
			held, un := f.send(ctx, key, part)
			if un != nil {
				first.Do(func() { first.un = un })
				cancel()
			}
			answers[i] = held
		})
	}
	all.Wait()
	if first.un != nil {
		return nil, first.un
	}
	return join(parts, answers), nil
}

// join puts the answers of parts behind each other.
func join(parts [][][24]byte, answers [][]Held) (out []Held) {
	before := 0
	for i, held := range answers {
		for _, h := range held {
			out = append(out, Held{Row: before + h.Row, By: h.By})
		}
		before += len(parts[i])
	}
	return out
}

// send claims one part, once it is its turn. A set that is not declared, or under another key, is declared and asked once more.
func (f *Filter) send(ctx context.Context, key *[32]byte, rows [][24]byte) ([]Held, *Unavailable) {
	select {
	case f.slots <- struct{}{}:
		defer func() { <-f.slots }()
	case <-ctx.Done():
		return nil, &Unavailable{Reason: ReasonTimeout, Err: errNoTurn, silent: true}
	}
	check := checkOf(key)
	cmd, err := Claim(f.o.Stream, check, rows)
	if err != nil {
		return nil, &Unavailable{Reason: ReasonRefused, Err: err}
	}
	for again := false; ; again = true {
		round, un := f.declare(ctx, key, check)
		if un != nil {
			return nil, un
		}
		held, code, un := f.ask(ctx, cmd, len(rows))
		switch {
		case un != nil:
			return nil, un
		case code == OK:
			return held, nil
		case code != Undeclared || again:
			return nil, &Unavailable{Reason: ReasonRefused, Err: fmt.Errorf("the set answers %v", code)}
		}
		f.undeclared(round)
	}
}

// ask proposes a claim.
func (f *Filter) ask(ctx context.Context, cmd []byte, rows int) ([]Held, Code, *Unavailable) {
	reply, un := f.propose(ctx, cmd)
	if un != nil {
		return nil, 0, un
	}
	held, code, err := ParseReply(reply, rows)
	if err != nil {
		return nil, 0, &Unavailable{Reason: ReasonRefused, Err: err}
	}
	return held, code, nil
}

// propose proposes a command. A turn that came late in the call says nothing of the quorum where it does not suffice.
func (f *Filter) propose(ctx context.Context, cmd []byte) ([]byte, *Unavailable) {
	had := f.left(ctx)
	reply, err := f.o.Proposer.Propose(ctx, cmd)
	if err != nil {
		un := unavailable(ctx, err)
		un.silent = un.Reason == ReasonTimeout && had < f.o.Timeout/2
		return nil, un
	}
	return reply, nil
}

func (f *Filter) left(ctx context.Context) time.Duration {
	end, _ := ctx.Deadline()
	return time.Until(end)
}

// unavailable gives an error of the way to the leader its reason.
func unavailable(ctx context.Context, err error) *Unavailable {
	switch {
	case errors.Is(err, ErrNoLeader):
		return &Unavailable{Reason: ReasonNoLeader, Err: err}
	case ctx.Err() != nil:
		return &Unavailable{Reason: ReasonTimeout, Err: err}
	}
	return &Unavailable{Reason: ReasonRefused, Err: err}
}

// declare makes sure that this process has declared the set under the key, and returns which declaration that is. The key is asked for anew
// before: who was away may come back with that of another founding, and must not take the set from those who are right.
func (f *Filter) declare(ctx context.Context, key *[32]byte, check [8]byte) (round uint64, un *Unavailable) {
	if round, ok := f.isDeclared(check); ok {
		return round, nil
	}
	select {
	case f.declaring <- struct{}{}:
		defer func() { <-f.declaring }()
	case <-ctx.Done():
		return 0, &Unavailable{Reason: ReasonTimeout, Err: errNoTurn, silent: true}
	}
	if round, ok := f.isDeclared(check); ok {
		return round, nil
	}
	now, un := f.fetch(ctx)
	if un != nil {
		return 0, un
	}
	if now != *key {
		return 0, &Unavailable{Reason: ReasonKey, Err: errors.New("the cluster has another key than the one these contents were hashed with"), silent: true}
	}
	return f.proposeSet(ctx, check)
}

func (f *Filter) isDeclared(check [8]byte) (round uint64, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.round, f.mu.declared != nil && *f.mu.declared == check
}

// undeclared takes in that the set was not there, after the declaration of that round.
func (f *Filter) undeclared(round uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.round == round {
		f.mu.declared = nil
	}
}

// fetch asks for the key and keeps it.
func (f *Filter) fetch(ctx context.Context) ([32]byte, *Unavailable) {
	key, err := f.o.Key(ctx)
	if err != nil {
		return key, &Unavailable{Reason: ReasonKey, Err: err}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.key = &key
	return key, nil
}

// proposeSet declares the set.
func (f *Filter) proposeSet(ctx context.Context, check [8]byte) (round uint64, un *Unavailable) {
	reply, un := f.propose(ctx, Declare(f.o.Stream, check, f.o.Window, f.o.Entries))
	if un != nil {
		return 0, un
	}
	now, before, code, err := ParseDeclared(reply)
	if err == nil && code != OK {
		err = fmt.Errorf("the set of %s cannot be declared: %v", f.o.Stream, code)
	}
	if err != nil {
		return 0, &Unavailable{Reason: ReasonRefused, Err: err}
	}
	f.compare(now, before)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.declared = &check
	f.mu.round++
	return f.mu.round, nil
}

// compare says once that another node had declared the set otherwise. The last one to declare it decides.
func (f *Filter) compare(now, before Terms) {
	f.mu.Lock()
	say := !f.mu.warned && before != (Terms{}) && before != now
	f.mu.warned = f.mu.warned || say
	f.mu.Unlock()
	if say {
		f.o.Log.Info("how long and how many contents are remembered has changed; where nodes differ in it the last one to start decides",
			"window", now.Window, "max_entries", now.Entries, "window_before", before.Window, "max_entries_before", before.Entries)
	}
}
