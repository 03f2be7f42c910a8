//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stream-arrow/twgd/test/harness"
	"github.com/stream-arrow/twgd/test/servers"
)

// observer samples a node's status beside the test.
type observer struct {
	mu     sync.Mutex
	states []string // of the sink, each change
	lag    int64    // the greatest
	gap    int64    // the greatest: offsets that were left to recovery
	stop   func()
}

// observe samples until stop is called.
func (b *bed) observe(sink string) *observer {
	o := &observer{}
	done := make(chan struct{})
	var running sync.WaitGroup
	o.stop = sync.OnceFunc(func() { close(done); running.Wait() })
	b.Cleanup(o.stop)
	running.Go(func() {
		for {
			if st, err := b.node.Status(); err == nil && len(st.Streams) > 0 {
				o.note(st.Streams[0], sink)
			}
			select {
			case <-done:
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	return o
}

func (o *observer) note(s harness.StreamStatus, sink string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if state := s.Sink(sink).State; len(o.states) == 0 || o.states[len(o.states)-1] != state {
		o.states = append(o.states, state)
	}
	if gap := s.Sink(sink).GapRecords; gap != nil {
		o.gap = max(o.gap, *gap)
	}
	for _, p := range s.Partitions {
		if p.Lag != nil {
			o.lag = max(o.lag, *p.Lag)
		}
	}
}

// nothingRejected fails where the quarantine has anything.
func (b *bed) nothingRejected() {
	b.Helper()
	st, err := b.node.Status()
	harness.Must(b, err)
	if q := st.Streams[0].Quarantine; q.Records == nil || *q.Records != 0 || q.Shed == nil || *q.Shed != 0 {
		b.Errorf("the quarantine is not empty: %s", st)
	}
}

// TestCaseD05ForNow: a sink that cannot be logged into claims nothing and rejects nothing, and has all once it can.
func TestCaseD05ForNow(t *testing.T) {
	suite.NeedsOurOwn(t, servers.EnvPG)
	t.Parallel()
	dsn := suite.Database(t)
	harness.Exec(t, dsn, "create role d05 nologin; grant all on schema public to d05")
	b := lay(t, 1, func(s *harness.Stream) {
		s.Sinks = []harness.Sink{harness.ToPostgres("db", strings.Replace(dsn, "postgres@", "d05@", 1))}
	})
	b.node.Start()
	b.Send(harness.Plain(0, 3, 10)...)
	b.node.WaitUntil("raw to have 3 and the sink to be blocked", 30*time.Second, func(s harness.StreamStatus) bool {
		db := s.Sink("db")
		return s.Raw() == 3 && db.State == "blocked" && strings.Contains(db.LastError, "log in") && (db.Covered == nil || *db.Covered == 0)
	})
	b.nothingRejected()
	harness.Exec(t, dsn, "alter role d05 login")
	b.complete(3)
	b.nothingRejected()
	b.stop()
	harness.SameIDs(t, "the table", harness.TableIDs(t, dsn, "orders"), suite.IDs(b.topic, b.Acked()))
}

// TestCaseD12: the database's disk is full, which is nobody's fault: nothing is quarantined, the intake goes on, all arrives.
func TestCaseD12(t *testing.T) {
	t.Parallel()
	dsn := suite.Database(t)
	b := lay(t, 3, func(s *harness.Stream) {
		s.Sinks = []harness.Sink{harness.ToPostgres("db", dsn)}
		s.Sinks[0].Deadline = lasting(20*time.Second, 4*time.Second).String()
	})
	b.node.Start()
	b.Send(harness.Plain(0, 1, 10)...)
	b.complete(1)
	harness.Exec(t, dsn, `create function full_disk() returns trigger language plpgsql as
		$$ begin raise exception 'could not extend file' using errcode = '53100'; end $$;
		create trigger full_disk before insert on orders for each statement execute function full_disk()`)
	o := b.observe("db")
	b.Begin(1000)
	time.Sleep(lasting(60*time.Second, 10*time.Second))
	b.node.WaitUntil("raw to keep up", 5*time.Second, func(s harness.StreamStatus) bool { return s.Raw() >= b.Count()-1000 })
	want := b.End()
	b.nothingRejected()
	harness.Exec(t, dsn, "drop trigger full_disk on orders")
	b.complete(int64(len(want)))
	o.stop()
	st, err := b.node.Status()
	harness.Must(t, err)
	o.note(st.Streams[0], "db")
	b.nothingRejected()
	b.stop()
	seen := strings.Join(o.states, " ")
	if !strings.Contains(seen, "live retrying") || !strings.HasSuffix(seen, "live") || strings.Contains(seen, "blocked") {
		t.Errorf("the sink's states were %q, want live, retrying, …, live", seen)
	}
	if o.gap == 0 {
		t.Error("no gap was shown, though the deadline passed during the outage")
	}
	t.Logf("%d records, at most %d of them left to recovery, states %s", len(want), o.gap, seen)
	harness.SameIDs(t, "the table", harness.TableIDs(t, dsn, "orders"), suite.IDs(b.topic, want))
}

// TestCaseD16: a table that is gone blocks its sink, with the reason; after it is made again all arrives.
func TestCaseD16(t *testing.T) {
	t.Parallel()
	dsn := suite.Database(t)
	b := lay(t, 1, func(s *harness.Stream) { s.Sinks = []harness.Sink{harness.ToPostgres("db", dsn)} })
	b.node.Start()
	b.Send(harness.Plain(0, 10, 10)...)
	b.complete(10)
	harness.Exec(t, dsn, "create table kept (like orders including all); insert into kept select * from orders; drop table orders")
	b.Send(harness.Plain(0, 1000, 10)...)
	b.node.WaitUntil("raw to have all and the sink to be blocked", 30*time.Second, func(s harness.StreamStatus) bool {
		db := s.Sink("db")
		return s.Raw() == 1010 && db.State == "blocked" && strings.Contains(db.LastError, "table missing") && db.Covered != nil && *db.Covered == 10
	})
	harness.Exec(t, dsn, "alter table kept rename to orders")
	b.complete(1010)
	b.stop()
	harness.SameIDs(t, "the table", harness.TableIDs(t, dsn, "orders"), suite.IDs(b.topic, b.Acked()))
}

// TestPostgresDown: Postgres refuses connections, or hangs, for a minute while records come at half of what was measured to be the
// most. The intake does not notice, nothing is quarantined, the table is complete afterwards.
func TestPostgresDown(t *testing.T) {
	for name, mode := range map[string]servers.TCPMode{"refuses": servers.TCPRefuse, "hangs": servers.TCPHang} {
		t.Run(name, func(t *testing.T) { postgresDown(t, mode) })
	}
}

func postgresDown(t *testing.T, mode servers.TCPMode) {
	faults, err := servers.NewTCPFaults(suite.Postgres.Addr())
	harness.Must(t, err)
	defer faults.Close()
	dsn := suite.Database(t)
	through, err := servers.Via(dsn, faults.Addr())
	harness.Must(t, err)
	b := lay(t, 6, func(s *harness.Stream) {
		s.Sinks = []harness.Sink{harness.ToPostgres("db", through)}
		s.Sinks[0].Deadline = "5s"
	})
	rate := b.most() / 2
	harness.Must(t, faults.Set(mode))
	o := b.observe("db")
	b.Begin(rate)
	time.Sleep(lasting(time.Minute, 15*time.Second))
	o.stop() // the lag counts while Postgres is away
	st, err := b.node.Status()
	harness.Must(t, err)
	if s := st.Streams[0].Sink("db").State; s != "retrying" {
		t.Errorf("the sink is %s with Postgres away", s)
	}
	b.nothingRejected()
	harness.Must(t, faults.Set(servers.TCPPass))
	want := b.End()
	b.node.WaitUntil("the table to be complete", 90*time.Second, func(s harness.StreamStatus) bool { return s.Complete(int64(len(want))) })
	b.nothingRejected()
	b.stop()
	perPartition := int64(rate) / 6
	t.Logf("%d records a second came, the lag of a partition was at most %d records (%.2f s)", rate, o.lag, float64(o.lag)/float64(perPartition))
	if o.lag >= 2*perPartition {
		t.Errorf("the lag of a partition was %d records at %d a second: 2 s and more", o.lag, perPartition)
	}
	harness.SameIDs(t, "the table", harness.TableIDs(t, dsn, "orders"), suite.IDs(b.topic, want))
}

// most measures how many records a second go through raw into the table, but no more than 12000: what this test produces and compares
// takes a share of the same machine.
func (b *bed) most() int {
	b.Helper()
	for p := range b.topic.Partitions {
		b.Send(harness.Plain(p, 5000, 100)...)
	}
	begin := time.Now()
	b.node.Start()
	b.complete(b.Count())
	return min(int(float64(b.Count())/time.Since(begin).Seconds()), 12000)
}

// ddl is the table as a user would make it; the type of the value is theirs to choose.
func ddl(value string) string {
	return fmt.Sprintf(`create table orders (_twg_record_id uuid primary key, __kafka_topic text, __kafka_partition int, __kafka_offset bigint,
		__kafka_timestamp timestamptz, __kafka_timestamp_type smallint, __kafka_leader_epoch int, __kafka_producer_id bigint, __kafka_producer_epoch smallint,
		__kafka_headers jsonb, __kafka_key bytea, __kafka_value %s)`, value)
}
