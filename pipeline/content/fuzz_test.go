package content

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzReformat writes one document in two spellings, and another one that differs in a declared field: the first two have equal encodings,
// the third has not.
func FuzzReformat(f *testing.F) {
	for seed := range uint64(64) {
		f.Add(seed, "order", int64(1250), int16(2))
	}
	root, nodes, err := newTree([]string{"id", "pay.ok", "pay.sum"})
	if err != nil {
		f.Fatal(err)
	}
	scan := newScanner(root, 3, nodes)
	f.Fuzz(func(t *testing.T, seed uint64, id string, sum int64, scale int16) {
		id = strings.ToValidUTF8(id, "?")
		w := &writer{dice: rand.New(rand.NewPCG(seed, 7))}
		doc := func(id string, ok bool, sum int64) string {
			pay := w.object("sum", w.number(sum, int(scale)), "ok", fmt.Sprint(ok), "rest", w.other())
			return w.space() + w.object("id", w.text(id), "pay", pay, "x", w.other(), "y.z", w.other()) + w.space()
		}
		ok := seed%2 == 0
		a, b := doc(id, ok, sum), doc(id, ok, sum)
		want := scanWith(scan, a)
		if want[0] == '!' {
			t.Fatalf("%s: %s", a, want)
		}
		if got := scanWith(scan, b); got != want {
			t.Errorf("%s and %s are apart: %q, %q", a, b, want, got)
		}
		for _, c := range []string{doc(id+"x", ok, sum), doc(id, !ok, sum), doc(id, ok, sum^1)} {
			if got := scanWith(scan, c); got == want {
				t.Errorf("%s and %s are both %q", a, c, got)
			}
		}
	})
}

// writer spells JSON in any way there is.
type writer struct{ dice *rand.Rand }

func (w *writer) space() string { return []string{"", "", " ", "\n\t", "\r\n "}[w.dice.IntN(5)] }

func (w *writer) object(pairs ...string) string {
	var members []string
	for i := 0; i < len(pairs); i += 2 {
		members = append(members, w.space()+w.text(pairs[i])+w.space()+":"+w.space()+pairs[i+1]+w.space())
	}
	w.dice.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	return "{" + strings.Join(members, ",") + "}"
}

func (w *writer) text(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r > 0xffff && w.dice.IntN(2) == 0:
			fmt.Fprintf(&b, `\u%04x\u%04X`, 0xd800+(r-0x10000)>>10, 0xdc00+(r-0x10000)&0x3ff)
		case r <= 0xffff && (r < ' ' || r == '"' || r == '\\' || w.dice.IntN(4) == 0):
			fmt.Fprintf(&b, `\u%04x`, r)
		case r == '/' && w.dice.IntN(2) == 0:
			b.WriteString(`\/`)
		default:
			b.WriteRune(r)
		}
	}
	return b.String() + `"`
}

// number spells n × 10^-scale.
func (w *writer) number(n int64, scale int) string {
	sign, digits := "", fmt.Sprint(new(big.Int).Abs(big.NewInt(n)))
	if n < 0 {
		sign = "-"
	}
	for range w.dice.IntN(3) {
		digits, scale = digits+"0", scale+1
	}
	switch w.dice.IntN(3) {
	case 0:
		cut := w.dice.IntN(len(digits))
		whole, part := digits[:cut], digits[cut:]
		if whole == "" || whole[0] == '0' {
			whole, part = "0", digits
		}
		return fmt.Sprintf("%s%s.%sE%d", sign, whole, part, len(part)-scale)
	case 1:
		if strings.TrimLeft(digits, "0") == "" {
			digits = "0"
		}
		return fmt.Sprintf("%s%se%d", sign, digits, -scale)
	}
	return fmt.Sprintf("%s0.%se%+d", sign, digits, len(digits)-scale)
}

func (w *writer) other() string {
	return []string{`null`, `[1,{"id":2,"id":3}]`, `"\ud83d\ude00"`, `{"sum":[],"ok":{}}`, `1e-7`, `{}`, ` [ ] `}[w.dice.IntN(7)]
}

// FuzzField holds the scanner against encoding/json: what has an encoding is JSON, and the encoding says its value. What encoding/json takes and
// the scanner does not has a reason.
func FuzzField(f *testing.F) {
	for _, v := range []string{`{"id":1}`, `{"id":"a\u0062"}`, `{"id":1.50e2}`, `{"id":true,"x":[{}]}`, `{"id":null}`, `{"id":{}}`, `{"id":1,"id":2}`,
		`[1]`, `{"id":"\ud800"}`, `{"id":01}`, `{"id":1}x`, "{\"id\":\"\xff\"}", `{"id":-0.0}`, `{"id":1e400}`, `{"\u0069d":"😀"}`, `null`, ``} {
		f.Add([]byte(v))
	}
	root, nodes, err := newTree([]string{"id"})
	if err != nil {
		f.Fatal(err)
	}
	scan := newScanner(root, 1, nodes)
	f.Fuzz(func(t *testing.T, value []byte) {
		given := bytes.Clone(value)
		encoded, reason := scan.fields(value)
		if !bytes.Equal(value, given) {
			t.Fatalf("%q was changed to %q", given, value)
		}
		if reason == NotJSON {
			if json.Valid(value) && utf8.Valid(value) && !bytes.Contains(bytes.ToLower(value), []byte(`\ud`)) {
				t.Errorf("%q is refused", value)
			}
			return
		}
		if !json.Valid(value) {
			t.Fatalf("%q is no JSON, and is taken: %q, %s", value, encoded, reason)
		}
		if reason == "" {
			compare(t, value, encoded)
		}
	})
}

// compare checks that encoded is what encoding/json reads. It takes names in any case, so that there may be nothing to compare.
func compare(t *testing.T, value, encoded []byte) {
	var doc map[string]any
	dec := json.NewDecoder(bytes.NewReader(value))
	dec.UseNumber()
	if err := dec.Decode(&doc); err != nil {
		t.Fatalf("%q: %v", value, err)
	}
	switch v := doc["id"].(type) {
	case string:
		if string(encoded[5:]) != v || encoded[0] != 's' {
			t.Errorf("%q is %q, want %q", value, encoded, v)
		}
	case bool:
		if string(encoded) != map[bool]string{true: "t", false: "f"}[v] {
			t.Errorf("%q is %q, want %v", value, encoded, v)
		}
	case json.Number:
		sameNumber(t, string(encoded), v.String())
	default:
		t.Errorf("%q is %q, want %v", value, encoded, v)
	}
}

// sameNumber compares values, unless they are too long to write out.
func sameNumber(t *testing.T, encoded, text string) {
	if encoded[0] != 'n' {
		t.Errorf("%s is %q", text, encoded)
	}
	if i := strings.IndexAny(text, "eE"); i >= 0 && len(text)-i > 5 {
		return
	}
	got, ok := new(big.Rat).SetString(encoded[5:])
	want, _ := new(big.Rat).SetString(text)
	if !ok || got.Cmp(want) != 0 {
		t.Errorf("%s is %q", text, encoded)
	}
}
