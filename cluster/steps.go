package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/stream-arrow/twgd/roster"
)

// carry does one step of roster.Decide and reports whether anything was done.
func (o *office) carry(ctx context.Context, v roster.View, s roster.Step) bool {
	switch s.Kind {
	case roster.Rest:
		o.rest(ctx, v)
		return false
	case roster.Wait:
		if s.Why != "" {
			o.n.log.Debug("waiting: "+s.Why, "node", s.ID, "rule", s.Rule)
		}
		return false
	case roster.Stop:
		o.n.lastStop()
		return false
	}
	o.n.log.Info(s.Why, "step", s.Kind.String(), "node", s.ID, "rule", s.Rule)
	done, err := o.perform(ctx, v, s)
	if err != nil && ctx.Err() == nil {
		o.n.log.Warn("the step was not done", "step", s.Kind.String(), "node", s.ID, "rule", s.Rule, "error", err)
	}
	return done && err == nil
}

func (o *office) perform(ctx context.Context, v roster.View, s roster.Step) (done bool, err error) {
	q := o.r.q
	switch s.Kind {
	case roster.HandOver:
		return false, q.Handover(ctx, s.ID)
	case roster.AddNonvoter:
		return true, q.AddNonvoter(ctx, s.ID)
	case roster.Promote:
		if err := o.noteBefore(ctx, v, s.ID); err != nil {
			return false, err
		}
		return true, q.Promote(ctx, s.ID)
	case roster.Demote:
		return true, q.Demote(ctx, s.ID)
	case roster.Remove:
		return true, q.Remove(ctx, s.ID)
	case roster.Clear:
		return o.command(ctx, roster.Command{Op: roster.OpClear, ID: s.ID}), nil
	case roster.Grant:
		return o.command(ctx, roster.Command{Op: roster.OpGrant, ID: s.ID, Mark: o.markOf(s.ID)}), nil
	case roster.Refuse:
		return o.command(ctx, roster.Command{Op: roster.OpRefuse, ID: s.ID, Mark: o.markOf(s.ID)}), nil
	case roster.Bury:
		return o.command(ctx, roster.Command{Op: roster.OpBury, ID: s.ID}), nil
	}
	return false, fmt.Errorf("no such step: %v", s.Kind)
}

func (o *office) markOf(id string) roster.Mark { return o.r.rows().Marks[id] }

// noteBefore writes into the store who will have a seat, before it is given: the note may name too many, never too few. While the store
// cannot be reached the cluster does not grow.
func (o *office) noteBefore(ctx context.Context, v roster.View, more string) error {
	if o.n.shelf == nil {
		return nil
	}
	if time.Since(o.noteDoubt) < noteSettles {
		return errors.New("no seat is given yet: the store may still carry out an older write of the note")
	}
	names := append(seatNames(v), roster.NameOf(more))
	if err := o.writeNote(ctx, names); err != nil {
		return fmt.Errorf("no seat is given before the store's note names it: %w", err)
	}
	return nil
}

// rest is the time to make the note exact again.
func (o *office) rest(ctx context.Context, v roster.View) {
	if o.n.shelf == nil || time.Since(o.noteDoubt) < noteSettles {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, noteWithin) // whoever wants to go waits meanwhile
	defer cancel()
	if err := o.writeNote(ctx, seatNames(v)); err != nil {
		o.noteDoubt = time.Now()
		o.n.log.Debug("the voters note was not made exact", "error", err)
	}
}

func (o *office) writeNote(ctx context.Context, names []string) error {
	slices.Sort(names)
	names = slices.Compact(names)
	if slices.Equal(names, o.note) {
		return nil
	}
	if time.Since(o.noteFailed) < notePause {
		return errors.New("the store could not be written a moment ago")
	}
	o.note = nil // unknown until it is written
	if err := o.n.o.Backup.Place.WriteNote(ctx, names); err != nil {
		o.noteFailed = time.Now()
		return err
	}
	o.note = names
	return nil
}

func seatNames(v roster.View) (names []string) {
	for i := range v.Nodes {
		if v.Nodes[i].Role == roster.Voter {
			names = append(names, v.Nodes[i].Name)
		}
	}
	return names
}

func memberState(x *roster.Node) string {
	switch {
	case x.Going || x.Leaving:
		return "terminating"
	case !x.Contact:
		return "failed"
	case x.Joined == 0:
		return "joining"
	}
	return "active"
}

func rolesOf(mode string, role roster.Role) []string {
	var out []string
	switch mode {
	case "ingest":
		out = append(out, "worker")
	case "recovery":
		out = append(out, "recovery")
	case "both", "":
		out = append(out, "worker", "recovery")
	}
	switch role {
	case roster.Voter:
		out = append(out, "voter")
	case roster.Nonvoter:
		out = append(out, "standby")
	}
	return out
}

func compareMembers(a, b *MemberStatus) int {
	return cmp.Or(cmp.Compare(ordinalOf(a), ordinalOf(b)), cmp.Compare(a.ID, b.ID), cmp.Compare(a.ServerID, b.ServerID))
}

// ordinalOf orders those without an ordinal behind all others.
func ordinalOf(m *MemberStatus) uint {
	if m.Ordinal == nil {
		return ^uint(0)
	}
	return uint(*m.Ordinal)
}
