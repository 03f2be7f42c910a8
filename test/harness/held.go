package harness

import (
	"encoding/hex"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stream-arrow/twgd/test/servers"
)

// Held is a record as a store gave it back.
type Held struct {
	ID    string
	Value string // hexadecimal; "null" where there is none
}

// TableRows are the rows of a table whose values are bytea.
func TableRows(t testing.TB, dsn, table string) (out []Held) {
	t.Helper()
	for _, row := range Query[string](t, dsn, "select _twg_record_id::text || ' ' || coalesce(encode(__kafka_value, 'hex'), 'null') from "+table) {
		id, value, _ := strings.Cut(row, " ")
		out = append(out, Held{id, value})
	}
	return out
}

// LakeRows are the rows in all Parquet files of a stream, by DuckDB.
func (s *Suite) LakeRows(t testing.TB, location, stream string) (out []Held) {
	t.Helper()
	var rows []Row
	dir := filepath.Join(s.Local(t, location), stream)
	Must(t, servers.PythonJSON(t.Context(), readers, nil, &rows, "lake", dir))
	for _, r := range rows {
		value := "null"
		if r.Value != nil {
			value = *r.Value
		}
		out = append(out, Held{r.ID, value})
	}
	return out
}

// SameValues fails where a store has a record with another value than was produced.
func (s *Suite) SameValues(t testing.TB, where string, topic Topic, acked []Record, got []Held) {
	t.Helper()
	want := map[string]string{}
	for i, id := range s.IDs(topic, acked) {
		want[id] = "null"
		if acked[i].Value != nil {
			want[id] = hex.EncodeToString(acked[i].Value)
		}
	}
	faults := 0
	for _, h := range got {
		if w, ok := want[h.ID]; ok && w != h.Value {
			if faults++; faults <= 3 {
				t.Errorf("%s: the value of %s is %.80s, produced was %.80s", where, h.ID, h.Value, w)
			}
		}
	}
}

// Among are those rows whose ids are among ids.
func Among(rows []Held, ids []string) (out []Held) {
	wanted := map[string]bool{}
	for _, id := range ids {
		wanted[id] = true
	}
	for _, h := range rows {
		if wanted[h.ID] {
			out = append(out, h)
		}
	}
	return out
}

// HeldIDs are the ids of rows.
func HeldIDs(rows []Held) (out []string) {
	for _, h := range rows {
		out = append(out, h.ID)
	}
	return out
}
