package postgres

import (
	"bytes"
	"encoding/hex"
	"io"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/row"
	"github.com/stream-arrow/twgd/sinks/sinktest"
)

// plainLayout is that of a table which twgd made.
func plainLayout(v ValueAs) layout {
	var l layout
	for i, c := range columnsFor(v) {
		l[i] = c.takes[0]
	}
	return l
}

func TestRowByteByByte(t *testing.T) {
	r := record.Record{Key: []byte("k"), Value: []byte("{}"), Offset: 258, Timestamp: epochMillis + 1, LeaderEpoch: 3, ProducerID: -1, ProducerEpoch: -1,
		Headers: []record.Header{{Key: "h", Value: []byte("x")}, {Key: "n"}}}
	e := newEncoder(plainLayout(JSONB), record.Partition{Topic: "tp", Number: 7})
	got, wild := e.append(nil, record.ID{0xaa}, &r)
	want := "000c" + // columns
		"00000010aa000000000000000000000000000000" +
		"000000027470" + "0000000400000007" + "000000080000000000000102" +
		"0000000800000000000003e8" + // a thousand microseconds after 2000-01-01
		"000000020000" + "0000000400000003" + "00000008ffffffffffffffff" + "00000002ffff" +
		"0000001a01" + hex.EncodeToString([]byte(`[["h","eA=="],["n",null]]`)) +
		"000000016b" + "00000003017b7d"
	if hex.EncodeToString(got) != want || wild {
		t.Errorf("the row is\n%x\nwant\n%s", got, want)
	}
	if n := e.room(&r); n < len(got) {
		t.Errorf("room for %d bytes, the row has %d", n, len(got))
	}
}

func TestRowsComeBack(t *testing.T) {
	wide := plainLayout(JSONB)
	wide[colPartition], wide[colTimestampType], wide[colProducerEpoch], wide[colHeaders] = formatInt8, formatInt4, formatInt8, formatJSON
	const usual = 15 // of sinktest.Unusual; then these, of which PostgreSQL can hold the third and the fifth timestamp
	wildOnes := map[int]bool{usual: true, usual + 1: true, usual + 3: true, usual + 5: true}
	records := append(sinktest.Unusual(0)[:usual],
		record.Record{Timestamp: math.MaxInt64}, record.Record{Timestamp: math.MinInt64}, record.Record{Timestamp: maxMillis + epochMillis - 1},
		record.Record{Timestamp: maxMillis + epochMillis}, record.Record{Timestamp: minMillis + epochMillis}, record.Record{Timestamp: minMillis + epochMillis - 1},
		record.Record{Headers: []record.Header{{Key: "\x00\x01\x1f\"\\/\xff]", Value: []byte("]\"")}, {Key: "\\u0041"}}})
	for _, l := range []layout{plainLayout(Bytea), plainLayout(JSONB), wide} {
		e := newEncoder(l, record.Partition{Topic: "t", Number: math.MaxInt32})
		for i := range records {
			id := record.ID{byte(i), 15: 1}
			b, wild := e.append(nil, id, &records[i])
			if wild != wildOnes[i] {
				t.Errorf("record %d: wild is %v", i, wild)
			}
			got, gotID := decode(l, b, wild)
			if d := sinktest.Difference(&got, &records[i]); d != "" || gotID != id {
				t.Errorf("record %d: %s, id %v", i, d, gotID)
			}
			if e.room(&records[i]) < len(b) {
				t.Errorf("record %d: room for %d, takes %d", i, e.room(&records[i]), len(b))
			}
		}
	}
}

func FuzzHeadersComeBack(f *testing.F) {
	f.Add("k", []byte("v"), "\\\"\x00", []byte(nil))
	f.Fuzz(func(t *testing.T, k1 string, v1 []byte, k2 string, v2 []byte) {
		r := record.Record{Headers: []record.Header{{Key: k1, Value: v1}, {Key: k2, Value: v2}, {Key: k1}}}
		e := newEncoder(plainLayout(Bytea), record.Partition{Topic: "t"})
		b, wild := e.append(nil, record.ID{}, &r)
		got, _ := decode(e.layout, b, wild)
		r.Timestamp = 0
		if d := sinktest.Difference(&got, &r); d != "" || e.room(&r) < len(b) {
			t.Errorf("%s; room %d for %d", d, e.room(&r), len(b))
		}
	})
}

// testLoad is a load over no database.
func testLoad(v ValueAs) *load { return newLoad(nil, plainLayout(v)) }

func rowsOf(p record.Partition, rs ...record.Record) *row.Batch {
	return &row.Batch{Partition: p, Span: checkpoint.Span{From: 0, To: int64(len(rs))}, Records: rs, IDs: record.NewHasher(p).IDs(nil, rs)}
}

func TestFaultsToldAtAdd(t *testing.T) {
	f := func(v ValueAs, r record.Record, want string) {
		t.Helper()
		l := testLoad(v)
		if err := l.Add(rowsOf(record.Partition{Topic: "t"}, r)); err != nil {
			t.Fatal(err)
		}
		got := ""
		if bad, ok := l.refused[0]; ok {
			got = bad.String()
		}
		if got != want {
			t.Errorf("%s %q %q: %q, want %q", v, r.Value, r.Headers, got, want)
		}
		if rejected := l.Size().Rows == 0; rejected != (want != "") {
			t.Errorf("the load has %d rows", l.Size().Rows)
		}
	}
	value := func(s string) record.Record { return record.Record{Value: []byte(s)} }
	header := func(k string) record.Record { return record.Record{Headers: []record.Header{{Key: "ok"}, {Key: k}}} }
	f(Bytea, value("a\x00\xff"), "")
	f(Text, value("a\xff"), "22021 character_not_in_repertoire, column __kafka_value")
	f(Text, value("a\x00"), "22021 character_not_in_repertoire, column __kafka_value")
	f(Text, value("\xed\xa0\x80"), "22021 character_not_in_repertoire, column __kafka_value")
	f(Text, value(""), "")
	f(JSONB, value(`{"a":"\u0000"}`), "22P05 untranslatable_character, column __kafka_value")
	f(JSONB, value(`{"a":"\ud800"}`), "22P02 invalid_text_representation, column __kafka_value")
	f(JSONB, value(""), "22P02 invalid_text_representation, column __kafka_value")
	f(JSONB, record.Record{}, "")
	f(Bytea, header("\xff"), "22021 character_not_in_repertoire, column __kafka_headers")
	f(Bytea, header("a\xef\xbf"), "22021 character_not_in_repertoire, column __kafka_headers")
	f(Bytea, header("a\ufffd"), "")
	f(Bytea, header("a\x00"), "22P05 untranslatable_character, column __kafka_headers")
	f(Bytea, header(""), "")
	f(Bytea, record.Record{Timestamp: math.MaxInt64}, "22008 datetime_field_overflow, column __kafka_timestamp")
	f(Bytea, record.Record{Timestamp: math.MinInt64}, "22008 datetime_field_overflow, column __kafka_timestamp")
	f(Bytea, record.Record{Timestamp: -62_135_596_800_000}, "")
}

// The stream that a COPY reads is header, the chosen rows, trailer, however it is cut.
func TestReaderGivesTheChosenRows(t *testing.T) {
	l := testLoad(Bytea)
	rng := rand.New(rand.NewPCG(1, 2))
	var rs []record.Record
	for i := range int64(300) {
		rs = append(rs, record.Record{Offset: i, Value: bytes.Repeat([]byte{byte(i)}, rng.IntN(4000))})
	}
	rs[17].Value = make([]byte, 3*chunkSize)
	if err := l.Add(rowsOf(record.Partition{Topic: "t"}, rs...)); err != nil {
		t.Fatal(err)
	}
	rows := []int{0, 16, 17, 18, 299}
	want := bytes.Clone(copyHeader)
	for _, i := range rows {
		want = append(want, l.row(i)...)
		if got, _ := decode(l.layout, l.row(i), false); sinktest.Difference(&got, &rs[i]) != "" {
			t.Errorf("row %d is not what was added", i)
		}
	}
	want = append(want, copyTrailer...)
	for _, size := range []int{1, 7, 4096, 65531} {
		var got bytes.Buffer
		if _, err := io.CopyBuffer(struct{ io.Writer }{&got}, struct{ io.Reader }{l.reader(rows)}, make([]byte, size)); err != nil || !bytes.Equal(got.Bytes(), want) {
			t.Errorf("read by %d bytes: %v, %d bytes, want %d", size, err, got.Len(), len(want))
		}
	}
}

func TestRefitKeepsRowsAndWhatWasReported(t *testing.T) {
	l := testLoad(Text)
	rs := []record.Record{{Offset: 0, Value: []byte("a")}, {Offset: 1, Value: []byte("\xff")}, {Offset: 2, Value: []byte("c")}, {Offset: 3, Value: []byte("\xfe"), Timestamp: math.MaxInt64}}
	if err := l.Add(rowsOf(record.Partition{Topic: "t"}, rs...)); err != nil {
		t.Fatal(err)
	}
	l.refuse(2, fault{code: "22001"})
	l.reported[2] = true
	l.refit(plainLayout(Bytea))
	if len(l.refused) != 2 || l.refused[2].code != "22001" || l.refused[3].code != outOfTime || l.Size().Rows != 2 {
		t.Errorf("refused are %v", l.refused)
	}
	if want := int64(len(l.row(0)) + len(l.row(1))); l.sent != want {
		t.Errorf("%d bytes to send, want %d", l.sent, want)
	}
	for i := range rs {
		got, _ := decode(l.layout, l.row(i), l.rows[i].wild)
		if d := sinktest.Difference(&got, &rs[i]); d != "" {
			t.Errorf("row %d: %s", i, d)
		}
	}
}

func TestAddAllocatesNothingForARow(t *testing.T) {
	rs := make([]record.Record, 1000)
	for i := range rs {
		rs[i] = record.Record{Offset: int64(i), Key: []byte("key"), Value: []byte(`{"a":[1,2,{"b":"c"}]}`), Headers: []record.Header{{Key: "h", Value: []byte("v")}}}
	}
	b := rowsOf(record.Partition{Topic: "t"}, rs...)
	l := testLoad(JSONB)
	allocs := testing.AllocsPerRun(20, func() {
		for i := range l.chunks {
			l.chunks[i] = l.chunks[i][:0]
		}
		l.chunks, l.rows = l.chunks[:min(1, len(l.chunks))], l.rows[:0]
		if err := l.Add(b); err != nil {
			t.Fatal(err)
		}
	})
	if allocs > 50 {
		t.Errorf("%v allocations for 1000 rows", allocs)
	}
}
