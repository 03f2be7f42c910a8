package dedupset

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// desk is a leader with a real table behind it, and the way there, in fake time: a Proposer that tries until its context ends, as the cluster's
// does.
type desk struct {
	began time.Time
	key   [32]byte
	late  sync.WaitGroup // what lands after its caller has gone

	mu       sync.Mutex
	table    Table
	fate     func() fate
	asked    int // proposals
	keys     int // questions for the key
	open     int
	openMost int
}

// fate is what becomes of one attempt.
type fate struct {
	lost   bool          // nobody hears of it
	mute   bool          // it is carried out, and the answer is lost
	twice  bool          // it is carried out once more, some time later
	takes  time.Duration // until it is carried out
	err    error         // it is refused
	hidden time.Duration // until twice
}

var errLost = errors.New("nothing came back")

func newDesk() *desk {
	return &desk{began: time.Now(), key: [32]byte{1}, fate: func() fate { return fate{takes: time.Millisecond} }}
}

// does sets what becomes of attempts from now on.
func (d *desk) does(f fate) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fate = func() fate { return f }
}

func (d *desk) Key(context.Context) ([32]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.keys++
	return d.key, nil
}

func (d *desk) Propose(ctx context.Context, cmd []byte) ([]byte, error) {
	d.mu.Lock()
	d.asked++
	d.open++
	d.openMost = max(d.openMost, d.open)
	d.mu.Unlock()
	defer func() { d.mu.Lock(); d.open--; d.mu.Unlock() }()
	for {
		reply, err := d.attempt(ctx, cmd)
		if err == nil {
			return reply, nil
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(err, ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (d *desk) attempt(ctx context.Context, cmd []byte) ([]byte, error) {
	d.mu.Lock()
	f := d.fate()
	d.mu.Unlock()
	if f.err != nil || f.lost {
		return nil, errors.Join(f.err, errLost)
	}
	if f.twice {
		d.late.Go(func() { time.Sleep(f.hidden); d.apply(cmd) })
	}
	done := make(chan []byte, 1)
	d.late.Go(func() { time.Sleep(f.takes); done <- d.apply(cmd) })
	select {
	case reply := <-done:
		if f.mute {
			return nil, errLost
		}
		return reply, nil
	case <-ctx.Done():
		return nil, errLost
	}
}

func (d *desk) apply(cmd []byte) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Since(d.began)
	d.table.Expire(now)
	return d.table.Apply(now, cmd)
}

func (d *desk) stats() []Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.table.Stats(time.Since(d.began))
}

// counts since the last call.
func (d *desk) counts() (asked, keys int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	asked, keys = d.asked, d.keys
	d.asked, d.keys = 0, 0
	return asked, keys
}

func (d *desk) filter(change ...func(*FilterOptions)) *Filter {
	o := FilterOptions{Proposer: d, Key: d.Key, Stream: "s", Window: time.Hour, Entries: 1_000_000}
	for _, c := range change {
		c(&o)
	}
	return NewFilter(o)
}

// bubble runs f in fake time, with a desk.
func bubble(t *testing.T, f func(t *testing.T, d *desk)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk()
		f(t, d)
		d.late.Wait()
	})
}

// row is a content and a record, both named by a number.
func row(content, record uint64) (r [24]byte) {
	for i, b := 0, mix(content); i < 8; i++ {
		r[i], r[8+i], r[16+i] = byte(b>>(8*i)), byte(mix(b)>>(8*i)), byte(record>>(8*i))
	}
	return r
}

func tail(record uint64) [8]byte { r := row(0, record); return [8]byte(r[16:]) }

// rows are the contents a, b, c … of a text, each of the record whose number follows it: "a1b2".
func rows(text string) (out [][24]byte) {
	for i := 0; i+1 < len(text); i += 2 {
		out = append(out, row(uint64(text[i]), uint64(text[i+1]-'0')))
	}
	return out
}

// shown is what is held, as rows shows it: "0:3 2:1".
func shown(held []Held) (out string) {
	for i, h := range held {
		if i > 0 {
			out += " "
		}
		out += string(rune('0'+h.Row)) + ":" + string(rune('0'+h.By[0]))
	}
	return out
}

// claim claims rows and fails the test where that cannot be done.
func claim(t *testing.T, f *Filter, text string) string {
	t.Helper()
	key, err := f.Key(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	held, err := f.Claim(t.Context(), &key, rows(text))
	if err != nil {
		t.Fatalf("claiming %s: %v", text, err)
	}
	return shown(held)
}

// reason is why a claim cannot be made, and how long that took to find out.
func reason(t *testing.T, f *Filter, text string) (string, time.Duration) {
	t.Helper()
	begin := time.Now()
	key := [32]byte{1}
	_, err := f.Claim(t.Context(), &key, rows(text))
	var un *Unavailable
	if err != nil && !errors.As(err, &un) {
		t.Fatalf("the error is %T", err)
	}
	if err == nil {
		return "", time.Since(begin)
	}
	return un.Reason, time.Since(begin)
}

// chance is a generator that a test can print.
func chance(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 7)) }
