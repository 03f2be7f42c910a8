package content

import (
	"slices"
	"strings"
	"testing"
)

// scan is the encoding of the fields of value, or "!" and the reason why there is none.
func scan(t testing.TB, value string, paths ...string) string {
	t.Helper()
	paths = slices.Sorted(slices.Values(paths))
	root, nodes, err := newTree(paths)
	if err != nil {
		t.Fatal(err)
	}
	return scanWith(newScanner(root, len(paths), nodes), value)
}

func scanWith(s *scanner, value string) string {
	encoded, reason := s.fields([]byte(value))
	if reason != "" {
		return "!" + reason
	}
	return string(encoded)
}

func TestEqualFieldsAreEncodedAlike(t *testing.T) {
	f := func(paths string, values ...string) {
		t.Helper()
		want := scan(t, values[0], strings.Fields(paths)...)
		if want[0] == '!' {
			t.Errorf("%s: %s", values[0], want)
		}
		for _, v := range values[1:] {
			if got := scan(t, v, strings.Fields(paths)...); got != want {
				t.Errorf("%s is %q, %s is %q", values[0], want, v, got)
			}
		}
	}
	f("id", `{"id":1}`, `{"id":1.0}`, ` { "id" : 1e0 } `, "{\n\t\"x\":[1,{\"id\":2}],\"id\":10e-1}", `{"i\u0064":1}`, `{"id":1,"y":{"id":null}}`)
	f("id", `{"id":"a/b"}`, `{"id":"a\/b"}`, `{"id":"\u0061\u002fb"}`)
	f("id", `{"id":1}`, `{"x":"\\","id":1}`, `{"x":"\\\"","id":1,"y":"\\\\\"}"}`, `{"x":["]\"",{"}":"{"}],"id":1}`, `{"":"","id":1,"\\":"\"id\":2"}`)
	f("id", `{"id":"😀"}`, `{"id":"\ud83d\ude00"}`)
	f("a.b c", `{"a":{"b":true},"c":"x"}`, `{"c":"x","z":0,"a":{"q":[],"b":true}}`)
	f("c a.b", `{"a":{"b":true},"c":"x"}`, `{"c":"x","a":{"b":true}}`)
	f("id", `{"id":1,"x":{"n":1,"n":2},"y":0,"y":1}`, `{"id":1}`) // names beside the path may be what they like
}

func TestUnequalFieldsAreEncodedApart(t *testing.T) {
	f := func(paths string, values ...string) {
		t.Helper()
		seen := map[string]string{}
		for _, v := range values {
			got := scan(t, v, strings.Fields(paths)...)
			if was, twice := seen[got]; twice || got[0] == '!' {
				t.Errorf("%s and %s are both %q", was, v, got)
			}
			seen[got] = v
		}
	}
	f("id", `{"id":1}`, `{"id":"1"}`, `{"id":true}`, `{"id":"true"}`, `{"id":false}`, `{"id":""}`, `{"id":0}`, `{"id":"0"}`, `{"id":-1}`,
		`{"id":1.5}`, `{"id":"1e0"}`, `{"id":9007199254740993}`, `{"id":9007199254740992}`, `{"id":" 1"}`, `{"id":"t"}`)
	f("a b", `{"a":"x","b":"y"}`, `{"a":"y","b":"x"}`, `{"a":"xy","b":""}`, `{"a":"","b":"xy"}`, `{"a":"xs\u0000\u0000\u0000\u0001","b":"y"}`,
		`{"a":"x","b":true}`, `{"a":true,"b":"x"}`, `{"a":"\u00e9","b":"y"}`, `{"a":"e\u0301","b":"y"}`)
}

func TestUnkeyed(t *testing.T) {
	f := func(reason, paths string, values ...string) {
		t.Helper()
		for _, v := range values {
			if got := scan(t, v, strings.Fields(paths)...); got != "!"+reason {
				t.Errorf("%s with %s: %q, want %s", v, paths, got, reason)
			}
		}
	}
	f(MissingField, "id", `{}`, `[]`, `1`, `null`, `"id"`, `{"id":null}`, `{"ID":1}`, `[{"id":1}]`, `{"x":{"id":1}}`)
	f(MissingField, "a.b", `{"a":1}`, `{"a":[{"b":1}]}`, `{"a":null}`, `{"a.b":1}`, `{"a":{"b":null}}`, `{"b":1}`)
	f(MissingField, "a b", `{"a":1}`, `{"b":"x"}`, `{"a":1,"b":null}`)
	f(FieldType, "id", `{"id":{}}`, `{"id":[1]}`, `{"id":{"id":1}}`, `{"id":1e99999999999999999999}`)
	f(FieldType, "a b", `{"a":[]}`, `{"a":{},"b":1}`)
	f(DuplicateKey, "id", `{"id":1,"id":1}`, `{"id":1,"x":0,"i\u0064":2}`, `{"id":null,"id":1}`, `{"id":[],"id":1}`)
	f(DuplicateKey, "a.b", `{"a":{"b":1},"a":{"c":2}}`, `{"a":{"b":1,"b":1}}`, `{"a":1,"a":{"b":1}}`)
	f(NotJSON, "id", ``, ` `, `{`, `{"id":1`, `{"id":1}}`, `{"id":1} x`, `{"id":1}{"id":1}`, `{"id":1,}`, `{"id":01}`, `{"id":+1}`, `{"id":.5}`, `{"id":1.}`,
		`{"id":1e}`, `{"id":NaN}`, `{'id':1}`, `{id:1}`, `{"id":tru}`, `{"id":"a`, "{\"id\":\"a\n\"}", `{"id":"\x"}`, `{"id":"\ud800"}`, "{\"id\":\"\xff\"}",
		"\ufeff{\"id\":1}", `{"id":1,"x":[1,]}`, `{"id":1,"x":"`+"\x00"+`"}`, `{"id":1}//`, `{"id" 1}`, `{"id":1 "x":2}`, `{1:1}`,
		`{"id":1,"x":`+strings.Repeat("[", 20_000)+strings.Repeat("]", 20_000)+`}`)
}

func TestFieldsThatContradict(t *testing.T) {
	f := func(want string, paths ...string) {
		t.Helper()
		if _, _, err := newTree(paths); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", paths, err, want)
		}
	}
	f("empty name", "")
	f("empty name", "a..b")
	f("empty name", "a.")
	f("part of", "a", "a.b")
	f("parts of it", "a.b", "a")
	f("the same", "a", "a")
}
