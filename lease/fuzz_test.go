package lease

import (
	"bytes"
	"testing"
	"time"
)

// FuzzApply: any command gets a reply, and what the table is afterwards can be written and read.
func FuzzApply(f *testing.F) {
	f.Add(Epoch(2), acquireCommand("w", "n", request("r1"), ttl, true))
	f.Add(acquireCommand("v", "n", request("r2"), ttl, false), renewCommand([]uint64{1<<tokenBits | 1, 0}))
	f.Add(releaseCommand("w", 1<<tokenBits|1, true), withdrawCommand("w", request("r1")))
	f.Add([]byte{format, opRenew, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}, observeQuestion("w"))
	f.Fuzz(func(t *testing.T, one, two []byte) {
		var table Table
		table.Apply(0, Epoch(1))
		table.Apply(0, acquireCommand("w", "n", request("r0"), ttl, true))
		for i, cmd := range [][]byte{one, two, one} {
			if reply := table.Apply(time.Duration(i)*time.Second, cmd); show(reply) == "" && len(reply) != 1 {
				t.Errorf("%x: reply %x", cmd, reply)
			}
			if len(table.Query(cmd)) == 0 {
				t.Errorf("%x: no answer", cmd)
			}
		}
		data := section(t, &table)
		if again := section(t, restored(t, data)); !bytes.Equal(data, again) {
			t.Errorf("%x became %x", data, again)
		}
	})
}

// FuzzRestore: a section is refused, or is what the table writes again.
func FuzzRestore(f *testing.F) {
	var table Table
	f.Add(section(f, &table))
	table.Apply(0, Epoch(1))
	for _, cmd := range [][]byte{
		acquireCommand("w", "a", request("r1"), ttl, true),
		acquireCommand("w", "b", request("r2"), ttl, true),
		acquireCommand("v", "b", request("r3"), ttl, true),
		releaseCommand("v", 1<<tokenBits|2, true),
		withdrawCommand("v", request("r4")),
	} {
		table.Apply(time.Second, cmd)
		f.Add(section(f, &table))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var table Table
		if err := table.Restore(version, bytes.NewReader(data)); err != nil {
			return
		}
		first := section(t, &table)
		if second := section(t, restored(t, first)); !bytes.Equal(first, second) {
			t.Errorf("%x became %x", first, second)
		}
		table.Expire(1<<63 - 1)
		if table.Len() != 0 || table.rows.len() != 0 {
			t.Errorf("%d rows outlive all time", table.rows.len())
		}
	})
}

// FuzzReplies: no reply makes the client panic.
func FuzzReplies(f *testing.F) {
	f.Add(replyGranted(7))
	f.Add([]byte{codeGranted})
	f.Fuzz(func(t *testing.T, reply []byte) {
		c := New(Options{})
		a, err := c.attempt("w", ttl, false)
		if err != nil {
			t.Fatal(err)
		}
		_ = EpochReply(reply)
		_, _ = readObserve(reply)
		if code(reply) != codeWaiting {
			if h, _, _ := c.heard(t.Context(), a, reply, time.Now()); h != nil {
				h.giveUp()
			}
		}
	})
}
