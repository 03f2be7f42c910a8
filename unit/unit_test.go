package unit

import (
	"testing"
	"time"
)

func TestParseSize(t *testing.T) {
	f := func(text string, want int64, back string) {
		t.Helper()
		got, err := ParseSize(text)
		if err != nil || int64(got) != want || got.String() != back {
			t.Errorf("%s: got %d %s %v, want %d %s", text, got, got, err, want, back)
		}
		if again, err := ParseSize(back); err != nil || again != got {
			t.Errorf("%s reads back as %d, %v", back, again, err)
		}
	}
	f("16MiB", 16<<20, "16MiB")
	f("64KB", 64000, "64KB")
	f("1024B", 1024, "1KiB")
	f("1.5GiB", 3<<29, "1536MiB")
	f("0", 0, "0B")
	f("0KB", 0, "0B")
	f("1TB", 1e12, "976562500KiB")
	f("7B", 7, "7B")
}

func TestParseSizeRefuses(t *testing.T) {
	for _, text := range []string{"", "5", "-1B", "1e3B", "16 MiB", "16mib", "1.1B", "9999999TiB", "MiB", "0x1B", "1Mi"} {
		if got, err := ParseSize(text); err == nil {
			t.Errorf("%q is taken as %d", text, got)
		}
	}
}

func TestParseDuration(t *testing.T) {
	f := func(text string, want time.Duration, back string) {
		t.Helper()
		got, err := ParseDuration(text)
		if err != nil || time.Duration(got) != want || got.String() != back {
			t.Errorf("%s: got %d %s %v, want %d %s", text, got, got, err, want, back)
		}
		if again, err := ParseDuration(back); err != nil || again != got {
			t.Errorf("%s reads back as %d, %v", back, again, err)
		}
	}
	f("250ms", 250*time.Millisecond, "250ms")
	f("30d", 720*time.Hour, "30d")
	f("36h", 36*time.Hour, "1d12h")
	f("1h30m", 90*time.Minute, "1h30m")
	f("1.5s", 1500*time.Millisecond, "1s500ms")
	f("0", 0, "0s")
	f("0ms", 0, "0s")
}

func TestParseDurationRefuses(t *testing.T) {
	for _, text := range []string{"", "5", "-1s", "1 s", "1w", "200000000d", "106751d106751d", "0.1ns", "1h30", "s"} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("%q is taken as %s", text, got)
		}
	}
}

func TestParseLocation(t *testing.T) {
	f := func(text string, place string) {
		t.Helper()
		got, err := ParseLocation(text)
		if err != nil || got.Place() != place || got.String() != text {
			t.Errorf("%s: place %s, %v, want %s", text, got.Place(), err, place)
		}
	}
	f("file:///data/raw", "file:///data/raw")
	f("file:///data//raw/", "file:///data/raw")
	f("s3://bucket", "s3://bucket/")
	f("s3://bucket/a/?region=eu-1&use_path_style=true", "s3://bucket/a")
	f("s3://bucket/a?endpoint=http://minio:9000/", "s3://bucket/a?http://minio:9000")
	f("mem://x", "mem://x/")
}

func TestParseLocationRefuses(t *testing.T) {
	for _, text := range []string{
		"", "/data/raw", "data/raw", "file://data/raw", "file:data", "file:///", "file:///a?x=1", "s3://", "gs://bucket",
		"s3://key:secret@bucket/x", "s3://bucket?endpoint=minio:9000",
		"s3://bucket?endpoint=http://u:p@minio", "mem:", "mem://x?y=1", "s3://bucket/a#b", "%zz", "s3://bucket?a;b",
	} {
		if got, err := ParseLocation(text); err == nil {
			t.Errorf("%q is taken as %s", text, got)
		}
	}
}

func TestLocationBelow(t *testing.T) {
	f := func(l Location, want Location) {
		t.Helper()
		if got := l.Below("orders"); got != want {
			t.Errorf("%s: got %s, want %s", l, got, want)
		}
	}
	f("file:///data/", "file:///data/orders")
	f("s3://bucket/p?region=r", "s3://bucket/p/orders?region=r")
	f("s3://bucket", "s3://bucket/orders")
}

func TestDirectory(t *testing.T) {
	f := func(dir, want string) {
		t.Helper()
		got := Directory(dir)
		if _, err := ParseLocation(string(got)); err != nil || string(got) != want {
			t.Errorf("%s: got %s, %v, want %s", dir, got, err, want)
		}
	}
	f("/data", "file:///data")
	f("/a b/100%", "file:///a%20b/100%25")
	f("/x?y#z", "file:///x%3Fy%23z")
}

func TestDurable(t *testing.T) {
	if Location("mem://x").Durable() || !Location("file:///x").Durable() || !Location("s3://bucket").Durable() {
		t.Error("only mem forgets")
	}
}

func TestParseAddress(t *testing.T) {
	f := func(text, host string) {
		t.Helper()
		got, err := ParseAddress(text)
		if err != nil || got.String() != text || got.Host() != host {
			t.Errorf("%s: got %s, host %s, %v", text, got, got.Host(), err)
		}
	}
	f("localhost:9092", "localhost")
	f("[::1]:80", "::1")
	f(":7480", "")
	f("127.0.0.1:0", "127.0.0.1")
	for _, text := range []string{"", "localhost", "a:b", "a:70000", "a:-1", "a:007", "::1:80", "kafka://a:1", "u:p@a:1", "a:1/x", "a b:1"} {
		if got, err := ParseAddress(text); err == nil {
			t.Errorf("%q is taken as %s", text, got)
		}
	}
}
