package recovery

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stream-arrow/twgd/pipeline/duplicates"
	"github.com/stream-arrow/twgd/record"
)

// The model: a few records of one content, two sinks, a claim in the replicated set that can expire, be evicted or be lost in a restore at any
// moment, screens that time out, sinks that refuse and reject, crashes anywhere, and recovery that asks what was noted and acts on it later.
// It is walked exhaustively. Nothing may be lost silently: of each content every sink has a record, or has a gap that recovery will
// fill, or audit finds why not. What recovery leaves out is decided by the program's own code.
const sinksInModel = 2

// Where a record is on the live way.
const (
	notThere uint8 = iota
	inRaw
	passes    // screened, or its screen timed out
	isTwin    // screened; not noted yet
	isNoted   // the note is durable
	noteAfter // dropped, and the note comes later: a variant that must fail
	offered   // or crashed, and left to recovery
)

// What a sink has of a record.
const (
	isGap uint8 = iota
	isThere
	isCovered  // without its row
	isRejected // and the trail names it
)

type worker struct {
	on   int8 // the record, -1 where it is idle
	does uint8
}

const (
	writes uint8 = iota
	leavesOut
	screens // a variant that must fail
)

// lot is one state. Records that are not in the model stay notThere.
type lot struct {
	live   [3]uint8
	stands [3]int8 // by the verdict
	noted  [3]uint8
	has    [sinksInModel][3]uint8
	work   [sinksInModel]worker
	holder int8

	crashes, evictions, rejects, refusals int8
}

// variant is a program that does something else than this one.
type variant struct{ noteLast, rescreen, lead bool }

type model struct {
	records int
	variant
	push func(lot)
}

func tail(r int) (t [8]byte) { t[7] = byte(r + 1); return t }

func idOf(r int) (id record.ID) { t := tail(r); copy(id[8:], t[:]); return id }

// named is what the notes say of a record.
func (s *lot) named(r int) (out []duplicates.Dropped) {
	for by := range s.live {
		if s.noted[r]>>by&1 == 1 {
			out = append(out, duplicates.Dropped{Offset: int64(r), ID: idOf(r), Stands: tail(by)})
		}
	}
	return out
}

// leave is what recovery of sink k decides of a record.
func (s *lot) leave(k, r int) bool {
	misses := func(t [8]byte) bool { return s.has[k][t[7]-1] == isRejected }
	return leaves(s.named(r), misses)(int64(r), idOf(r))
}

// next pushes every state that can follow.
func (m *model) next(s lot) {
	if s.evictions > 0 && s.holder >= 0 {
		n := s
		n.holder, n.evictions = -1, s.evictions-1
		m.push(n)
	}
	for r := range m.records {
		m.liveStep(s, r)
	}
	for k := range sinksInModel {
		m.recover(s, k)
	}
}

func (m *model) liveStep(s lot, r int) {
	n := s
	switch s.live[r] {
	case notThere:
		if r > 0 && s.live[r-1] == notThere { // any order is like this one
			return
		}
		n.live[r] = inRaw
		m.push(n)
		return
	case inRaw:
		m.screen(s, r)
	case passes:
		m.offer(s, r, 0)
	case isTwin:
		n.live[r], n.noted[r] = isNoted, s.noted[r]|1<<s.stands[r]
		m.push(n)
		n.live[r] = passes // the outcome is not known
		m.push(n)
		n = s
		n.live[r] = passes // the note failed
		m.push(n)
		if m.noteLast {
			n.live[r] = noteAfter
			n.cover(r)
			m.push(n)
		}
	case noteAfter:
		n.live[r], n.noted[r] = offered, s.noted[r]|1<<s.stands[r]
		m.push(n)
	case isNoted:
		n.live[r] = offered
		n.cover(r)
		m.push(n)
	}
	if s.crashes > 0 && s.live[r] != offered {
		n := s
		n.live[r], n.crashes = offered, s.crashes-1
		m.push(n)
	}
}

// cover lets the lanes pass a record without it. A lane that another has filled meanwhile stays filled.
func (s *lot) cover(r int) {
	for k := range s.has {
		if s.has[k][r] == isGap {
			s.has[k][r] = isCovered
		}
	}
}

func (m *model) screen(s lot, r int) {
	n := s
	if s.holder < 0 || s.holder == int8(r) {
		n.holder, n.live[r] = int8(r), passes
	} else {
		n.live[r], n.stands[r] = isTwin, s.holder
	}
	m.push(n)
	if s.refusals > 0 { // the answer is lost, whether or not the claim has landed
		n.live[r], n.stands[r], n.refusals = passes, 0, s.refusals-1
		m.push(n)
		n.holder = s.holder
		m.push(n)
	}
}

// offer lets each sink from k on take a record, refuse it, or reject it for good.
func (m *model) offer(s lot, r, k int) {
	if k == sinksInModel {
		s.live[r] = offered
		m.push(s)
		return
	}
	n := s
	n.has[k][r] = isThere
	m.offer(n, r, k+1)
	if s.refusals > 0 {
		n := s
		n.refusals--
		if m.lead && n.has[k][r] == isGap { // coverage passes what was refused
			n.has[k][r] = isCovered
		}
		m.offer(n, r, k+1)
	}
	if s.rejects > 0 && s.has[k][r] != isThere {
		n := s
		n.rejects--
		n.has[k][r] = isRejected
		m.offer(n, r, k+1)
	}
}

func (m *model) recover(s lot, k int) {
	n, w := s, s.work[k]
	if w.on < 0 {
		for r := range m.records {
			if s.live[r] == notThere || s.has[k][r] != isGap {
				continue
			}
			n.work[k] = worker{on: int8(r), does: writes}
			switch {
			case s.leave(k, r):
				n.work[k].does = leavesOut
			case m.rescreen:
				n.work[k].does = screens
			}
			m.push(n)
		}
		return
	}
	r := int(w.on)
	n.work[k] = worker{on: -1}
	switch w.does {
	case leavesOut:
		if s.has[k][r] == isGap {
			n.has[k][r] = isCovered
		}
		m.push(n)
	case writes:
		n.has[k][r] = isThere
		m.push(n)
		if s.rejects > 0 && s.has[k][r] == isGap {
			n.has[k][r], n.rejects = isRejected, s.rejects-1
			m.push(n)
		}
	case screens:
		n.work[k] = worker{on: w.on, does: writes}
		if s.holder < 0 || s.holder == w.on {
			n.holder = w.on
		} else {
			n.work[k].does = leavesOut
			n.noted[r] |= 1 << s.holder
		}
		m.push(n)
	}
}

// lost says which sink lacks the content without anybody's noticing, once nothing is under way.
func (m *model) lost(s *lot) string {
	for r := range m.records {
		if s.live[r] != offered {
			return ""
		}
	}
	for k := range sinksInModel {
		has := s.has[k][:m.records]
		if s.work[k].on >= 0 || slices.Contains(has, isThere) || slices.Contains(has, isGap) {
			continue
		}
		if !slices.Contains(has, isCovered) { // all are rejected, and the trail has each
			continue
		}
		if found, remedied := m.audit(s, k); !found {
			return fmt.Sprintf("sink %d lost the content: %v", k, has)
		} else if !remedied {
			return fmt.Sprintf("audit finds the loss of sink %d, and a forced recovery would not mend it", k)
		}
	}
	return ""
}

// audit reports whether a twin is found whose standing record is rejected, and whether a forced recovery writes it.
func (m *model) audit(s *lot, k int) (found, remedied bool) {
	for r := range m.records {
		for by := range m.records {
			if s.has[k][r] == isCovered && s.noted[r]>>by&1 == 1 && s.has[k][by] == isRejected {
				return true, !s.leave(k, r)
			}
		}
	}
	return false, false
}

// walk looks at every state that can be reached from s, and returns the first loss.
func walk(records int, v variant, s lot, most int) (loss string, states int) {
	for k := range s.work {
		s.work[k].on = -1
	}
	s.holder = -1
	seen, queue := map[lot]struct{}{s: {}}, []lot{s}
	m := &model{records: records, variant: v}
	m.push = func(n lot) {
		if _, known := seen[n]; !known {
			seen[n] = struct{}{}
			queue = append(queue, n)
		}
	}
	for len(queue) > 0 && len(seen) < most {
		n := queue[0]
		queue = queue[1:]
		if loss := m.lost(&n); loss != "" {
			return loss, len(seen)
		}
		m.next(n)
	}
	if len(queue) > 0 {
		return "not all was looked at", len(seen)
	}
	return "", len(seen)
}

const mostStates = 4_000_000

func TestModelLosesNothing(t *testing.T) {
	f := func(records int, s lot) {
		t.Helper()
		loss, states := walk(records, variant{}, s, mostStates)
		t.Logf("%d records: %d states", records, states)
		if loss != "" {
			t.Error(loss)
		}
	}
	f(2, lot{crashes: 1, evictions: 2, rejects: 2, refusals: 2})
	if racing { // ten times as slow, and there is nothing to race
		return
	}
	f(3, lot{crashes: 1, evictions: 1})
	f(3, lot{evictions: 1, rejects: 1})
	f(3, lot{crashes: 1, rejects: 1})
}

// The model can find what it looks for: three programs that differ in one step lose content.
func TestModelFindsTheOtherPrograms(t *testing.T) {
	f := func(v variant, s lot, want string) {
		t.Helper()
		if loss, states := walk(2, v, s, mostStates); !strings.Contains(loss, want) {
			t.Errorf("%+v: %q after %d states", v, loss, states)
		}
	}
	f(variant{noteLast: true}, lot{crashes: 1, rejects: 1}, "lost the content")
	f(variant{rescreen: true}, lot{evictions: 2, refusals: 2}, "lost the content")
	f(variant{lead: true}, lot{refusals: 2, evictions: 1}, "lost the content")
}
