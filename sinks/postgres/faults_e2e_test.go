//go:build e2e

package postgres

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks"
	"github.com/stream-arrow/twgd/test/servers"
	"go.uber.org/goleak"
)

// many are records of partition p with values of 200 bytes, from..to.
func many(from, to int) (rs []record.Record) {
	for i := from; i < to; i++ {
		r := values(fmt.Sprintf("%0200d", i))[0]
		r.Offset, r.Timestamp = int64(i), r.Timestamp+int64(i)
		rs = append(rs, r)
	}
	return rs
}

// through is a sink over a proxy that stands before the shared server.
func (d *database) through(change func(*Options)) (*Sink, *servers.TCPFaults) {
	d.t.Helper()
	f, err := servers.NewTCPFaults(server.Addr())
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { f.Close() })
	via, err := servers.Via(d.dsn, f.Addr())
	if err != nil {
		d.t.Fatal(err)
	}
	s := d.sink(func(o *Options) {
		o.DSN = via
		if change != nil {
			change(o)
		}
	})
	if err := s.Open(d.t.Context()); err != nil {
		d.t.Fatal(err)
	}
	return s, f
}

// late is what is said of a server that hangs; short makes a sink say so soon.
const late = "no answer in time"

// timedOut is said where either clock may run out first, ours or the server's.
const timedOut = "time"

func short(o *Options) {
	o.StatementTimeout, o.ConnectTimeout = 700*time.Millisecond, 700*time.Millisecond
}

// fast fails the test where f takes more than a few seconds.
func fast(t *testing.T, f func()) {
	t.Helper()
	start := time.Now()
	f()
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
}

// TestCaseD12Outage stands for every outage: nothing is refused, nothing covered, and all rows arrive afterwards.
func TestCaseD12Outage(t *testing.T) {
	f := func(t *testing.T, reason string, down, up func(d *database, f *servers.TCPFaults)) {
		t.Helper()
		d := newDatabase(t, server)
		var change func(*Options)
		if reason == late || reason == timedOut {
			change = short
		}
		s, faults := d.through(change)
		l := loaded(t, s, orders0, many(0, 2000))
		down(d, faults)
		for range 3 {
			fast(t, func() {
				_, err := l.Commit(t.Context(), noReport(t))
				fails(t, err, sinks.Retry, reason)
			})
		}
		up(d, faults)
		commits(t, l)
		d.ask("SELECT count(*), count(DISTINCT _twg_record_id) FROM orders", "2000|2000")
		d.ask("SELECT spans::text FROM _twg_coverage", `{"[0,2000)"}`)
	}
	mode := func(m servers.TCPMode) func(*database, *servers.TCPFaults) {
		return func(d *database, f *servers.TCPFaults) { set(d.t, f, m) }
	}
	raise := func(code string) func(*database, *servers.TCPFaults) {
		return func(d *database, _ *servers.TCPFaults) {
			d.exec("CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.__kafka_offset = 1000 THEN RAISE SQLSTATE '" + code + "'; END IF; RETURN NEW; END $$")
			d.exec("CREATE TRIGGER fail BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION fail()")
		}
	}
	mend := func(d *database, _ *servers.TCPFaults) { d.exec("DROP FUNCTION fail CASCADE") }
	t.Run("refused", func(t *testing.T) { f(t, "postgres", mode(servers.TCPRefuse), mode(servers.TCPPass)) })
	t.Run("reset", func(t *testing.T) { f(t, "postgres", mode(servers.TCPReset), mode(servers.TCPPass)) })
	t.Run("hangs", func(t *testing.T) { f(t, late, mode(servers.TCPHang), mode(servers.TCPPass)) })
	for _, code := range []string{"53100", "53200", "57014", "57P03", "55P03", "40001", "08006", "XX000"} {
		t.Run(code, func(t *testing.T) { f(t, code, raise(code), mend) })
	}
	t.Run("locked", func(t *testing.T) {
		f(t, timedOut, func(d *database, _ *servers.TCPFaults) { d.exec("BEGIN; LOCK orders IN ACCESS EXCLUSIVE MODE") },
			func(d *database, _ *servers.TCPFaults) { d.exec("ROLLBACK") })
	})
}

// TestCanceledInTheMiddle: a call ends soon after its ctx, wherever it stands, and leaves no goroutine behind once the sink is closed.
func TestCanceledInTheMiddle(t *testing.T) {
	d := newDatabase(t, server)
	s, f := d.through(nil)
	l := loaded(t, s, orders0, many(0, 20000))
	before := goleak.IgnoreCurrent()
	set(t, f, servers.TCPHang)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	fast(t, func() {
		_, err := l.Commit(ctx, noReport(t))
		fails(t, err, sinks.Retry, "")
	})
	fast(t, func() {
		_, err := s.Count(ctx, orders0, nil)
		if err != nil {
			t.Errorf("a count of nothing: %v", err)
		}
		_, err = s.Coverage(ctx, orders0)
		fails(t, err, sinks.Retry, "")
		fails(t, s.Open(ctx), sinks.Retry, "")
	})
	s.Close()
	_, err := s.Coverage(t.Context(), orders0)
	fails(t, err, sinks.Retry, "closed")
	f.Close()
	goleak.VerifyNone(t, before)
}

// cutter is a proxy that breaks a connection when a client message holds a text, before or after the server has seen it.
type cutter struct {
	net.Listener
	text  []byte
	after int64       // bytes of that direction to let through from there on
	lose  bool        // let it all through, and lose the answer
	armed atomic.Bool // breaks once
	wg    sync.WaitGroup
}

func newCutter(t *testing.T, d *database, text string, after int64, lose bool) (dsn string, c *cutter) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c = &cutter{Listener: l, text: []byte(text), after: after, lose: lose}
	c.wg.Go(c.accept)
	t.Cleanup(func() { c.Close(); c.wg.Wait() })
	if dsn, err = servers.Via(d.dsn, l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	return dsn, c
}

func (c *cutter) accept() {
	for {
		client, err := c.Accept()
		if err != nil {
			return
		}
		backend, err := net.Dial("tcp", server.Addr())
		if err != nil {
			client.Close()
			return
		}
		c.wg.Go(func() { c.forward(client, backend) })
	}
}

func (c *cutter) forward(client, backend net.Conn) {
	defer backend.Close()
	defer client.Close()
	var lost atomic.Bool
	c.wg.Go(func() {
		buf := make([]byte, 1<<16)
		for {
			n, err := backend.Read(buf)
			if lost.Load() && n > 0 { // the server has answered
				client.Close()
				return
			}
			if _, werr := client.Write(buf[:n]); err != nil || werr != nil {
				client.Close()
				return
			}
		}
	})
	buf := make([]byte, 1<<16)
	left := int64(-1)
	for {
		n, err := client.Read(buf)
		if err != nil {
			return
		}
		if left < 0 && bytes.Contains(buf[:n], c.text) && c.armed.CompareAndSwap(true, false) {
			left = c.after
			lost.Store(c.lose)
		}
		if !c.lose && left >= 0 {
			if left -= int64(n); left < 0 {
				return
			}
		}
		if _, err := backend.Write(buf[:n]); err != nil {
			return
		}
	}
}

func TestConnectionCut(t *testing.T) {
	f := func(name, text string, after int64, lose, committed bool) {
		t.Run(name, func(t *testing.T) {
			d := newDatabase(t, server)
			dsn, c := newCutter(t, d, text, after, lose)
			s := d.opened(func(o *Options) { o.DSN = dsn })
			rs := many(0, 5000)
			rs[3].Value = []byte("\xff")
			l := loaded(t, s, orders0, rs)
			c.armed.Store(true)
			var got rejects
			_, err := l.Commit(t.Context(), got.report)
			fails(t, err, sinks.Retry, "the connection to")
			if c.armed.Load() {
				t.Fatal("nothing was cut")
			}
			want := "0"
			if committed {
				want = "4999"
			}
			d.ask("SELECT count(*) FROM orders", want)
			r, err := l.Commit(t.Context(), got.report)
			if err != nil || r.Rows != 4999 || r.Rejected != 1 {
				t.Fatalf("the second commit: %+v, %v", r, err)
			}
			if strings.Join(got, "\n") != "3: 22021 character_not_in_repertoire, column __kafka_value" {
				t.Errorf("rejects are %v", got)
			}
			d.ask("SELECT count(*), count(DISTINCT __kafka_offset) FROM orders", "4999|4999")
			d.ask("SELECT spans::text FROM _twg_coverage", `{"[0,5000)"}`)
		})
	}
	f("in the middle of COPY", "FROM STDIN", 300_000, false, false)
	f("before COMMIT arrives", "SET spans", 0, false, false)
	f("after COMMIT, its answer lost", "SET spans", 0, true, true)
}

// TestServerCrash: the server goes down hard between COPY and COMMIT, and later between two commits.
func TestServerCrash(t *testing.T) {
	own, err := servers.Postgres(t.Context(), servers.PostgresOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { own.Close() })
	if own.PID() == 0 {
		t.Skip("an external server cannot be crashed")
	}
	d := newDatabase(t, own)
	s := d.opened(nil)
	rs := many(0, 3000)
	rs[7].Value = []byte("\xff")
	l := loaded(t, s, orders0, rs)
	crash := func(context.Context, []sinks.Reject) error { return own.Crash() } // rows are copied, coverage is not
	_, err = l.Commit(t.Context(), crash)
	fails(t, err, sinks.Retry, "postgres")
	_, err = l.Commit(t.Context(), noReport(t))
	fails(t, err, sinks.Retry, "cannot connect")
	if err := own.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	commits(t, l)
	if err := own.Crash(); err != nil {
		t.Fatal(err)
	}
	if err := own.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	commits(t, loaded(t, s, orders0, many(3000, 3001))) // the idle connection is dead: one more is tried at once
	d.connect()
	d.ask("SELECT count(*) FROM orders", "3000")
	d.ask("SELECT spans::text FROM _twg_coverage", `{"[0,3001)"}`)
}

// TestWritersInEveryOrder: many writers of the same partitions, whose loads overlap and name them in different orders, neither
// wait for each other nor double a row.
func TestWritersInEveryOrder(t *testing.T) {
	d := newDatabase(t, server)
	const writers, rounds, partitions = 8, 10, 6
	var wg sync.WaitGroup
	first := d.opened(nil)
	for w := range writers {
		s := d.sink(nil)
		s.setTable(first.table())
		wg.Go(func() {
			for r := range rounds {
				l, _ := s.Begin()
				for i := range partitions {
					p := orders0
					p.Number = int32((i*5 + w) % partitions)
					if err := l.Add(batchOf(p, int64(r*10), int64(r*10+15), many(r*10, r*10+15))); err != nil {
						t.Error(err)
					}
				}
				if _, err := l.Commit(t.Context(), noReport(t)); err != nil {
					t.Errorf("writer %d round %d: %v", w, r, err)
				}
				l.Discard()
			}
		})
	}
	wg.Wait()
	d.ask("SELECT count(*), count(DISTINCT (__kafka_partition, __kafka_offset)) FROM orders", "630|630")
	d.ask("SELECT DISTINCT spans::text FROM _twg_coverage", `{"[0,105)"}`)
}

// TestOpenAtOnce: nodes that start at the same time make the tables once.
func TestOpenAtOnce(t *testing.T) {
	d := newDatabase(t, server)
	errs := make(chan error)
	for range 8 {
		s := d.sink(nil)
		go func() { errs <- s.Open(t.Context()) }()
	}
	for range 8 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// TestSettingsOfOthers: what a database or a role has set does not change what a commit means.
func TestSettingsOfOthers(t *testing.T) {
	d := newDatabase(t, server)
	db := d.sql.Config().Database
	for _, set := range []string{"synchronous_commit = off", "default_transaction_isolation = serializable", "default_transaction_read_only = on",
		"statement_timeout = 400", "bytea_output = escape", "standard_conforming_strings = off", "client_encoding = latin1", "datestyle = 'German'"} {
		d.exec("ALTER DATABASE " + db + " SET " + set)
	}
	d.made("text")
	d.exec("CREATE TABLE seen AS SELECT ''::text AS s, ''::text AS i")
	d.exec("CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.6); INSERT INTO seen VALUES (current_setting('synchronous_commit'), current_setting('transaction_isolation')); RETURN NEW; END $$")
	d.exec("CREATE TRIGGER see AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION see()")
	s := d.opened(func(o *Options) { o.Sink = `d'"\\b` })
	p := orders0
	p.Topic = `a"b\c,{}`
	commits(t, loaded(t, s, p, values("é")))
	commits(t, loaded(t, s, p, values("é")))
	d.ask("SELECT * FROM seen WHERE s <> ''", "on|read committed")
	d.ask("SELECT __kafka_value, spans::text FROM orders, _twg_coverage", `é|{"[0,1)"}`)
	got, err := s.Coverage(t.Context(), p)
	if err != nil || got.String() != "[0, 1)" {
		t.Errorf("coverage is %v, %v", got, err)
	}
}

// TestIdleConnectionsEnd: connections have a name and are closed when nobody uses them.
func TestIdleConnectionsEnd(t *testing.T) {
	d := newDatabase(t, server)
	s := d.opened(func(o *Options) { o.IdleTimeout = 300 * time.Millisecond })
	for range 3 {
		commits(t, loaded(t, s, orders0, values("a")))
	}
	count := func() (n int) {
		if err := d.sql.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'twgd/s/db' AND datname = current_database()").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := count(); n > 1 {
		t.Errorf("%d connections for commits one after the other", n)
	}
	for deadline := time.Now().Add(20 * time.Second); count() > 0; d.exec("SELECT pg_sleep(0.05)") {
		if time.Now().After(deadline) {
			t.Fatal("an unused connection is kept")
		}
	}
	commits(t, loaded(t, s, orders0, values("a")))
}
