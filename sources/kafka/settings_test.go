package kafka

import (
	"strings"
	"testing"
)

func TestOptions(t *testing.T) {
	f := func(change func(*Options), want string) {
		t.Helper()
		o := Options{Brokers: []string{"a:1"}, Topics: []string{"t"}, Group: "g"}
		change(&o)
		_, err := New(o)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	f(func(*Options) {}, "")
	f(func(o *Options) { o.Brokers = nil }, "no brokers")
	f(func(o *Options) { o.Group = "" }, "neither a group nor partitions")
	f(func(o *Options) { o.Topics = nil }, "either topics or topics_regex")
	f(func(o *Options) { o.TopicsRegex = "x" }, "either topics or topics_regex")
	f(func(o *Options) { o.Topics, o.TopicsRegex = nil, "(" }, "topics_regex")
	f(func(o *Options) { o.Partitions = map[string][]int32{"t": {0}} }, "partitions stand alone")
	f(func(o *Options) { o.Topics, o.Group, o.Partitions = nil, "", map[string][]int32{"t": {0}} }, "")
	f(func(o *Options) { o.Start = "yesterday" }, `start: "yesterday"`)
	f(func(o *Options) { o.Start = "1960-01-01T00:00:00Z" }, "start")
	f(func(o *Options) { o.Isolation = "serializable" }, "isolation")
	f(func(o *Options) { o.OnGap = "panic" }, "on_gap")
	f(func(o *Options) { o.Fetch.MaxBytes = 5 }, "fetch.max_bytes")
	f(func(o *Options) { o.SASL.Mechanism = "GSSAPI" }, "sasl.mechanism")
	f(func(o *Options) { o.TLS = TLSOptions{Enabled: true, CAFile: "/does/not/exist"} }, "tls.ca_file")
	f(func(o *Options) { o.TLS = TLSOptions{Enabled: true, CertFile: "/does/not/exist"} }, "tls.cert_file")
}
