//go:build e2e

package servers

import (
	"strings"
	"testing"
)

func TestPythonReaders(t *testing.T) {
	const script = `
import json, sys, io, duckdb, fastavro, pyarrow, psycopg
numbers = json.load(sys.stdin)
schema = {"type": "record", "name": "r", "fields": [{"name": "n", "type": "long"}]}
buf = io.BytesIO()
fastavro.writer(buf, schema, [{"n": n} for n in numbers], codec="zstandard")
buf.seek(0)
back = [r["n"] for r in fastavro.reader(buf)]
with open(sys.argv[1], "wb") as f:
    fastavro.writer(f, schema, [{"n": n} for n in numbers], codec="deflate")
db = duckdb.connect()
db.load_extension("avro")
total = db.execute("select sum(n)::bigint from read_avro(?)", [sys.argv[1]]).fetchone()[0]
print(json.dumps({"back": back, "total": total, "arrow": pyarrow.array(numbers).sum().as_py()}))`
	var got struct {
		Back         []int
		Total, Arrow int
	}
	must(t, PythonJSON(t.Context(), script, []int{1, 2, 3}, &got, t.TempDir()+"/n.avro"))
	if len(got.Back) != 3 || got.Total != 6 || got.Arrow != 6 {
		t.Errorf("the readers say %+v", got)
	}
	err := PythonJSON(t.Context(), "raise SystemExit('no such table')", nil, &got)
	if err == nil || !strings.Contains(err.Error(), "no such table") {
		t.Errorf("error %v, want the script's own word", err)
	}
}
