package coverage

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/stream-arrow/twgd/avrofile"
	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/internal/faultbucket"
	"github.com/stream-arrow/twgd/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var orders = record.Partition{Cluster: "c", Topic: "orders", TopicID: [16]byte{0xab, 15: 1}, Number: 4, Generation: 2}

func set(spans ...int64) (s checkpoint.SpanSet) {
	for i := 0; i < len(spans); i += 2 {
		s.Add(checkpoint.Span{From: spans[i], To: spans[i+1]})
	}
	return s
}

func load(t *testing.T, b *faultbucket.Bucket, sink string) Set {
	t.Helper()
	s, err := Load(t.Context(), b, "s", sink)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// running runs a publisher in fake time, and f beside it.
func running(t *testing.T, f func(t *testing.T, b *faultbucket.Bucket, p *Publisher, stop func())) {
	synctest.Test(t, func(t *testing.T) {
		b := faultbucket.New()
		p := NewPublisher(Options{Bucket: b, Stream: "s", Node: "n~i", Every: 10 * time.Second, Rand: func() float64 { return 0.5 }})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		stopped := false
		stop := func() {
			if stopped {
				return
			}
			stopped = true
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		f(t, b, p, stop)
		stop()
	})
}

func TestObject(t *testing.T) {
	running(t, func(t *testing.T, b *faultbucket.Bucket, p *Publisher, _ func()) {
		p.Covered("db", orders, set(0, 5, 9, 12))
		p.Covered("db", record.Partition{Topic: "a"}, set(1, 2))
		time.Sleep(10 * time.Second)
		want := `{"version":1,"stream":"s","sink":"db","node":"n~i","written":"2000-01-01T00:00:00Z","partitions":[` +
			`{"cluster":"","topic":"a","topic_id":"00000000000000000000000000000000","partition":0,"generation":0,"spans":[{"from":1,"to":2}]},` +
			`{"cluster":"c","topic":"orders","topic_id":"ab000000000000000000000000000001","partition":4,"generation":2,"spans":[{"from":0,"to":5},{"from":9,"to":12}]}]}`
		if got := string(b.Get("s/_coverage/db/n~i.json")); got != want {
			t.Errorf("got\n%s, want\n%s", got, want)
		}
	})
}

func TestUnionOverNodes(t *testing.T) {
	b := faultbucket.New()
	put := func(node string, s Set) {
		t.Helper()
		body, err := encode("s", "db", node, s, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		b.Put("s/_coverage/db/"+node+".json", body)
	}
	other := orders
	other.Generation = 0
	put("a~1", Set{orders: set(0, 5)})
	put("b~1", Set{orders: set(3, 9, 20, 30), other: set(7, 8)})
	put("_merged", Set{orders: set(100, 200)}) // a cache of somebody else's, which may lag behind its sources
	b.Put("s/_coverage/db/readme.txt", []byte("?"))
	b.Put("s/_coverage/db2/a~1.json", []byte("?"))
	if got, want := load(t, b, "db"), (Set{orders: set(0, 9, 20, 30), other: set(7, 8)}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := load(t, b, "lake"); len(got) != 0 {
		t.Errorf("of nothing %v", got)
	}
}

func TestDamage(t *testing.T) {
	f := func(body string) {
		t.Helper()
		b := faultbucket.New()
		b.Put("s/_coverage/db/a~1.json", []byte(body))
		if got, err := Load(t.Context(), b, "s", "db"); !errors.Is(err, avrofile.ErrDamaged) {
			t.Errorf("%s is read as %v, %v", body, got, err)
		}
	}
	whole := `{"version":1,"partitions":[{"topic":"a","topic_id":"00000000000000000000000000000000","spans":[{"from":1,"to":2}]}]}`
	if err := decode([]byte(whole), Set{}); err != nil {
		t.Fatal(err)
	}
	f("")
	f(whole[:50])
	f(strings.Replace(whole, `"000`, `"00`, 1))
	f(strings.Replace(whole, `"from":1`, `"from":-1`, 1))
	f(strings.Replace(whole, `"to":2`, `"to":1`, 1))
	if err := decode([]byte(strings.Replace(whole, `:1,`, `:2,`, 1)), Set{}); err == nil {
		t.Error("another version is read")
	}
}

// A thousand receipts in ten seconds are one write, and what is covered already is none.
func TestGathers(t *testing.T) {
	running(t, func(t *testing.T, b *faultbucket.Bucket, p *Publisher, _ func()) {
		f := func(want int) {
			t.Helper()
			synctest.Wait()
			if n := b.Calls("replace"); n != want {
				t.Errorf("at %v: %d writes, want %d", time.Now().Format("05.000"), n, want)
			}
		}
		p.Covered("db", orders, set(0, 1))
		f(1) // the first at once
		for i := range int64(1000) {
			p.Covered("db", orders, set(i, i+1))
			time.Sleep(10*time.Second/1000 - 1)
		}
		f(1)
		time.Sleep(time.Millisecond)
		f(2)
		p.Covered("lake", orders, set(0, 1)) // another sink has its own time
		f(3)
		time.Sleep(time.Hour)
		p.Covered("db", orders, set(3, 600))
		f(3)
		if got := load(t, b, "db")[orders].String(); got != "[0, 1000)" {
			t.Error(got)
		}
	})
}

func TestFlushAtShutdown(t *testing.T) {
	running(t, func(t *testing.T, b *faultbucket.Bucket, p *Publisher, stop func()) {
		p.Covered("db", orders, set(0, 1))
		synctest.Wait()
		p.Covered("db", orders, set(5, 6))
		p.Covered("lake", orders, set(7, 8))
		stop()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		b.Script("replace", faultbucket.Refuse, faultbucket.Lost)
		if err := p.Flush(ctx); err != nil {
			t.Error(err)
		}
		if got := fmt.Sprint(load(t, b, "db")[orders], load(t, b, "lake")[orders]); got != "[0, 1) [5, 6) [7, 8)" {
			t.Error(got)
		}
	})
}

func TestStoreIsAway(t *testing.T) {
	for _, fault := range []faultbucket.Fault{faultbucket.Refuse, faultbucket.Hang, faultbucket.Deny} {
		running(t, func(t *testing.T, b *faultbucket.Bucket, p *Publisher, stop func()) {
			b.Fault(func(faultbucket.Call) faultbucket.Fault { return fault })
			p.Covered("db", orders, set(0, 1))
			time.Sleep(time.Hour)
			if n := b.Calls("read"); n > 120 || p.Err() == nil && fault != faultbucket.Hang {
				t.Errorf("%d attempts in an hour, %v", n, p.Err())
			}
			stop()
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			begin := time.Now()
			if err := p.Flush(ctx); err == nil || time.Since(begin) != 3*time.Second {
				t.Errorf("after %v: %v", time.Since(begin), err)
			}
		})
	}
}

// What comes while a write is on its way, or a write that failed, is written by the next one.
func TestFailedWriteStaysDirty(t *testing.T) {
	running(t, func(t *testing.T, b *faultbucket.Bucket, p *Publisher, _ func()) {
		b.Script("replace", faultbucket.Vanish, faultbucket.Refuse)
		p.Covered("db", orders, set(0, 1))
		time.Sleep(time.Minute)
		if got := load(t, b, "db")[orders].String(); got != "[0, 1)" || p.Err() != nil {
			t.Error(got, p.Err())
		}
	})
}

func TestRestartKeepsWhatWasWritten(t *testing.T) {
	f := func(former, want string) {
		t.Helper()
		running(t, func(t *testing.T, b *faultbucket.Bucket, p *Publisher, _ func()) {
			b.Put("s/_coverage/db/n~i.json", []byte(former))
			b.Script("read", faultbucket.Refuse, faultbucket.Refuse)
			p.Covered("db", orders, set(7, 9))
			time.Sleep(time.Minute)
			if got := load(t, b, "db")[orders].String(); got != want {
				t.Errorf("after %q: %s, want %s", former, got, want)
			}
		})
	}
	body, _ := encode("s", "db", "n~i", Set{orders: set(0, 5)}, time.Now())
	f(string(body), "[0, 5) [7, 9)")
	f(string(body[:40]), "[7, 9)")
}

func TestNewerVersionIsNotReplaced(t *testing.T) {
	running(t, func(t *testing.T, b *faultbucket.Bucket, p *Publisher, _ func()) {
		b.Put("s/_coverage/db/n~i.json", []byte(`{"version":2}`))
		p.Covered("db", orders, set(7, 9))
		time.Sleep(time.Minute)
		if got := string(b.Get("s/_coverage/db/n~i.json")); got != `{"version":2}` || p.Err() == nil {
			t.Error(got, p.Err())
		}
	})
}

func TestKeepsNoMemoryOfCallers(t *testing.T) {
	running(t, func(t *testing.T, b *faultbucket.Bucket, p *Publisher, _ func()) {
		s := set(0, 1)
		p.Covered("db", orders, s)
		s.Add(checkpoint.Span{From: 1, To: 100})
		time.Sleep(time.Minute)
		if got := load(t, b, "db")[orders].String(); got != "[0, 1)" {
			t.Error(got)
		}
	})
}
