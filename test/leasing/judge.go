package leasing

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// Judge says what is wrong with a history; nil where nothing is.
func Judge(ops []Op) error {
	return errors.Join(judgeTokens(ops), judgeEnds(ops), judgeOrder(ops))
}

// judgeTokens: of two grants of a name, the one that began after the other had ended has the greater token; no token is given twice.
func judgeTokens(ops []Op) error {
	grants := slices.DeleteFunc(slices.Clone(ops), func(o Op) bool { return o.Kind != Acquire || o.Token == 0 })
	slices.SortStableFunc(grants, func(a, b Op) int { return int(min(max(a.Return-b.Return, -1), 1)) })
	var errs []error
	for i, b := range grants {
		for _, a := range grants[:i] {
			if a.Name == b.Name && (a.Token == b.Token || a.Return < b.Call && a.Token > b.Token) {
				errs = append(errs, fmt.Errorf("tokens of %s do not grow: tenant %d was granted %x at %v, then tenant %d %x at %v",
					a.Name, a.Tenant, a.Token, a.Return, b.Tenant, b.Token, b.Return))
			}
		}
	}
	return errors.Join(errs...)
}

// judgeEnds: a lease that nobody gave up is counted on for at least its time, but for the holder's margin.
func judgeEnds(ops []Op) error {
	var errs []error
	for _, o := range ops {
		margin := o.TTL / 4
		if o.Kind == Acquire && o.Token != 0 && !o.Gave && o.Until < o.sure()-margin {
			errs = append(errs, fmt.Errorf("%s, held by tenant %d under %x from %v on, ended at %v: before its %v were over", o.Name, o.Tenant, o.Token, o.Return, o.Until, o.TTL))
		}
	}
	return errors.Join(errs...)
}

// judgeOrder: the operations on each name can be put into one order that a single lease would allow.
func judgeOrder(ops []Op) error {
	ops = markHidden(ops)
	history := make([]porcupine.Operation, len(ops))
	for i, o := range ops {
		history[i] = porcupine.Operation{ClientId: o.Tenant, Input: o, Output: o, Call: int64(o.Call), Return: int64(o.Return)}
	}
	model := leaseModel.ToModel()
	switch result, info := porcupine.CheckOperationsVerbose(model, history, time.Minute); result {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		return fmt.Errorf("no order of %d operations was found within a minute, and not all were tried", len(ops))
	default:
		return fmt.Errorf("what was said of the leases fits no order; the longest part of it that does leaves out: %v", missing(info, ops))
	}
}

// markHidden marks what was seen of leases that nobody was told of: one that was granted so late that its time was over is asked for
// again before the caller hears of it.
func markHidden(ops []Op) []Op {
	told := map[uint64]bool{}
	for _, o := range ops {
		told[o.Token] = told[o.Token] || o.Kind == Acquire
	}
	ops = slices.Clone(ops)
	for i := range ops {
		ops[i].hidden = ops[i].Kind == Observe && !told[ops[i].Token]
	}
	return ops
}

// missing names a few of the operations that the longest orders found leave out.
func missing(info porcupine.LinearizationInfo, ops []Op) (out []string) {
	placed := map[Op]bool{}
	for _, name := range info.PartialLinearizationsOperations() {
		longest := slices.MaxFunc(append(name, nil), func(a, b []porcupine.Operation) int { return len(a) - len(b) })
		for _, o := range longest {
			placed[o.Input.(Op)] = true
		}
	}
	for _, o := range ops {
		if !placed[o] && len(out) < 5 {
			out = append(out, o.String())
		}
	}
	return out
}

func (o Op) String() string {
	return fmt.Sprintf("[%v–%v tenant %d: %v %s %x stale=%v until=%v]", o.Call, o.Return, o.Tenant, o.Kind, o.Name, o.Token, o.Stale, o.Until)
}

// lease is the one lease of a name.
type lease struct {
	token uint64        // 0: nobody's
	some  bool          // somebody has it whom nobody told: an acquire without an answer took it
	until time.Duration // it cannot end by itself before
	last  uint64        // the greatest token seen
}

// ended reports whether the lease may have ended by itself when o took effect.
func (l lease) ended(o Op) bool { return l.token == 0 || o.Return >= l.until }

func (l lease) free() lease { return lease{last: l.last} }

// leaseModel has several states after some steps: a lease may have ended by itself, an operation without answer may have had no effect.
var leaseModel = porcupine.NondeterministicModel{
	Partition: byName,
	Init:      func() []any { return []any{lease{}} },
	Step: func(state, input, _ any) []any {
		var out []any
		for _, l := range state.(lease).step(input.(Op)) {
			out = append(out, l)
		}
		return out
	},
	Hash: func(state any) uint64 { l := state.(lease); return l.token*31 + l.last + uint64(l.until) },
}

func byName(history []porcupine.Operation) (out [][]porcupine.Operation) {
	index := map[string]int{}
	for _, o := range history {
		name := o.Input.(Op).Name
		i, ok := index[name]
		if !ok {
			i = len(out)
			index[name], out = i, append(out, nil)
		}
		out[i] = append(out[i], o)
	}
	return out
}

// step is what the lease may be after an operation; empty: the operation's answer cannot be.
func (l lease) step(o Op) []lease {
	switch {
	case o.Kind == Acquire && o.Return == Never:
		return l.acquireUnknown(o)
	case o.Kind == Acquire:
		return l.acquire(o)
	case o.Kind == Observe:
		return l.observe(o)
	case o.Return == Never:
		return append(l.give(o), l)
	case o.Kind == Done:
		return l.done(o)
	}
	return append(l.give(o), l.others(o)...)
}

func (l lease) acquire(o Op) []lease {
	switch {
	case o.Token == 0: // another holds it, or waits
		return []lease{l}
	case o.Token <= l.last || !l.ended(o):
		return nil
	}
	return []lease{{token: o.Token, until: max(o.Until, o.sure()), last: o.Token}}
}

// acquireUnknown: a token that nobody was told may be in force, and nobody counts on it.
func (l lease) acquireUnknown(o Op) []lease {
	if !l.ended(o) {
		return []lease{l}
	}
	return []lease{l, {token: l.last, some: true, last: l.last}}
}

func (l lease) observe(o Op) []lease {
	switch {
	case o.Token == 0 && l.ended(o):
		return []lease{l.free()}
	case o.Token == 0:
		return nil
	case (l.some || o.hidden && l.ended(o)) && o.Token > l.last:
		return []lease{{token: o.Token, some: true, last: o.Token}}
	case l.token == o.Token:
		return []lease{l}
	}
	return nil
}

// give: the holder gives it up.
func (l lease) give(o Op) []lease {
	if l.token == o.Token {
		return []lease{l.free()}
	}
	return nil
}

// others: it is not the caller's any more, so nothing happens.
func (l lease) others(o Op) []lease {
	if l.token != o.Token {
		return []lease{l}
	}
	return nil
}

func (l lease) done(o Op) []lease {
	if !o.Stale {
		return l.give(o)
	}
	if l.token == o.Token && l.ended(o) {
		return []lease{l.free()}
	}
	return l.others(o)
}
