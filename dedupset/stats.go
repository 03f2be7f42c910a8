package dedupset

import (
	"encoding/binary"
	"time"
)

// Stats is what a set says of itself.
type Stats struct {
	Stream  string
	Window  time.Duration // as declared
	Held    time.Duration // how far back every claim is known: Window, or less where the cap has evicted claims early
	Cap     int64         // entries, as declared
	Entries int64         // claims that are known
	Bytes   int64         // what this replica holds for them: index and rows. The only number that replicas may differ in
	Claimed uint64        // rows that were asked about, ever
	Twins   uint64        // of them: held by another record
	Evicted uint64        // claims let go before their window was over, or not taken, since the cap was reached
}

// statsSize is how long a set is in the answer to a question, its name not counted.
const statsSize = 8 * 8

// ParseStats reads the answer to a question: the stats of all sets, by stream.
func ParseStats(reply []byte) ([]Stats, error) {
	var out []Stats
	for b := reply; len(b) > 0; {
		n := int(b[0])
		if len(b) < 1+n+statsSize {
			return nil, errReply
		}
		out = append(out, parseStats(string(b[1:1+n]), b[1+n:]))
		b = b[1+n+statsSize:]
	}
	return out, nil
}

func parseStats(stream string, b []byte) Stats {
	u := func(i int) uint64 { return binary.BigEndian.Uint64(b[8*i:]) }
	return Stats{
		Stream: stream, Window: time.Duration(u(0)), Held: time.Duration(u(1)), Cap: int64(u(2)), Entries: int64(u(3)),
		Bytes: int64(u(4)), Claimed: u(5), Twins: u(6), Evicted: u(7),
	}
}

func appendStats(to []byte, s *Stats) []byte {
	to = append(append(to, byte(len(s.Stream))), s.Stream...)
	for _, v := range []uint64{
		uint64(s.Window), uint64(s.Held), uint64(s.Cap), uint64(s.Entries), uint64(s.Bytes), s.Claimed, s.Twins, s.Evicted,
	} {
		to = binary.BigEndian.AppendUint64(to, v)
	}
	return to
}
