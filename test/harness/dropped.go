package harness

import (
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stream-arrow/twgd/test/servers"
)

// Dropped is a record that a stream noted as dropped.
type Dropped struct {
	Path   string // T/P
	Offset int64
	ID     string
	Stands string // the last eight bytes of the id of who stands for it, hexadecimal
}

// Dropped are the records that a stream noted as dropped, each once, as Python's fastavro reads them. A file may end in the middle of a write
// where torn says that a process was killed.
func (s *Suite) Dropped(t testing.TB, location, stream string, torn bool) []Dropped {
	t.Helper()
	var rows []Dropped
	dir := filepath.Join(s.Local(t, location), stream)
	Must(t, servers.PythonJSON(t.Context(), readers, nil, &rows, map[bool]string{false: "dropped", true: "dropped_torn"}[torn], dir))
	type name struct {
		path   string
		offset int64
	}
	out := map[name]Dropped{}
	for _, d := range rows {
		at := name{d.Path, d.Offset}
		if before, ok := out[at]; ok && before.ID != d.ID {
			t.Errorf("offset %d of %s is named as %s and as %s", d.Offset, d.Path, before.ID, d.ID)
		}
		out[at] = d
	}
	return slices.Collect(maps.Values(out))
}
