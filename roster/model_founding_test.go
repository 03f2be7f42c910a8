package roster

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// machines are three nodes that list each other, found, join, lose their disks and are cut off; Begin decides for each. A founding is
// served where a majority of the disks of its seats is up and connected; what Raft does inside is the other model's.
type machines struct {
	disk             [3]int8 // founding that it belongs to; -1: empty
	birth            [3]uint8
	up, waited       uint8
	alone            bool // n1 is cut off from the others; the store is in everybody's reach
	store            bool
	latest           uint64
	claimant, author int8  // machine and birth of the latest claim; -1: none
	note             uint8 // names of the voters note
	backup           int8  // founding whose backup is the newest; -1: none
	founded          [4]foundingModel
	n                int8
	wipes, stops     uint8
	cuts             uint8
}

type foundingModel struct {
	seats     uint8
	id        byte
	confirmed bool
	inc       uint64
}

// believing takes a rule away.
type believing struct{ silenceProves, neverYields, forgetful bool }

func (m *machines) conn(a, b int) bool { return a == b || !m.alone || a != 0 && b != 0 }
func (m *machines) id(i int) string    { return fmt.Sprintf("n%d~%d", i+1, m.birth[i]) }

// leads is a machine that leads founding k in sight of i; -1: none.
func (m *machines) leads(k int8, i int) int {
	for l := range 3 {
		seats := 0
		for j := range 3 {
			seats += one(has(m.founded[k].seats, j) && m.disk[j] == k && has(m.up, j) && m.conn(l, j))
		}
		if has(m.up, l) && m.conn(l, i) && m.disk[l] == k && has(m.founded[k].seats, l) && seats >= majority(size(m.founded[k].seats)) {
			return l
		}
	}
	return -1
}

func (m *machines) facts(k int8) Facts {
	f := m.founded[k]
	return Facts{Founding: [16]byte{f.id}, Confirmed: f.confirmed, Incarnation: f.inc}
}

func (m *machines) claims(i int) bool {
	return m.store && m.latest > 0 && m.claimant == int8(i) && uint8(m.author) == m.birth[i]
}

func (m *machines) view(i int, b believing) StartView {
	v := StartView{Me: m.id(i), Name: NameOf(m.id(i)), Ordinal: i, FoundAfter: time.Second, State: m.disk[i] >= 0}
	v.Asking = time.Second * time.Duration(one(has(m.waited, i)))
	if k := m.disk[i]; k >= 0 {
		v.Facts = m.facts(k)
		for j := range 3 {
			if has(m.founded[k].seats, j) {
				v.Seats = append(v.Seats, m.id(j))
			}
		}
		if l := m.leads(k, i); l >= 0 {
			v.Leading = l == i
			v.Leader = &Answer{ID: m.id(l), Facts: v.Facts, Role: Role(2 * one(has(m.founded[k].seats, i)))}
		}
	}
	for j := range 3 {
		if j != i {
			v.Peers = append(v.Peers, m.peer(i, j, b))
		}
	}
	if m.store {
		v.Store = &StoreView{Reached: true, Latest: m.latest, Restore: true}
		if m.latest > 0 {
			v.Store.Claimant = fmt.Sprintf("n%d~%d", m.claimant+1, m.author)
		}
		for j := range 3 {
			if has(m.note, j) {
				v.Store.Note = append(v.Store.Note, NameOf(m.id(j)))
			}
		}
	}
	return v
}

func (m *machines) peer(i, j int, b believing) Peer {
	p := Peer{Addr: fmt.Sprintf("n%d:1", j+1), Listed: true, Ordinal: j, ID: m.id(j), Name: NameOf(m.id(j)), Says: Empty}
	switch {
	case !has(m.up, j) || !m.conn(i, j):
		if !b.silenceProves {
			p = Peer{Addr: p.Addr, Listed: true}
		}
	case m.disk[j] >= 0:
		p.Says, p.Facts = HasState, m.facts(m.disk[j])
		p.Leads, p.HasLeader = m.leads(m.disk[j], j) == j, m.leads(m.disk[j], j) >= 0
	case m.claims(j):
		p.Says = Claiming
	}
	return p
}

// act does what Begin says at i.
func (m *machines) act(i int, b believing) (move Move, changed bool) {
	before := *m
	move = Begin(m.view(i, b))
	switch move.Kind {
	case Join:
		m.join(i, move.Founding[0], b)
	case Claim:
		if m.lives(m.latest) && m.latest > 0 {
			panic(broken{"R11: a restore is claimed while a quorum of disks exists"})
		}
		if m.latest == move.Incarnation-1 {
			m.latest, m.claimant, m.author = move.Incarnation, int8(i), int8(m.birth[i])
		}
	case Bootstrap:
		m.begin(i, foundingModel{id: byte(m.n) + 1, confirmed: !move.Presumptive, inc: move.Incarnation})
	case Restore:
		f := foundingModel{id: byte(m.n) + 1, confirmed: true, inc: move.Incarnation}
		if m.backup >= 0 {
			f.id = m.founded[m.backup].id
		}
		m.begin(i, f)
	case Confirm:
		m.founded[m.disk[i]].confirmed = true
	case Yield, Renew:
		if move.Kind == Renew || !b.neverYields {
			m.empty(i)
		}
	}
	return move, *m != before
}

func (m *machines) empty(i int) {
	m.disk[i] = -1
	m.birth[i]++
	m.waited &^= bit(i)
}

func (m *machines) begin(i int, f foundingModel) {
	if int(m.n) == len(m.founded) {
		return
	}
	f.seats = bit(i)
	m.founded[m.n], m.disk[i], m.note = f, m.n, bit(i)
	m.n++
}

// join takes i into a founding that is served in its sight. A new disk takes the seat of its name; the third member makes three seats.
func (m *machines) join(i int, id byte, b believing) {
	for k := m.n - 1; k >= 0; k-- {
		f := &m.founded[k]
		if l := m.leads(k, i); f.id != id || l < 0 {
			continue
		}
		m.disk[i] = k
		members := uint8(0)
		for j := range 3 {
			members |= bit(j) * uint8(one(m.disk[j] == k))
		}
		if size(members) == 3 && !b.forgetful {
			m.note |= members // before they are promoted
		}
		if size(members) == 3 {
			f.seats = members
		}
		return
	}
}

// lives: some founding of this incarnation has a quorum of its disks, up or not.
func (m *machines) lives(inc uint64) bool {
	for k := range m.n {
		disks := 0
		for j := range 3 {
			disks += one(has(m.founded[k].seats, j) && m.disk[j] == k)
		}
		if m.founded[k].inc == inc && disks >= majority(size(m.founded[k].seats)) {
			return true
		}
	}
	return false
}

// nexts calls see with all that may happen, and how it is called.
func (m *machines) nexts(b believing, see func(string, machines)) {
	for i := range 3 {
		n := *m
		switch name := fmt.Sprintf("n%d", i+1); {
		case !has(m.up, i):
			n.up |= bit(i)
			see(name+" starts", n)
			if m.wipes > 0 && m.disk[i] >= 0 {
				n.wipes--
				n.empty(i)
				see(name+" starts with an empty disk", n)
			}
		default:
			if move, changed := n.act(i, b); changed {
				see(name+": "+move.Kind.String()+" "+move.Text, n)
			}
			m.happens(i, name, see)
		}
	}
	n := *m
	if n.alone = !n.alone; n.alone && n.cuts > 0 {
		n.cuts--
		see("n1 is cut off", n)
	} else if !n.alone {
		see("heal", n)
	}
}

func (m *machines) happens(i int, name string, see func(string, machines)) {
	n := *m
	if n.stops > 0 {
		n.stops--
		n.up, n.waited = n.up&^bit(i), n.waited&^bit(i)
		see(name+" stops", n)
	}
	if n = *m; !has(n.waited, i) {
		n.waited |= bit(i)
		see("found_after passes at "+name, n)
	}
	if n = *m; n.store && n.disk[i] >= 0 && n.leads(n.disk[i], i) == i && n.founded[n.disk[i]].inc == n.latest && n.backup != n.disk[i] {
		n.backup = n.disk[i]
		see(name+" backs up", n)
	}
}

// wrong says what is broken in a state.
func (m *machines) wrong(b believing) string {
	var stay []int8
	for k := range m.n {
		if m.leads(k, 0) < 0 && m.leads(k, 1) < 0 || m.gives(k, b) {
			continue
		}
		stay = append(stay, k)
	}
	confirmed := func(k int8) bool { return m.founded[k].confirmed }
	alarm := !m.store && !slices.ContainsFunc(stay, func(k int8) bool { return !confirmed(k) })
	switch {
	case len(stay) > 1 && (!m.alone || m.store) && !alarm:
		return "R10: two foundings stay serving in sight of each other or of one store"
	case m.up == 7 && !m.alone && m.waited == 7 && m.disk == [3]int8{-1, -1, -1} && !m.moves(b):
		return "all are up, empty and have waited, and nobody begins"
	}
	return ""
}

// gives: some node of k is about to give it up.
func (m *machines) gives(k int8, b believing) bool {
	for i := range 3 {
		if m.disk[i] == k && has(m.up, i) {
			n := *m
			if move, changed := n.act(i, b); changed && (move.Kind == Yield || move.Kind == Renew) {
				return true
			}
		}
	}
	return false
}

func (m *machines) moves(b believing) bool {
	for i := range 3 {
		n := *m
		if _, changed := n.act(i, b); changed {
			return true
		}
	}
	return int(m.n) == len(m.founded)
}

// explore visits every state, nearest first, and says what is broken and how it came.
func explore(start machines, b believing, until time.Time) (states int, found string) {
	type came struct {
		from machines
		by   string
	}
	seen := map[machines]came{start: {}}
	tell := func(m machines, what string) string {
		var path []string
		for ; m != start; m = seen[m].from {
			path = append(path, seen[m].by)
		}
		slices.Reverse(path)
		return what + "\n    " + strings.Join(path, "\n    ")
	}
	for queue := []machines{start}; len(queue) > 0 && found == "" && time.Now().Before(until); queue = queue[1:] {
		m := queue[0]
		what := guarded(func() string {
			m.nexts(b, func(by string, n machines) {
				if _, is := seen[n]; !is {
					seen[n] = came{m, by}
					queue = append(queue, n)
				}
			})
			return m.wrong(b)
		})
		if what != "" {
			found = tell(m, what)
		}
	}
	return len(seen), found
}

func threeMachines(store bool) machines {
	return machines{disk: [3]int8{-1, -1, -1}, claimant: -1, author: -1, backup: -1, store: store, wipes: 2, stops: 3, cuts: 1}
}

// R10 and R11: founding, joining, a first node that lost its disk, restore, two foundings that meet.
func TestModelOfFounding(t *testing.T) {
	for _, store := range []bool{false, true} {
		t.Run(fmt.Sprint("store ", store), func(t *testing.T) {
			t.Parallel()
			states, found := explore(threeMachines(store), believing{}, time.Now().Add(modelTime(t)))
			t.Logf("%d states", states)
			if found != "" || states < 1000 {
				t.Error(found)
			}
		})
	}
}

func TestModelOfFoundingCatchesMutants(t *testing.T) {
	f := func(name string, b believing, store bool, want string) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			states, found := explore(threeMachines(store), b, time.Now().Add(10*time.Minute))
			if t.Log(states, " states: ", found); !strings.HasPrefix(found, want) {
				t.Errorf("want %s", want)
			}
		})
	}
	f("silence taken for proof", believing{silenceProves: true}, true, "R11")
	f("a voters note that lags", believing{forgetful: true}, true, "R11")
	f("a founding that never yields", believing{neverYields: true}, false, "R10")
}
