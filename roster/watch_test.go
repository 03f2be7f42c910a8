package roster

import (
	"testing"
	"time"
)

// desk is a leader n1 with its watch; ids are "n2" for n2~a.
type desk struct {
	*testing.T
	w   *Watch
	o   Office
	now time.Duration
}

func newDesk(t *testing.T) *desk {
	d := &desk{T: t, w: NewWatch(0)}
	d.o = Office{Me: "n1~a", Ordinal: 1, Nonce: 1, Term: 5, LastIndex: 1000, ConfigIndex: 900, Ready: true, Size: 3, Settle: time.Minute,
		Servers: []Server{{"n1~a", true}, {"n2~a", true}, {"n3~a", true}, {"n4~a", false}}}
	d.o.Rows = Rows{Facts: Facts{Founding: [16]byte{1}, Incarnation: 2}, Members: map[string]Member{}, Marks: map[string]Mark{}, Grants: map[string]Mark{}, Refused: map[string]Mark{}, Tombs: map[string]bool{}}
	return d
}

// in is a check-in of a node that is caught up.
func (d *desk) in(name string, change ...func(*CheckIn)) {
	c := CheckIn{ID: id(name), Name: NameOf(name), Ordinal: -1, Addr: name + ":7481", Nonce: 7, LastTerm: d.o.Term, LastIndex: d.o.LastIndex, Incarnation: 2}
	for _, f := range change {
		f(&c)
	}
	d.w.CheckIn(d.now, c, d.o.LastIndex)
}

// each second all of names check in.
func (d *desk) seconds(n int, names ...string) {
	for range n {
		d.now += time.Second
		for _, name := range names {
			d.in(name)
		}
		d.w.View(d.now, d.o)
	}
}

func (d *desk) node(name string) Node {
	for _, n := range d.w.View(d.now, d.o).Nodes {
		if n.ID == id(name) {
			return n
		}
	}
	return Node{}
}

func (d *desk) want(name string, what string, got, want bool) {
	d.Helper()
	if got != want {
		d.Errorf("at %v %s %s: %v, want %v", d.now, name, what, got, want)
	}
}

func TestContactIsThreeSeconds(t *testing.T) {
	d := newDesk(t)
	d.in("n2")
	d.now = 3 * time.Second
	d.want("n2", "in contact", d.node("n2").Contact, true)
	d.now++
	d.want("n2", "in contact", d.node("n2").Contact, false)
	d.w.Heard(d.now, "n2~a")
	d.want("n2", "in contact, heard by Raft", d.node("n2").Contact, true)
	d.w.Silent("n2~a")
	d.want("n2", "in contact, silent by gossip", d.node("n2").Contact, false)
	d.in("n2")
	d.want("n2", "in contact again", d.node("n2").Contact, true)
}

// A new leader knows nothing yet: all count as heard and as lacking the configuration, so that rule 0 waits for them, three seconds at most.
func TestANewLeaderWaitsForCheckIns(t *testing.T) {
	d := newDesk(t)
	if s := Decide(d.w.View(0, d.o)); s.Kind != Wait || s.Rule != "0" {
		t.Errorf("at once: %v", s)
	}
	d.in("n2")
	d.in("n4")
	d.now = 4 * time.Second
	d.in("n2")
	d.in("n4")
	if s := Decide(d.w.View(d.now, d.o)); s.Kind != Rest {
		t.Errorf("with n3 silent: %v", s)
	}
}

func TestSteadyAndSeasonedNeedAnUnbrokenContact(t *testing.T) {
	d := newDesk(t)
	d.in("n4")
	d.seconds(10, "n4")
	d.want("n4", "steady", d.node("n4").Steady, true)
	d.seconds(49, "n4")
	d.want("n4", "seasoned", d.node("n4").Seasoned, false)
	d.seconds(1, "n4")
	d.want("n4", "seasoned", d.node("n4").Seasoned, true)
	d.now += 4 * time.Second // nobody looked meanwhile
	d.in("n4")
	d.want("n4", "steady after a break", d.node("n4").Steady, false)
	d.seconds(9, "n4")
	d.want("n4", "steady", d.node("n4").Steady, false)
	d.seconds(1, "n4")
	d.want("n4", "steady", d.node("n4").Steady, true)
}

func TestLostAfterSettle(t *testing.T) {
	d := newDesk(t)
	d.in("n3")
	d.now = time.Minute - 1
	d.want("n3", "lost", d.node("n3").Lost, false)
	d.now++
	d.want("n3", "lost", d.node("n3").Lost, true)
	d.in("n3")
	d.want("n3", "lost though heard", d.node("n3").Lost, false)
}

func TestSupersededByAnotherBirth(t *testing.T) {
	d := newDesk(t)
	d.seconds(1, "n3", "n3~b")
	d.want("n3", "superseded while in contact", d.node("n3").Superseded, false)
	d.seconds(4, "n3~b")
	d.want("n3", "superseded", d.node("n3").Superseded, true)
	d.want("n3", "lost", d.node("n3").Lost, true)
	d.want("n3~b", "superseded", d.node("n3~b").Superseded, false)
}

func TestSupersededByTheLeadersOwnBirth(t *testing.T) {
	d := newDesk(t)
	d.o.Servers = append(d.o.Servers, Server{ID: "n1~0"})
	d.now = 4 * time.Second
	d.want("n1~0", "superseded", d.node("n1~0").Superseded, true)
}

// The older birth, heard last, does not make the newer one lost for good.
func TestWhoWasHeardLastIsNotSuperseded(t *testing.T) {
	d := newDesk(t)
	d.seconds(1, "n3~b")
	d.seconds(5, "n3")
	d.want("n3", "superseded", d.node("n3").Superseded, false)
}

func TestTheConfigurationIsWaitedForTenSeconds(t *testing.T) {
	d := newDesk(t)
	behind := func(c *CheckIn) { c.LastIndex = 899 }
	for range 10 {
		d.in("n3", behind)
		d.want("n3", "has the configuration", d.node("n3").HasConfig, false)
		d.want("n3", "in contact", d.node("n3").Contact, true)
		d.now += time.Second
		if d.now == 5*time.Second {
			d.o.ConfigIndex++ // a change does not begin the wait anew
		}
	}
	d.in("n3", behind)
	d.want("n3", "in contact", d.node("n3").Contact, false)
	d.now += 2 * time.Minute
	d.in("n3", behind)
	d.want("n3", "lost", d.node("n3").Lost, false)
	d.in("n3")
	d.want("n3", "in contact", d.node("n3").Contact, true)
}

func TestHasConfigAndCaught(t *testing.T) {
	f := func(term, index uint64, config, caught bool) {
		t.Helper()
		d := newDesk(t)
		d.o.LastIndex = 1200
		d.in("n4", func(c *CheckIn) { c.LastTerm, c.LastIndex = term, index })
		d.want("n4", "has the configuration", d.node("n4").HasConfig, config)
		d.want("n4", "caught", d.node("n4").Caught, caught)
	}
	f(5, 1200, true, true)
	f(5, 944, true, true)
	f(5, 943, true, false)
	f(5, 899, false, false)
	f(4, 1200, false, false) // of another term: this leader's first entry is missing
}

// The lag is taken against the leader's log of that moment: a busy leader has gone on by the next look.
func TestLagIsOfTheCheckIn(t *testing.T) {
	d := newDesk(t)
	d.in("n4")
	d.o.LastIndex += 10000
	d.want("n4", "caught", d.node("n4").Caught, true)
}

func TestReturnedIsAnotherProcess(t *testing.T) {
	d := newDesk(t)
	d.o.Rows.Marks["n3~a"] = Mark{Terminating, 7}
	d.in("n3")
	d.want("n3", "returned, but the same process", d.node("n3").Returned, false)
	other := func(c *CheckIn) { c.Nonce = 8 }
	d.in("n3", other)
	d.want("n3", "returned", d.node("n3").Returned, true)
	d.in("n3") // what still arrives of the process before
	d.want("n3", "returned", d.node("n3").Returned, true)
	d.in("n3", other, func(c *CheckIn) { c.Intent = Terminating })
	d.want("n3", "returned, and going again", d.node("n3").Returned, false)
}

// A process that goes on when the one that followed it has fallen silent is the one that lives: of a copied disk the copy was stopped.
func TestWhoGoesOnAloneIsHeard(t *testing.T) {
	d := newDesk(t)
	copied := func(c *CheckIn) { c.Nonce, c.Addr = 8, "copy:1" }
	d.in("n3")
	d.in("n3", copied)
	d.now += ContactFor
	d.in("n3")
	if got := d.node("n3").Addr; got != "copy:1" {
		t.Errorf("the one before is heard at once: %s", got)
	}
	d.now++
	d.in("n3")
	if got := d.node("n3").Addr; got != "n3:7481" {
		t.Errorf("the one that lives is not heard: %s", got)
	}
	d.in("n3", copied)
	if got := d.node("n3").Addr; got != "n3:7481" {
		t.Errorf("what is late of the other is heard: %s", got)
	}
}

func TestJustGranted(t *testing.T) {
	d := newDesk(t)
	d.in("n3")
	m := Mark{Terminating, 7}
	d.o.Rows.Marks["n3~a"], d.o.Rows.Grants["n3~a"] = m, m
	d.want("n3", "just granted", d.node("n3").JustGranted, true)
	d.now = 5 * time.Second
	d.want("n3", "just granted", d.node("n3").JustGranted, false)
	d.want("n3", "granted", d.node("n3").Granted, true)
}

// K15: nothing can be sent to it. It is removed, left alone for a while, and tried again at once under another address.
func TestCaseK15StuckIsLeftAlone(t *testing.T) {
	d := newDesk(t)
	stuck := func(c *CheckIn) { c.LastTerm, c.LastIndex = 0, 0 }
	for range 30 {
		d.want("n4", "stuck", d.node("n4").Stuck, false)
		d.now += time.Second
		d.in("n4", stuck)
	}
	d.want("n4", "stuck", d.node("n4").Stuck, true)
	d.o.Servers = d.o.Servers[:3]
	d.want("n4", "stuck, removed", d.node("n4").Stuck, true)
	d.in("n4", stuck, func(c *CheckIn) { c.Addr = "elsewhere:1" })
	d.want("n4", "stuck under another address", d.node("n4").Stuck, false)
	for d.now < 5*time.Minute+30*time.Second {
		d.now += time.Second
		d.in("n4", stuck)
	}
	d.want("n4", "stuck after the pause", d.node("n4").Stuck, false)
}

// The time in which a server does not get on begins when it comes back, not when it went.
func TestWhoWasAwayIsNotStuckAtItsFirstWord(t *testing.T) {
	d := newDesk(t)
	behind := func(c *CheckIn) { c.LastTerm, c.LastIndex = 1, 1 }
	d.in("n4", behind)
	d.now += time.Minute
	d.in("n4", behind)
	d.want("n4", "stuck", d.node("n4").Stuck, false)
	for range 30 {
		d.now += time.Second
		d.in("n4", behind)
	}
	d.want("n4", "stuck", d.node("n4").Stuck, true)
}

func TestAnIncomingSnapshotIsProgress(t *testing.T) {
	d := newDesk(t)
	for i := range 60 {
		d.now += time.Second
		d.in("n4", func(c *CheckIn) { c.LastTerm, c.LastIndex, c.Received = 0, 0, uint64(i) })
		d.want("n4", "stuck", d.node("n4").Stuck, false)
	}
}

// About itself the leader believes its own process, never the table.
func TestTheLeaderBelievesItself(t *testing.T) {
	d := newDesk(t)
	m := Mark{Terminating, 9}
	d.o.Rows.Marks["n1~a"], d.o.Rows.Grants["n1~a"] = m, m
	n := d.node("n1")
	d.want("n1", "going", n.Going || n.Granted, false)
	d.want("n1", "returned", n.Returned, true)
	d.o.Intent = Terminating
	d.want("n1", "going", d.node("n1").Going, true)
}

func TestWhoStandsInAView(t *testing.T) {
	d := newDesk(t)
	d.seconds(1, "n5", "n6", "n7")
	d.o.Rows.Tombs["n6~a"] = true
	d.in("n7", func(c *CheckIn) { c.Incarnation = 1 })
	d.o.Rows.Marks["n8~a"] = Mark{Leaving, 1}
	d.want("n5", "in the view", d.node("n5").ID != "", true)
	d.want("n6, removed for good,", "in the view", d.node("n6").ID != "", false)
	d.want("n7, of an older incarnation,", "in the view", d.node("n7").ID != "", false)
	d.want("n8, whose leaving is a promise,", "in the view", d.node("n8").Leaving, true)
	d.now += 4 * time.Second
	d.want("n5, silent and without a role,", "in the view", d.node("n5").ID != "", false)
	d.want("n3, silent with a seat,", "in the view", d.node("n3").ID != "", true)
}

// Whoever has no role and is not heard for long is dropped from memory.
func TestMemoryIsBounded(t *testing.T) {
	d := newDesk(t)
	d.seconds(1, "n5", "n6")
	d.now += 10 * time.Minute
	d.w.View(d.now, d.o)
	if len(d.w.nodes) != len(d.o.Servers) {
		t.Errorf("%d ids are kept in mind", len(d.w.nodes))
	}
	for i := range 3 * maxWatched {
		d.w.CheckIn(d.now, CheckIn{ID: string(rune('a'+i%26)) + time.Duration(i).String()}, 1)
	}
	if len(d.w.nodes) > maxWatched {
		t.Errorf("%d ids are kept in mind", len(d.w.nodes))
	}
}

func TestDue(t *testing.T) {
	d := newDesk(t)
	next := func(want string) {
		t.Helper()
		c, ok := d.w.Due(d.now, d.o)
		got := ""
		if ok {
			got = []string{"", "found", "confirm", "incarnation", "seen", "mark", "clear", "grant", "refuse", "bury", "forget"}[c.Op] + " " + NameOf(c.ID)
			d.write(c)
		}
		if got != want {
			t.Errorf("due: %q, want %q", got, want)
		}
	}
	d.in("n3")
	d.o.Proposing = true
	next("")
	d.o.Proposing, d.o.Addr = false, "n1:7481"
	next("seen n1")
	next("seen n3")
	next("")
	d.in("n3", func(c *CheckIn) { c.Addr = "moved:1" })
	next("seen n3")
	d.in("n3", func(c *CheckIn) { c.Addr, c.Intent = "moved:1", Leaving })
	next("mark n3")
	next("")
	d.in("n3", func(c *CheckIn) { c.Addr, c.Intent = "moved:1", Terminating }) // a promise is not taken back
	next("")
	d.in("n3", func(c *CheckIn) { c.Addr, c.Intent, c.Nonce = "moved:1", Terminating, 8 }) // by another process it is
	next("mark n3")
	d.in("n3", func(c *CheckIn) { c.Addr, c.Intent, c.Nonce = "moved:1", Leaving, 8 })
	next("mark n3")
	d.write(Command{Op: OpRefuse, ID: "n3~a", Mark: Mark{Leaving, 8}})
	next("") // it has not heard of the refusal yet
	d.in("n3", func(c *CheckIn) { c.Addr, c.Nonce = "moved:1", 8 })
	next("clear n3")
	next("")
	d.o.Intent = Terminating
	next("mark n1")
	d.seconds(1, "n9")
	next("seen n9")
	d.now += StuckPause
	next("forget n9")
	next("")
}

// write applies c to the rows, through a table.
func (d *desk) write(c Command) {
	d.Helper()
	var t Table
	if err := t.Restore(version, bytesOf(d.o.Rows)); err != nil {
		d.Fatal(err)
	}
	if err := ParseReply(t.Apply(0, c.Encode())); err != nil {
		d.Fatal(err)
	}
	d.o.Rows = t.Rows()
}
