package postgres

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// jsonDocuments are right and wrong ones; the test on a real server compares its judgement of each with ours.
var jsonDocuments = []string{
	``, ` `, `null`, `nul`, `nulll`, `NULL`, `true`, `false`, `tru`, `0`, `-0`, `-`, `01`, `-01`, `1.`, `.5`, `1.5`, `1e5`, `1E+5`, `1e-5`, `1e`, `1e+`, `+1`, `1 `, "\t\n\r 1", "\f1", "\u00a01", `1,`, `1 2`,
	`""`, `"a`, `"a\"`, `"\"`, `"\x"`, `"\/\b\f\n\r\t\\\""`, "\"\x1f\"", "\"\x7f\"", `"é"`, `é`, `"\u00e9"`, `"\u00E"`, `"\u00g0"`, `"\u"`, `"\ud83d\ude00"`, `"\ud83d"`, `"\ud83dx"`, `"\ud83d\u0041"`, `"\ude00"`, `"\ud83d\ud83d\ude00"`, `"\u0000"`, `"\\u0000"`, `"\uFFFF"`,
	`[]`, `[ ]`, `[`, `]`, `[1`, `[1,`, `[1,]`, `[,1]`, `[1 2]`, `[1}`, `[[],[[]]]`, `[1,[2,{"a":[]}],3]`, `[]]`,
	`{}`, `{ }`, `{`, `}`, `{"a"}`, `{"a":}`, `{"a":1`, `{"a":1,}`, `{"a":1,"a":2}`, `{a:1}`, `{1:2}`, `{"a":1]`, `{"a":{"b":{"c":null}}}`, `{"a" : 1 , "b" : [ ] }`, `{"a":1 "b":2}`, `{:1}`, `{"a"::1}`, `{"\u0000":1}`, `{"a":"\ud800"}`,
	"\ufeff1", `"a" /* c */`, `'a'`, `NaN`, `Infinity`, `truefalse`, `[true,false,null]`, `1a`, `"a"b`, `[1]x`, "\"\xff\"", "\"\xed\xa0\x80\"",
}

func TestJSONFault(t *testing.T) {
	for _, doc := range jsonDocuments {
		checkJSON(t, []byte(doc))
	}
	f := func(doc, want string) {
		t.Helper()
		if got := jsonFault([]byte(doc)); got != want {
			t.Errorf("%.60q: %q, want %q", doc, got, want)
		}
	}
	f(`{"name":"a\u0000b"}`, untranslatable)
	f("\"a\x00b\"", notInEncoding)
	f("\"\xff\"", notInEncoding)
	f(`"\ud800"`, invalidText)
	f(`"\udc00"`, invalidText)
	f(`{`, invalidText)
	f(`{"first":"FIRST"}`, "")
	f(strings.Repeat(`{"a":[`, 1<<20)+strings.Repeat("]}", 1<<20), "")
	f(strings.Repeat(`{"a":[`, 1<<20)+strings.Repeat("}]", 1<<20), invalidText)
	f(strings.Repeat(`{"a":[`, 1<<20)+"1"+strings.Repeat("]}", 1<<20), "")
}

// checkJSON compares our judgement with that of encoding/json, which knows the same grammar but no surrogates and no U+0000.
func checkJSON(t *testing.T, doc []byte) {
	t.Helper()
	got := jsonFault(doc)
	switch {
	case !utf8.Valid(doc) || bytes.IndexByte(doc, 0) >= 0:
		if got != notInEncoding {
			t.Errorf("%q: %q, want %q", doc, got, notInEncoding)
		}
	case bytes.Contains(doc, []byte(`\u`)):
		if got == "" && !json.Valid(doc) {
			t.Errorf("%q passes and is wrong", doc)
		}
	case (got == "") != json.Valid(doc):
		t.Errorf("%q: %q, encoding/json says %v", doc, got, json.Valid(doc))
	}
}

func FuzzJSONFault(f *testing.F) {
	for _, doc := range jsonDocuments {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		if len(doc) < 5000 { // encoding/json refuses what is nested deeper than 10000
			checkJSON(t, doc)
		}
	})
}
