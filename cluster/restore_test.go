package cluster

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stream-arrow/twgd/backup"
	"github.com/stream-arrow/twgd/roster"
	"github.com/stream-arrow/twgd/store"
	"github.com/stream-arrow/twgd/tuning"
)

// place is a backup store in a directory of the lab.
func (l *lab) place() *backup.Place {
	l.t.Helper()
	b, err := store.Open(l.t.Context(), "file://"+filepath.Join(l.dir, "store"), store.Options{})
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = b.Close() })
	p, err := backup.Open(b, "test", backup.Options{Keep: 5})
	if err != nil {
		l.t.Fatal(err)
	}
	return p
}

// stored gives a node a backup store.
func (l *lab) stored() func(*Options) {
	p := l.place()
	return func(o *Options) { o.Backup = &BackupOptions{Place: p, Every: 30 * time.Second, Restore: true} }
}

// wipe empties the disks of stopped nodes.
func (l *lab) wipe(names ...string) {
	l.t.Helper()
	for _, n := range names {
		if err := os.RemoveAll(filepath.Join(l.dir, n)); err != nil {
			l.t.Fatal(err)
		}
	}
}

var names3 = []string{"n1", "n2", "n3"}

func (l *lab) killAll() {
	for _, n := range names3 {
		l.procs[n].kill()
	}
}

func TestRestoreAfterAllDisksAreLost(t *testing.T) {
	bubble(t, func(l *lab) {
		with := l.stored()
		for _, n := range names3 {
			l.run(n, with)
		}
		l.until(time.Minute, "three seats", func() bool { return l.all("n1 n2 n3") })
		if err := l.procs["n2"].n.Tune(l.ctx, tuning.Share, "0.25"); err != nil {
			t.Fatal(err)
		}
		held, err := l.procs["n3"].n.Leases().Acquire(l.ctx, "work", 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.procs["n3"].n.Backup(l.ctx); err != nil {
			t.Fatal(err)
		}
		before := l.leader().n.Status()
		l.killAll()
		l.wipe(names3...)
		l.run("n1", with)
		l.run("n2", with)
		time.Sleep(2 * time.Minute)
		if s := l.procs["n1"].n.Status(); s.Leader != "" || !strings.Contains(s.Waiting, "n3") || !strings.Contains(s.Waiting, "twgd restore -c FILE --lost n3") {
			t.Errorf("with a silent seat nothing may be restored: %+v", s)
		}
		l.run("n3", with)
		took := l.until(2*time.Minute, "three seats again", func() bool { return l.all("n1 n2 n3") })
		t.Log("restored after ", took)
		now := l.leader().n.Status()
		if now.Incarnation != before.Incarnation+1 || now.Founding != before.Founding || now.Settings[tuning.Share] != "0.25" {
			t.Errorf("restored: %+v\nbefore: %+v", now, before)
		}
		again, err := l.procs["n2"].n.Leases().Acquire(l.ctx, "other", 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if again.Token() <= held.Token() {
			t.Errorf("token %x after %x", again.Token(), held.Token())
		}
	})
}

func TestCaseK20NothingIsRestoredOverState(t *testing.T) {
	bubble(t, func(l *lab) {
		with := l.stored()
		lone := func(o *Options) { with(o); alone(o) }
		p := l.run("n1", lone)
		l.until(time.Minute, "serving", func() bool { return p.state() == "ok" })
		if _, err := p.n.Backup(l.ctx); err != nil {
			t.Fatal(err)
		}
		if err := p.n.Tune(l.ctx, tuning.Share, "0.75"); err != nil {
			t.Fatal(err)
		}
		id := p.n.id()
		p.kill()
		p = l.run("n1", lone)
		l.until(5*time.Second, "serving again", func() bool { return p.state() == "ok" })
		if s := p.n.Status(); s.ID != id || s.Incarnation != 1 || s.Settings[tuning.Share] != "0.75" {
			t.Errorf("%+v", s)
		}
		if !l.logged("nothing is restored over the state on this disk") {
			t.Error("the log does not say so")
		}
	})
}

func TestCaseK26ClaimIsResumedByItsClaimantOnly(t *testing.T) {
	bubble(t, func(l *lab) {
		with := l.stored()
		id := l.claimAndDie("n1", with)
		other := l.run("n2", with, func(o *Options) { o.Join, o.Found = nil, true })
		time.Sleep(time.Minute)
		if s := other.n.Status(); s.Leader != "" || !strings.Contains(s.Waiting, id) {
			t.Errorf("another node under a foreign claim: %+v", s)
		}
		other.kill()
		p := l.run("n1", with, func(o *Options) { o.Join = nil })
		l.until(time.Minute, "n1 resumes its founding", func() bool { return p.n.Status().Leader == "n1" })
		if _, c, _, err := l.place().Latest(l.ctx); err != nil || c.ServerID != p.n.id() || hexOf(c.Founding) != p.n.Status().Founding || p.n.id() != id {
			t.Errorf("claim %+v %v, the node is %s of %s", c, err, p.n.id(), p.n.Status().Founding)
		}
	})
}

// claimAndDie makes a node claim the first incarnation and kills it before the bootstrap.
func (l *lab) claimAndDie(name string, with func(*Options)) (id string) {
	o := l.options(name)
	with(&o)
	o.Gossip = ""
	n, err := New(o)
	if err != nil {
		l.t.Fatal(err)
	}
	defer n.port.Close()
	n.shelf.look(l.ctx)
	if _, won, err := n.shelf.claimIncarnation(l.ctx, 1); err != nil || !won {
		l.t.Fatal("claim: ", won, err)
	}
	return n.id()
}

func TestTwoConfirmedFoundingsRaiseAnAlarmAndOneIsDropped(t *testing.T) {
	bubble(t, func(l *lab) {
		apart := func(o *Options) { o.Join = nil }
		a, b := l.run("n1", apart), l.run("n2", apart)
		l.until(10*time.Second, "two foundings", func() bool { return a.n.Status().Leader == "n1" && b.n.Status().Leader == "n2" })
		a.kill()
		a = l.run("n1") // now it looks for the others
		l.until(time.Minute, "both say so", func() bool {
			conflict := func(s string) bool {
				return strings.Contains(s, "two confirmed foundings") && strings.Contains(s, "twgd leave --drop")
			}
			return slices.ContainsFunc(a.n.Status().Alarms, conflict) && slices.ContainsFunc(b.n.Status().Alarms, conflict)
		})
		if err := b.n.Leave(l.ctx, LeaveOptions{Drop: true}); err != nil {
			t.Fatal(err)
		}
		l.until(time.Minute, "n2 has joined n1", func() bool { return b.n.Status().Leader == "n1" && b.n.Status().Founding == a.n.Status().Founding })
		l.until(2*time.Minute, "no alarm is left", func() bool { return len(a.n.Status().Alarms) == 0 })
	})
}

func TestPresumptiveFoundingYieldsToAConfirmedOne(t *testing.T) {
	bubble(t, func(l *lab) {
		b := l.run("n2", func(o *Options) { o.Join = nil })
		l.until(10*time.Second, "n2 has founded", func() bool { return b.n.Status().Leader == "n2" })
		l.net.Isolate("n1")
		a := l.run("n1")
		l.until(time.Minute, "n1 has founded against silence", func() bool { return a.n.Status().Leader == "n1" })
		theirs, ours := b.n.Status().Founding, a.n.Status().Founding
		if ours == theirs {
			t.Fatal("one founding")
		}
		l.net.Rejoin("n1")
		l.until(time.Minute, "n1 yields and joins", func() bool { return a.n.Status().Founding == theirs && a.n.Status().Leader == "n2" })
	})
}

func TestRestoreFromDiskAfterTwoOfThreeDisksAreLost(t *testing.T) {
	bubble(t, func(l *lab) {
		l.three()
		before := l.leader().n.Status()
		held, err := l.procs["n1"].n.Leases().Acquire(l.ctx, "work", 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		l.killAll()
		l.wipe("n2", "n3")
		o := l.quiet("n1")
		if _, err := RestoreFromDisk(l.ctx, o, nil); !errors.Is(err, ErrUnsafe) || !strings.Contains(err.Error(), "--lost") {
			t.Errorf("with silent seats: %v", err)
		}
		l.run("n2")
		l.run("n3")
		o = l.quiet("n1")
		got, err := RestoreFromDisk(l.ctx, o, []string{"n2", "n3"})
		if err != nil {
			t.Fatal(err)
		}
		if got.ServerID != before.ID && got.ServerID == "" {
			t.Errorf("%+v", got)
		}
		l.run("n1")
		took := l.until(2*time.Minute, "three seats again", func() bool { return l.all("n1 n2 n3") })
		t.Log("serving after ", took)
		now := l.leader().n.Status()
		if now.Incarnation != 2 || now.Founding != before.Founding {
			t.Errorf("%+v", now)
		}
		again, err := l.procs["n2"].n.Leases().Acquire(l.ctx, "other", 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if again.Token() <= held.Token() {
			t.Errorf("token %x after %x", again.Token(), held.Token())
		}
	})
}

// quiet are options for a function that looks at a stopped node.
func (l *lab) quiet(name string) Options {
	o := l.options(name)
	o.Gossip = ""
	return o
}

func TestRestoreFromDiskIsRefusedWhileALeaderAnswers(t *testing.T) {
	bubble(t, func(l *lab) {
		l.three()
		follower := names3[slices.IndexFunc(names3, func(n string) bool { return l.procs[n] != l.leader() })]
		l.procs[follower].kill()
		_, err := RestoreFromDisk(l.ctx, l.quiet(follower), []string{"n1", "n2", "n3"})
		if !errors.Is(err, ErrUnsafe) || !strings.Contains(err.Error(), "leads") {
			t.Error(err)
		}
	})
}

func TestOlderIncarnationDropsItsStateAndJoins(t *testing.T) {
	bubble(t, func(l *lab) {
		l.three()
		for _, n := range names3 {
			l.procs[n].kill()
		}
		// An operator calls n2 and n3 lost, though their disks are well.
		if _, err := RestoreFromDisk(l.ctx, l.quiet("n1"), []string{"n2", "n3"}); err != nil {
			t.Fatal(err)
		}
		l.run("n1")
		l.until(30*time.Second, "n1 serves", func() bool { return l.procs["n1"].n.Status().Leader == "n1" })
		old := []string{}
		for _, n := range []string{"n2", "n3"} {
			old = append(old, l.run(n).n.id())
		}
		l.until(3*time.Minute, "one cluster of the second incarnation", func() bool {
			return l.all("n1 n2 n3") && l.procs["n2"].n.Status().Incarnation == 2 && l.procs["n3"].n.Status().Incarnation == 2
		})
		for _, id := range l.ids() {
			if slices.Contains(old, id) {
				t.Errorf("%s still has a seat", id)
			}
		}
	})
}

func TestBackupsAreMadeOnScheduleAndAtTheEnd(t *testing.T) {
	bubble(t, func(l *lab) {
		with := l.stored()
		p := l.run("n1", with, alone)
		l.until(time.Minute, "a backup", func() bool { b := p.n.Status().Backup; return b != nil && b.Last != nil })
		if err := p.n.Tune(l.ctx, tuning.Share, "0.5"); err != nil {
			t.Fatal(err)
		}
		p.term()
		info, r, err := l.place().Newest(context.Background(), verifySnapshot)
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
		l.wipe("n1")
		p = l.run("n1", with, alone)
		l.until(time.Minute, "restored", func() bool { return p.state() == "ok" && p.n.Status().Incarnation == 2 })
		if s := p.n.Settings()[tuning.Share]; s != "0.5" {
			t.Errorf("restored from %s: %s", info.Name, s)
		}
	})
}

func TestTheNoteNamesASeatBeforeItIsGiven(t *testing.T) {
	bubble(t, func(l *lab) {
		with := l.stored()
		for _, n := range names3 {
			l.run(n, with)
		}
		p := l.place()
		l.until(time.Minute, "three seats", func() bool {
			leader := l.leader()
			if leader == nil {
				return false
			}
			seats := l.seatsOf(leader)
			note, err := p.Note(l.ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, id := range seats {
				if len(seats) > 1 && !slices.Contains(note, roster.NameOf(id)) {
					t.Fatalf("seats %v, the note names %v", seats, note)
				}
			}
			return len(seats) == 3
		})
		l.until(10*time.Second, "an exact note", func() bool {
			note, err := p.Note(l.ctx)
			return err == nil && slices.Equal(note, names3)
		})
	})
}

func TestWithoutTheStoreGrowthWaitsAndDeparturesDoNot(t *testing.T) {
	bubble(t, func(l *lab) {
		with := l.stored()
		for _, n := range names3 {
			l.run(n, with)
		}
		l.until(time.Minute, "three seats", func() bool { return l.all("n1 n2 n3") })
		l.procs["n3"].term()
		dir := filepath.Join(l.dir, "store")
		if err := os.Rename(dir, dir+".gone"); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dir, nil, 0o600); err != nil { // whatever is asked of it fails
			t.Fatal(err)
		}
		l.procs["n2"].term()
		l.until(10*time.Second, "n1 serves alone", func() bool { return l.procs["n1"].write(time.Second) == nil })
		l.run("n2", with)
		l.run("n3", with)
		time.Sleep(time.Minute)
		if n := len(l.seatsOf(l.procs["n1"])); n != 1 {
			t.Errorf("%d seats were given though the note could not be written", n)
		}
		if err := errors.Join(os.Remove(dir), os.Rename(dir+".gone", dir)); err != nil {
			t.Fatal(err)
		}
		l.until(3*time.Minute, "three seats once the store is back", func() bool { return l.all("n1 n2 n3") })
	})
}

// Where enough disks are there a start is all it takes, and a restore would lose what only the others hold.
func TestRestoreFromDiskIsRefusedToAMajority(t *testing.T) {
	bubble(t, func(l *lab) {
		l.three()
		l.killAll()
		l.wipe("n3")
		l.run("n2")
		if _, err := RestoreFromDisk(l.ctx, l.quiet("n1"), []string{"n3"}); !errors.Is(err, ErrUnsafe) || !strings.Contains(err.Error(), "with n2 this node is a majority") {
			t.Errorf("got %v", err)
		}
		l.run("n1")
		l.until(time.Minute, "both serve", func() bool { return l.leader() != nil })
	})
}
