package postgres

import "fmt"

// The columns that twgd writes, in the order in which rows are encoded.
const (
	colID = iota
	colTopic
	colPartition
	colOffset
	colTimestamp
	colTimestampType
	colLeaderEpoch
	colProducerID
	colProducerEpoch
	colHeaders
	colKey
	colValue
	columnCount
)

// format is the binary form that a column takes, which its type's receive function tells: a varchar, a domain over it and a text
// take the same bytes.
type format uint8

const (
	formatUUID format = iota + 1
	formatText
	formatBytea
	formatJSON
	formatJSONB
	formatTimestamp
	formatInt2
	formatInt4
	formatInt8
)

// receivers are PostgreSQL's receive functions by the form they take.
var receivers = map[string]format{
	"uuid_recv": formatUUID, "bytearecv": formatBytea, "json_recv": formatJSON, "jsonb_recv": formatJSONB,
	"textrecv": formatText, "varcharrecv": formatText, "bpcharrecv": formatText, "citextrecv": formatText,
	"timestamptz_recv": formatTimestamp, "int2recv": formatInt2, "int4recv": formatInt4, "int8recv": formatInt8,
}

// column is one of ours: how it is made, and which forms will do where a user made it.
type column struct {
	name    string
	sqlType string
	notNull bool
	takes   []format
}

// columnsFor lists the columns of a table whose values are of type v.
func columnsFor(v ValueAs) [columnCount]column {
	value := map[ValueAs][]format{Bytea: {formatBytea}, Text: {formatText}, JSONB: {formatJSONB, formatJSON}}[v]
	return [columnCount]column{
		colID:            {"_twg_record_id", "uuid", true, []format{formatUUID}},
		colTopic:         {"__kafka_topic", "text", true, []format{formatText}},
		colPartition:     {"__kafka_partition", "integer", true, []format{formatInt4, formatInt8}},
		colOffset:        {"__kafka_offset", "bigint", true, []format{formatInt8}},
		colTimestamp:     {"__kafka_timestamp", "timestamp with time zone", false, []format{formatTimestamp}},
		colTimestampType: {"__kafka_timestamp_type", "smallint", true, []format{formatInt2, formatInt4, formatInt8}},
		colLeaderEpoch:   {"__kafka_leader_epoch", "integer", true, []format{formatInt4, formatInt8}},
		colProducerID:    {"__kafka_producer_id", "bigint", true, []format{formatInt8}},
		colProducerEpoch: {"__kafka_producer_epoch", "smallint", true, []format{formatInt2, formatInt4, formatInt8}},
		colHeaders:       {"__kafka_headers", "jsonb", true, []format{formatJSONB, formatJSON}},
		colKey:           {"__kafka_key", "bytea", false, []format{formatBytea}},
		colValue:         {"__kafka_value", string(v), false, value},
	}
}

// layout is the form of each column of one table. It is comparable: a load that was encoded for another layout than the table has
// now is encoded again.
type layout [columnCount]format

// names are the columns' names, in order.
var names = func() (n [columnCount]string) {
	for i, c := range columnsFor(Bytea) {
		n[i] = c.name
	}
	return n
}()

// columnList is the list of our columns inside a statement.
func columnList() string {
	list := ""
	for i, n := range names {
		if i > 0 {
			list += ", "
		}
		list += quote(n)
	}
	return list
}

// found is a column of the table as the catalogue shows it.
type found struct {
	name      string
	sqlType   string // as people write it
	receive   string // the receive function of its base type
	notNull   bool
	filled    bool // has a default, is an identity or generated
	generated bool
	insert    bool // we may insert into it
	selects   bool // we may select it
}

// fit checks the table's columns and returns their layout, or what a person must change.
func fit(v ValueAs, columns map[string]found) (l layout, problems []string) {
	for i, want := range columnsFor(v) {
		f, ok := columns[want.name]
		if !ok {
			problems = append(problems, fmt.Sprintf("column missing: %s %s", want.name, want.sqlType))
			continue
		}
		l[i] = receivers[f.receive]
		if p := unfit(want, f, l[i], i); p != "" {
			problems = append(problems, p)
		}
		delete(columns, want.name)
	}
	for _, f := range columns {
		if f.notNull && !f.filled {
			problems = append(problems, fmt.Sprintf("column %s is not null and has no default", f.name))
		}
	}
	return l, problems
}

// unfit says what is wrong with one of our columns; empty where nothing is.
func unfit(want column, f found, has format, i int) string {
	fits := false
	for _, t := range want.takes {
		fits = fits || t == has
	}
	switch {
	case !fits:
		return fmt.Sprintf("column %s is %s, wanted %s", f.name, f.sqlType, want.sqlType)
	case f.generated:
		return fmt.Sprintf("column %s is generated and cannot be written", f.name)
	case !f.insert:
		return fmt.Sprintf("permission denied: INSERT on column %s", f.name)
	case !f.selects && i <= colOffset && i != colTimestamp:
		return fmt.Sprintf("permission denied: SELECT on column %s", f.name)
	}
	return ""
}
