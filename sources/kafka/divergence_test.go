package kafka

import (
	"bytes"
	"context"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/stream-arrow/twgd/sources"
)

func TestCaseD34(t *testing.T) {
	f := func(name string, next int64, epoch int32, answer func(p *kmsg.OffsetForLeaderEpochResponseTopicPartition), want string) {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				w.produce("orders", 0, 0, 100)
				w.gate.Store(w.identity("orders", 0), sources.Start{Next: next, LeaderEpoch: epoch, Stored: true})
				var healed atomic.Bool
				w.cluster.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(req kmsg.Request) (kmsg.Response, error, bool) {
					w.cluster.KeepControl()
					if answer == nil {
						return nil, nil, false
					}
					set := answer
					if healed.Load() {
						set = func(p *kmsg.OffsetForLeaderEpochResponseTopicPartition) { p.EndOffset = 150 }
					}
					return epochAnswer(req.(*kmsg.OffsetForLeaderEpochRequest), set), nil, true
				})
				r := w.open()
				p := r.Only()
				r.Until("a word", func() bool { return strings.Contains(r.Held[p], want) })
				w.produce("orders", 0, 100, 50)
				r.For(time.Minute)
				if answer != nil && (r.Total() > 0 || len(r.Gaps) > 0) {
					t.Fatalf("read %v gaps %v", r.Values, r.Gaps)
				}
				healed.Store(true)
				r.Until("the end of it", func() bool { return len(r.Held) == 0 && r.Next[p] == 150 })
			}, kfake.SeedTopics(1, "orders"))
		})
	}
	f("the epoch ends below", 80, 0, func(p *kmsg.OffsetForLeaderEpochResponseTopicPartition) { p.EndOffset = 60 }, "ends at offset 60")
	f("the epoch is not known", 80, 0, func(p *kmsg.OffsetForLeaderEpochResponseTopicPartition) { p.EndOffset, p.LeaderEpoch = -1, -1 }, "knows nothing of leader epoch")
	f("a lower epoch", 80, 3, func(p *kmsg.OffsetForLeaderEpochResponseTopicPartition) { p.EndOffset, p.LeaderEpoch = 100, 2 }, "no epoch above 2")
	f("the log ends below", 140, -1, nil, "ends at offset 100, below our position 140")
}

func epochAnswer(req *kmsg.OffsetForLeaderEpochRequest, set func(p *kmsg.OffsetForLeaderEpochResponseTopicPartition)) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
	p := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
	p.LeaderEpoch = req.Topics[0].Partitions[0].LeaderEpoch
	set(&p)
	t := kmsg.NewOffsetForLeaderEpochResponseTopic()
	t.Topic, t.Partitions = req.Topics[0].Topic, []kmsg.OffsetForLeaderEpochResponseTopicPartition{p}
	resp.Topics = append(resp.Topics, t)
	return resp
}

// The leader changes while the partition is read: the log is compared before anything of the new leader's is taken.
func TestCaseD34UnderWay(t *testing.T) {
	bubble(t, func(w *world) {
		w.produce("orders", 0, 0, 20)
		r := w.open()
		p := r.Only()
		r.Until("all", func() bool { return r.Total() == 20 })
		var diverged atomic.Bool
		diverged.Store(true)
		w.cluster.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(req kmsg.Request) (kmsg.Response, error, bool) {
			w.cluster.KeepControl()
			return epochAnswer(req.(*kmsg.OffsetForLeaderEpochRequest), func(p *kmsg.OffsetForLeaderEpochResponseTopicPartition) { p.EndOffset = 15 }), nil, diverged.Load()
		})
		w.check(w.cluster.MoveTopicPartition("orders", 0, 1-w.cluster.LeaderFor("orders", 0)))
		w.produce("orders", 0, 20, 20)
		r.Until("a word", func() bool { return strings.Contains(r.Held[p], "diverged") })
		r.For(time.Minute)
		if r.Total() != 20 {
			t.Fatalf("%d records were read", r.Total())
		}
		diverged.Store(false)
		r.Until("the rest", func() bool { return r.Total() == 40 && len(r.Held) == 0 })
	}, kfake.SeedTopics(1, "orders"), kfake.NumBrokers(2), kfake.Ports(9092, 9093))
}

// A leader that moves honestly costs nothing.
func TestLeaderMoves(t *testing.T) {
	bubble(t, func(w *world) {
		r := w.open()
		p := r.Only()
		for i := range 6 {
			w.produce("orders", 0, i*10, 10)
			r.Until("ten more", func() bool { return r.Total() == i*10+10 })
			w.check(w.cluster.MoveTopicPartition("orders", 0, 1-w.cluster.LeaderFor("orders", 0)))
		}
		if !slices.Equal(r.Values[p], numbers(0, 60)) || len(r.Gaps)+len(r.Held)+len(r.Notices) > 0 {
			t.Fatalf("values %v gaps %v held %v notices %v", r.Values[p], r.Gaps, r.Held, r.Notices)
		}
	}, kfake.SeedTopics(1, "orders"), kfake.NumBrokers(2), kfake.Ports(9092, 9093))
}

// A batch that is damaged on its way or in the log holds its partition, with the offset, and is tried again.
func TestDamaged(t *testing.T) {
	bubble(t, func(w *world) {
		w.produce("orders", 0, 0, 10)
		var damage atomic.Bool
		damage.Store(true)
		r := w.open(func(o *Options) { o.Dial = damaging(w.net.DialContext, &damage) })
		p := r.Only()
		r.Until("a word", func() bool { return strings.Contains(r.Held[p], "the batch at offset 4 cannot be read: its checksum") })
		r.For(time.Second)
		if r.Next[p] != 4 {
			t.Fatalf("next is %d", r.Next[p])
		}
		damage.Store(false)
		r.Until("the rest", func() bool { return r.Next[p] == 10 && len(r.Held) == 0 })
		if !slices.Equal(r.Values[p], numbers(0, 10)) {
			t.Fatalf("read %v", r.Values[p])
		}
	}, kfake.SeedTopics(1, "orders"))
}

// damaging changes the value of the fifth record, in whatever is read.
func damaging(dial dialFunc, on *atomic.Bool) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return damagedConn{conn, on}, err
	}
}

type damagedConn struct {
	net.Conn
	on *atomic.Bool
}

func (c damagedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if i := bytes.Index(b[:n], []byte("\x01\x024\x00")); i >= 0 && c.on.Load() { // no key, one byte, "4", no headers
		b[i+2] = '5'
	}
	return n, err
}
