//go:build e2e

package e2e

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stream-arrow/twgd/test/harness"
)

// TestAudit: what is missing anywhere is found, and what was rejected is accounted for.
func TestAudit(t *testing.T) {
	t.Parallel()
	lake, dsn := "file://"+harness.Dir(t), suite.Database(t)
	b := lay(t, 3, func(s *harness.Stream) {
		s.Raw = harness.Raw{To: suite.Bucket(t, "raw"), Flush: harness.Flush{Age: "100ms"}}
		s.Sinks = []harness.Sink{harness.ToParquet("lake", lake), harness.ToPostgres("db", dsn)}
		s.Sinks[1].Postgres.ValueAs = "jsonb"
	})
	b.node.Start()
	for round := range 3 {
		for n := range 90 {
			b.Send(harness.Record{Partition: int32(n % 3), Value: []byte(`{"n":1}`)})
		}
		b.Send(harness.Record{Partition: int32(round), Value: []byte("no JSON")})
		b.complete(b.Count())
	}
	b.stop()
	audit := func(want int, what string, args ...string) {
		t.Helper()
		if code, printed := b.node.Ask(append([]string{"audit"}, args...)...); code != want {
			t.Errorf("%s: audit %q exits with %d, want %d:\n%s", what, args, code, want, printed)
		}
	}
	audit(0, "with all there")
	audit(0, "with all there", "--rows")

	harness.Exec(t, dsn, `create table spare as select * from orders where __kafka_partition = 1 and __kafka_offset = 40;
		delete from orders where __kafka_partition = 1 and __kafka_offset = 40`)
	audit(3, "without one row", "--rows")
	harness.Exec(t, dsn, "insert into orders select * from spare")
	audit(0, "with the row again", "--rows")

	file := files(t, lake)[1]
	harness.Must(t, os.Rename(file, file+".away"))
	audit(3, "without one Parquet file")
	harness.Must(t, os.Rename(file+".away", file))
	audit(0, "with the file again")

	segments := slices.DeleteFunc(slices.Sorted(maps.Keys(suite.Objects(t, b.raw))), func(key string) bool {
		return !strings.Contains(key, "/"+b.topic.Path(2)+"/0") || strings.Contains(key, "/_")
	})
	if len(segments) < 3 {
		t.Fatalf("partition 2 has segments %q, the case needs three", segments)
	}
	restore := suite.Remove(t, b.raw, segments[len(segments)-1])
	audit(3, "without the last segment")
	restore()
	audit(0, "with the segment again")
	suite.Remove(t, b.raw, segments[1])
	audit(4, "without a segment in the middle")
}
