package flow

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestCircuit(t *testing.T) {
	// Steps: 5 waits five seconds; ! hung, . answered, with p in front of it for a probe; ? asks, and says + where everything may be tried, p
	// where this is a probe, - where nothing is.
	f := func(script, want string) {
		t.Helper()
		c, now, got := Circuit{First: time.Second, Longest: 6 * time.Second}, time.Unix(0, 0), ""
		for step := range strings.FieldsSeq(script) {
			switch probe := step[0] == 'p'; {
			case step == "?" && c.Closed():
				got += "+"
			case step == "?" && c.Probe(now):
				got += "p"
			case step == "?":
				got += "-"
			case strings.HasSuffix(step, "!"):
				closed := c.Closed()
				if opened := c.Hung(now, probe); opened != closed {
					t.Errorf("%q: opened is %v", script, opened)
				}
			case strings.HasSuffix(step, "."):
				c.Answered(probe)
			default:
				var s int
				fmt.Sscan(step, &s)
				now = now.Add(time.Duration(s) * time.Second)
			}
		}
		if got != want {
			t.Errorf("%q says %q, want %q", script, got, want)
		}
	}
	f("? . ? ?", "+++")
	f("! ? 1 ? ? p. ? ?", "-p-++")                            // one probe, and it closes
	f("! 1 ? 9 ? p! ? 1 ? 1 ? p! 3 ? 1 ?", "p---p-p")         // twice as long each time, from its end on
	f("! 1 ? p! 2 ? p! 4 ? p! 5 ? 1 ? p! 5 ? 1 ?", "ppp-p-p") // and no longer than the longest
	f("! ! ! . ? 1 ? ! . ? p. ?", "-p-+")                     // what was under way beside it changes nothing
	f("! 1 ? p! 2 ? p. ? ! ? 1 ?", "pp+-p")                   // closed, the pauses begin anew
}
