package lease

import (
	"sort"
	"time"
)

// Table is the replicated half: who holds which name, who waits for it, and how recent attempts ended. The zero value is ready. It
// reads no clock: time is the cluster's, handed in with each command, and a lease is held at all times before its end and at none
// from then on. It is not safe for concurrent use, except that Query and Next may run beside each other.
//
// Every command may be repeated, at any time, by anybody who is not sure that it was applied. What makes that safe is the request: a
// number that names one attempt to acquire. While an attempt waits or holds, asking again changes nothing but the time it may wait or
// hold on. Once it has ended, or was refused because another was first, it is over for good: a late copy of its command finds it among
// the past ones and does nothing. Of those that held the latest 16,384 are known, and as many of those that never did. A copy that
// comes even later takes a lease that nobody knows of, which ends after its time: work is delayed by it, but never done twice.
//
// Invariants:
//   - a name has at most one row with a token;
//   - tokens are given in strictly increasing order, for ever: the epoch in the upper 24 bits, a counter below. Whoever goes back to
//     an older state of the table raises the epoch before anything else;
//   - a lease that nobody gives up ends no earlier than its time after it was asked for or renewed the last time;
//   - waiters are served in the order of their places.
type Table struct {
	epoch  uint64
	count  uint64 // of tokens given in this epoch
	places uint64 // given so far
	rows   rows
	past   past
}

// tokenBits are the bits of a token below its epoch.
const tokenBits = 40

// token is the latest one given.
func (t *Table) token() uint64 { return t.epoch<<tokenBits | t.count }

// Apply carries out a command at the cluster's time now. It never fails: a command that makes no sense is answered with a code that
// says so.
func (t *Table) Apply(now time.Duration, cmd []byte) (reply []byte) {
	t.Expire(now)
	c, ok := parseCommand(cmd)
	if !ok {
		return []byte{codeWrong}
	}
	switch c.op {
	case opEpoch:
		return t.raise(c.epoch)
	case opAcquire:
		return t.acquire(now, c)
	case opRenew:
		return t.renew(now, c.tokens)
	case opRelease:
		return t.release(c)
	default:
		return t.withdraw(c)
	}
}

// raise begins a new epoch. The same once more changes nothing.
func (t *Table) raise(epoch uint64) []byte {
	switch {
	case epoch < t.epoch:
		return []byte{codeStale}
	case epoch > t.epoch:
		t.epoch, t.count = epoch, 0
	}
	return []byte{codeDone}
}

// acquire takes an attempt one step further: from unknown to holding or waiting, from waiting to holding, or on where it is.
func (t *Table) acquire(now time.Duration, c command) []byte {
	if t.past.knows(c.request) {
		return []byte{codeOver}
	}
	i, known := t.rows.byRequest[c.request]
	switch {
	case known && (t.rows.at(i).name != c.name || t.rows.at(i).ttl != c.ttl):
		return []byte{codeWrong}
	case known:
		return t.again(now, i)
	case t.epoch == 0:
		return []byte{codeNoEpoch}
	}
	return t.enter(now, c)
}

// again answers an attempt that waits or holds already.
func (t *Table) again(now time.Duration, i int32) []byte {
	r := t.rows.at(i)
	until := max(r.until, now+r.ttl)
	if r.token == 0 && t.rows.first(i) {
		return t.grant(i, until)
	}
	t.rows.extend(i, until)
	if r.token == 0 {
		return replyWaiting(t.rows.ahead(i))
	}
	return replyGranted(r.token)
}

// enter lets a new attempt in.
func (t *Table) enter(now time.Duration, c command) []byte {
	busy := t.rows.names[c.name]
	if busy != nil && !c.wait {
		t.past.note(ended{request: c.request})
		return t.taken(busy)
	}
	if t.rows.len() >= MaxRows {
		return []byte{codeFull}
	}
	t.places++
	i := t.rows.add(row{
		name: c.name, holder: c.holder, request: c.request, place: t.places, ttl: c.ttl, until: now + c.ttl,
	})
	if busy == nil {
		return t.grant(i, now+c.ttl)
	}
	return replyWaiting(t.rows.ahead(i))
}

// grant gives the next token to the first of a queue.
func (t *Table) grant(i int32, until time.Duration) []byte {
	if t.count == 1<<tokenBits-1 {
		t.rows.remove(i)
		return []byte{codeNoEpoch}
	}
	t.count++
	t.rows.hold(i, t.token(), until)
	return replyGranted(t.token())
}

// taken says who has what was asked for. Where the name is between two holders, it is the first of the queue's.
func (t *Table) taken(l *line) []byte {
	if l.holder < 0 {
		return replyTaken(0, t.rows.at(l.queue[0]).holder)
	}
	r := t.rows.at(l.holder)
	return replyTaken(r.token, r.holder)
}

// renew gives each lease that is still held under its token its time again, and says which are.
func (t *Table) renew(now time.Duration, tokens []uint64) []byte {
	out := make([]byte, 1, 1+len(tokens))
	out[0] = codeRenewed
	for _, token := range tokens {
		i, held := t.rows.byToken[token]
		if !held {
			out = append(out, 0)
			continue
		}
		r := t.rows.at(i)
		t.rows.extend(i, max(r.until, now+r.ttl))
		out = append(out, 1)
	}
	return out
}

// release ends the lease that is held under a token. Where it has ended already nothing happens; but work under it is accepted as
// done only from its holder.
func (t *Table) release(c command) []byte {
	if i, held := t.rows.byToken[c.token]; held && t.rows.at(i).name == c.name {
		t.end(i, c.done)
		return []byte{codeDone}
	}
	if done, known := t.past.ended(c.token); known && (done || !c.done) {
		return []byte{codeDone}
	}
	return []byte{codeStale}
}

// withdraw gives an attempt up, whatever has come of it, and also if nothing has yet.
func (t *Table) withdraw(c command) []byte {
	i, known := t.rows.byRequest[c.request]
	switch {
	case known && t.rows.at(i).name != c.name:
		return []byte{codeWrong}
	case known:
		t.end(i, false)
	default:
		t.past.note(ended{request: c.request})
	}
	return []byte{codeDone}
}

// end takes an attempt out, for good.
func (t *Table) end(i int32, done bool) {
	r := t.rows.at(i)
	t.past.note(ended{request: r.request, token: r.token, done: done})
	t.rows.remove(i)
}

// Expire ends the leases whose time is over at now, and drops the waiters that have not asked again within theirs. Such a waiter may
// come back; it has lost its place, and no more.
func (t *Table) Expire(now time.Duration) {
	for {
		i, until, ok := t.rows.soonest()
		if !ok || until > now {
			return
		}
		if t.rows.at(i).token == 0 {
			t.rows.remove(i)
		} else {
			t.end(i, false)
		}
	}
}

// Next is the earliest time at which a lease or a place in a queue ends.
func (t *Table) Next() (at time.Duration, ok bool) {
	_, at, ok = t.rows.soonest()
	return at, ok
}

// Incarnation is what the last Epoch said; 0 before the first.
func (t *Table) Incarnation() uint64 { return t.epoch }

// Len is how many leases are held.
func (t *Table) Len() int { return len(t.rows.byToken) }

// Observe says who holds a name.
func (t *Table) Observe(name string) Info {
	l := t.rows.names[name]
	if l == nil {
		return Info{}
	}
	out := Info{Waiting: len(l.queue)}
	if l.holder >= 0 {
		r := t.rows.at(l.holder)
		out.Held, out.Holder, out.Token = true, r.holder, r.token
	}
	return out
}

// turn says what an attempt would gain by asking again now.
func (t *Table) turn(request Request) byte {
	i, known := t.rows.byRequest[request]
	if known && t.rows.at(i).token == 0 && !t.rows.first(i) {
		return turnWait
	}
	return turnAsk
}

// line is what there is of one name. A line without a row does not exist.
type line struct {
	holder int32   // the row with the token; -1: none
	queue  []int32 // the rows that wait, by place
}

// find is where a place stands in the queue.
func (l *line) find(r *rows, place uint64) int {
	return sort.Search(len(l.queue), func(k int) bool { return r.at(l.queue[k]).place >= place })
}
