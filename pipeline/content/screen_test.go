package content

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stream-arrow/twgd/record"
)

// register keeps claims as the set does: whose tail came first.
type register struct {
	mu   sync.Mutex
	key  [32]byte
	by   map[[16]byte][8]byte
	fail error
	rows []Row // of the last call
}

func (r *register) Key(context.Context) ([32]byte, error) { return r.key, nil }

func (r *register) Claim(_ context.Context, _ *[32]byte, rows [][24]byte) (held []Held, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rows = slices.Clone(rows)
	if r.fail != nil {
		return nil, r.fail
	}
	if r.by == nil {
		r.by = map[[16]byte][8]byte{}
	}
	for i, row := range rows {
		hash, tail := [16]byte(row[:16]), [8]byte(row[16:])
		by, there := r.by[hash]
		if !there {
			r.by[hash] = tail
		} else if by != tail {
			held = append(held, Held{Row: i, By: by})
		}
	}
	return held, nil
}

func batch(p int32, first int64, values ...string) Batch {
	b := Batch{}
	for i, v := range values {
		r := record.Record{Offset: first + int64(i), Value: []byte(v)}
		if v == "-" {
			r.Value = nil
		}
		b.Records = append(b.Records, r)
	}
	b.IDs = record.NewHasher(record.Partition{Topic: "t", Number: p}).IDs(nil, b.Records)
	return b
}

func screen(t testing.TB, claims Claims, on string, fields ...string) *Screen {
	t.Helper()
	s, err := New(Options{Stream: "s", On: on, Fields: fields, Claims: claims})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestTwinsAreNamed(t *testing.T) {
	s := screen(t, &register{}, OnValue)
	a, b := batch(0, 0, "x", "-", "y", "", "x"), batch(1, 0, "y", "z", "-", "")
	f := func(want string, batches ...Batch) {
		t.Helper()
		v, err := s.Screen(t.Context(), batches)
		got := fmt.Sprintf("%d", v.Checked)
		for _, reason := range slices.Sorted(maps.Keys(v.Unkeyed)) {
			got += fmt.Sprintf(" %s:%d", reason, v.Unkeyed[reason])
		}
		for _, w := range v.Twins {
			got += fmt.Sprintf(" %d.%d", w.Batch, w.Record)
			for _, other := range []Batch{a, b} {
				for i := range other.IDs {
					if [8]byte(other.IDs[i][8:]) == w.Stands {
						got += "=" + string(other.Records[i].Value)
					}
				}
			}
		}
		if err != nil || got != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	f("5 empty_value:2 null_value:2 0.4=x 1.0=y", a, b)
	f("5 empty_value:2 null_value:2 0.4=x 1.0=y", a, b) // read again: nobody is his own twin
	f("2 empty_value:1 null_value:1 0.0=y", b)
	f("0")
	f("0 null_value:1", batch(2, 0, "-"))
}

func TestCaseD36StreamsDoNotSeeEachOther(t *testing.T) {
	claims := &register{}
	one, two := screen(t, claims, OnValue), screen(t, claims, OnValue)
	two.opt.Stream = "other"
	b := batch(0, 0, "x")
	for _, s := range []*Screen{one, two, screen(t, claims, OnFields, "id")} {
		if v, err := s.Screen(t.Context(), []Batch{b, batch(7, 0, `{"id":1}`)}); err != nil || len(v.Twins) > 0 {
			t.Errorf("%+v, %v", v, err)
		}
	}
}

func TestARawThatBeganAnewDoesNotSeeTheOneBefore(t *testing.T) {
	claims := &register{}
	f := func(raw byte, p int32, fail error, want string) {
		t.Helper()
		s := screen(t, claims, OnValue)
		s.opt.Raw = func(context.Context) ([32]byte, error) { return [32]byte{raw}, fail }
		v, err := s.Screen(t.Context(), []Batch{batch(p, 0, "x")})
		if got := fmt.Sprint(v.Checked, len(v.Twins)); err == nil && got != want || err != nil && Reason(err) != want {
			t.Errorf("in raw %d: %s, %v, want %q", raw, got, err, want)
		}
	}
	f(1, 0, errors.New("it does not answer"), "raw")
	f(1, 0, nil, "1 0")
	f(2, 1, nil, "1 0")
	f(2, 2, nil, "1 1")
}

// babble answers nonsense.
type babble struct {
	register
	held []Held
}

func (b *babble) Claim(context.Context, *[32]byte, [][24]byte) ([]Held, error) { return b.held, nil }

func TestWrongAnswersAreNotBelieved(t *testing.T) {
	b := batch(0, 0, "x", "-", "y", "z")
	own := [8]byte(b.IDs[0][8:])
	other := [8]byte{1}
	s := screen(t, &babble{held: []Held{{2, other}, {-1, other}, {0, own}, {1, other}, {3, other}, {1, other}, {99, other}}}, OnValue)
	v, err := s.Screen(t.Context(), []Batch{b})
	if want := []Twin{{0, 2, other}, {0, 3, other}}; err != nil || !slices.Equal(v.Twins, want) {
		t.Errorf("%v, %v, want %v", v.Twins, err, want)
	}
}

func TestReasons(t *testing.T) {
	f := func(err error, want string) {
		t.Helper()
		s := screen(t, &register{fail: err}, OnValue)
		v, got := s.Screen(t.Context(), []Batch{batch(0, 0, "x", "-")})
		if Reason(got) != want || v.Checked != 0 || v.Unkeyed != nil || v.Twins != nil {
			t.Errorf("%v gives %+v and %q, want %q", err, v, Reason(got), want)
		}
	}
	f(&Unavailable{"circuit", errors.New("x")}, "circuit")
	f(fmt.Errorf("claiming: %w", &Unavailable{"no_leader", errors.New("x")}), "no_leader")
	f(context.DeadlineExceeded, "timeout")
	f(fmt.Errorf("x: %w", context.Canceled), "stopped")
	f(errors.New("x"), "failed")
}

func TestOptionsThatContradict(t *testing.T) {
	f := func(opt Options, want string) {
		t.Helper()
		if _, err := New(opt); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", opt, err, want)
		}
	}
	f(Options{On: OnValue, Fields: []string{"a"}}, "fields are declared")
	f(Options{On: OnFields}, "no field")
	f(Options{On: "key"}, "not \"key\"")
	f(Options{On: OnFields, Fields: []string{"a.b", "a"}}, "part of")
}

// The vectors of docs/formats/content-hash.md.
func TestVectors(t *testing.T) {
	f := func(stream, value string, fields []string, want string) {
		t.Helper()
		claims := &register{}
		for i := range claims.key {
			claims.key[i] = byte(i)
		}
		on := OnValue
		if len(fields) > 0 {
			on = OnFields
		}
		s, err := New(Options{Stream: stream, On: on, Fields: fields, Claims: claims})
		if err != nil {
			t.Fatal(err)
		}
		b := batch(0, 0, value)
		if _, err := s.Screen(t.Context(), []Batch{b}); err != nil {
			t.Fatal(err)
		}
		row := claims.rows[0]
		if got := hex.EncodeToString(row[:16]); got != want {
			t.Errorf("%s, %s, %v: %s, want %s", stream, value, fields, got, want)
		}
		if [8]byte(row[16:]) != [8]byte(b.IDs[0][8:]) {
			t.Errorf("the row ends with %x, not with the tail of %v", row[16:], b.IDs[0])
		}
	}
	f("orders", "hello", nil, "1ffd181ead22eb53cb03d0dba722aec6")
	f("bills", "hello", nil, "040a0dd1ca996adbc66657c340fc9490")
	f("orders", `{"id":"a-1","pay":{"sum":12.50,"ok":true}}`, nil, "26f620daa651666e9dd5102bdab0b393")
	f("orders", `{"id":"a-1","pay":{"sum":12.50,"ok":true}}`, []string{"id"}, "283ba4a533a3689a8eaa77dfc43f0651")
	f("orders", `{"pay":{"ok":true,"sum":125e-1},"id":"\u0061-1"}`, []string{"id", "pay.sum", "pay.ok"}, "f534e9a64406e16f6edba4dfc602cc1e")
}

// silent holds nothing.
type silent struct{}

func (silent) Key(context.Context) (key [32]byte, err error)                         { return key, nil }
func (silent) Claim(context.Context, *[32]byte, [][24]byte) (held []Held, err error) { return nil, nil }

func BenchmarkScreen(b *testing.B) {
	value := `{"order":"0191d7a2-6c1e-7b3f-9a55-2f1f6a0c7e11","customer":48151623,"status":"paid","at":"2026-11-30T00:00:00Z",` +
		`"amount":{"sum":1299.95,"currency":"EUR"},"lines":[{"sku":"A-17","n":2},{"sku":"B-9","n":1}]}`
	value += strings.Repeat(" ", 200-min(200, len(value)))
	batches := []Batch{batch(0, 0, slices.Repeat([]string{value}, 10_000)...)}
	for _, fields := range [][]string{nil, {"order"}, {"order", "status", "amount.sum"}} {
		on := OnValue
		if fields != nil {
			on = OnFields
		}
		s := screen(b, silent{}, on, fields...)
		b.Run(fmt.Sprintf("fields=%d", len(fields)), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Screen(b.Context(), batches); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/10_000, "ns/record")
		})
	}
	b.Logf("%d bytes a value", len(value))
}

// What a sink refuses whatever its value is stands for nobody: it claims nothing, and another record of its content is nobody's twin.
func TestTheUnfitStandForNobody(t *testing.T) {
	claims := &register{}
	s, err := New(Options{Stream: "s", On: OnValue, Claims: claims, Unfit: func(r *record.Record) string {
		if len(r.Headers) > 0 {
			return Oversize
		}
		return ""
	}})
	if err != nil {
		t.Fatal(err)
	}
	b := batch(0, 0, "x", "x", "x", "")
	b.Records[0].Headers = []record.Header{{Key: "large"}}
	b.Records[3].Headers = b.Records[0].Headers
	v, err := s.Screen(t.Context(), []Batch{b})
	want := Verdict{Checked: 2, Unkeyed: map[string]int64{Oversize: 1, EmptyValue: 1}, Twins: []Twin{{Batch: 0, Record: 2, Stands: b.IDs[1].Tail()}}}
	if err != nil || !reflect.DeepEqual(v, want) {
		t.Errorf("%+v %v, want %+v", v, err, want)
	}
}
