package wire

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// What a decoder accepts it writes in the same way again; what it does not accept does it no harm.

func FuzzHello(f *testing.F) {
	f.Add(hello{cluster: "prod", from: "n1~a", to: "n2~b", founding: Founding{1}}.frame())
	f.Add([]byte{})
	f.Add([]byte{helloVersion})
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parseHello(b)
		if err != nil || len(h.cluster)+len(h.from)+len(h.to) > 2*MaxName {
			return
		}
		if again, err := parseHello(h.frame()); err != nil || again != h {
			t.Fatalf("%v became %v, %v", h, again, err)
		}
	})
}

func FuzzReply(f *testing.F) {
	f.Add(reply{result: replyServer, server: "n2~b"}.frame())
	f.Add(reply{result: replyFounding, founding: Founding{2}}.frame())
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseReply(b)
		if err != nil || len(r.server) > 2*MaxName {
			return
		}
		if again, err := parseReply(r.frame()); err != nil || again != r {
			t.Fatalf("%v became %v, %v", r, again, err)
		}
		if (r.reason(hello{}, "x") == nil) != (r.result == replyWelcome) {
			t.Fatalf("result %d", r.result)
		}
	})
}

func FuzzFrame(f *testing.F) {
	f.Add([]byte{0, 3, 1, 2, 3})
	f.Add([]byte{0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		frame, err := readFrame(bytes.NewReader(b))
		if err != nil {
			return
		}
		var again bytes.Buffer
		if err := writeFrame(&again, frame); err != nil || !bytes.HasPrefix(b, again.Bytes()) || len(frame) > frameMost {
			t.Fatalf("%x became %x, %v", b, again.Bytes(), err)
		}
	})
}

func FuzzGreeting(f *testing.F) {
	f.Add("0123456789abcdef-0123456789abcdef.prod.twgd")
	f.Fuzz(func(t *testing.T, s string) {
		if g, ok := parseGreeting(s); ok && (g.String() != s || g.cluster == "") {
			t.Fatalf("%q became %q", s, g)
		}
	})
}

func FuzzHeaders(f *testing.F) {
	f.Add(Founding{1}.String(), "1000", "n1~a")
	f.Fuzz(func(t *testing.T, founding, timeout, id string) {
		if got, ok := parseFounding(founding); ok && got.String() != strings.ToLower(founding) {
			t.Fatalf("%q became %v", founding, got)
		}
		if d := allowed(timeout); d < 0 || d > time.Minute {
			t.Fatalf("%q allows %v", timeout, d)
		}
		if checkServerID(id, "n1") == nil && id != "" && !strings.HasPrefix(id, "n1~") {
			t.Fatalf("%q is one of n1", id)
		}
	})
}
