//go:build e2e

package e2e

import (
	"path/filepath"
	"testing"

	"github.com/stream-arrow/twgd/test/servers"
)

// recordIDs computes ids as docs/formats/record-id.md says, with nothing but Python's own library.
const recordIDs = `
import hashlib, json, struct, sys, uuid
def sized(b): return struct.pack(">I", len(b)) + b
def nullable(b): return b"\x00" if b is None else b"\x01" + sized(b)
def bytes_of(s, times=1): return None if s is None else bytes.fromhex(s) * times
wrong = []
vectors = json.load(open(sys.argv[1]))
for v in vectors:
    digest = hashlib.sha256(
        sized(v["cluster"].encode()) + sized(v["topic"].encode()) + bytes.fromhex(v["topic_id"])
        + struct.pack(">IIQ", v["partition"], v["generation"], v["offset"])
        + nullable(bytes_of(v["key"])) + nullable(bytes_of(v["value"], v.get("value_times", 1)))).digest()
    millis = min(max(v["timestamp"], 0), 2**48 - 1)
    b = bytearray(struct.pack(">Q", millis)[2:] + digest[:10])
    b[6] = b[6] & 0x0f | 0x80
    b[8] = b[8] & 0x3f | 0x80
    if str(uuid.UUID(bytes=bytes(b))) != v["id"]: wrong.append(v["name"])
print(json.dumps({"count": len(vectors), "wrong": wrong}))`

func TestRecordIDsByAnotherImplementation(t *testing.T) {
	var got struct {
		Count int
		Wrong []string
	}
	path, err := filepath.Abs("../../record/testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := servers.PythonJSON(t.Context(), recordIDs, nil, &got, path); err != nil {
		t.Fatal(err)
	}
	if got.Count < 30 || len(got.Wrong) > 0 {
		t.Errorf("of %d vectors these are wrong: %v", got.Count, got.Wrong)
	}
}
