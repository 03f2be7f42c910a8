package postgres

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// conditions are PostgreSQL's names of the SQLSTATEs with which rows are refused. A server's own message may quote a value.
var conditions = map[string]string{
	"22001": "string_data_right_truncation", "22003": "numeric_value_out_of_range", "22007": "invalid_datetime_format",
	"22008": "datetime_field_overflow", "22012": "division_by_zero", "22021": "character_not_in_repertoire",
	"22023": "invalid_parameter_value", "22030": "duplicate_json_object_key_value", "22032": "invalid_json_text",
	"22P02": "invalid_text_representation", "22P03": "invalid_binary_representation", "22P05": "untranslatable_character",
	"23000": "integrity_constraint_violation", "23001": "restrict_violation", "23502": "not_null_violation",
	"23503": "foreign_key_violation", "23505": "unique_violation", "23514": "check_violation", "23P01": "exclusion_violation",
	"54000": "program_limit_exceeded", "54001": "statement_too_complex",
}

// String is the detail of a reject: SQLSTATE with its name, column, constraint, and nothing of the row.
func (f fault) String() string {
	parts := []string{strings.TrimSuffix(f.code+" "+conditions[f.code], " ")}
	if f.column != "" {
		parts = append(parts, "column "+f.column)
	}
	if f.constraint != "" {
		parts = append(parts, "constraint "+f.constraint)
	}
	return strings.Join(parts, ", ")
}

// rowFault says whether e, which came while rows were written, is the fault of a row: a data exception, a broken constraint or a
// value beyond a limit of the server. Two of these are the table's fault instead: a column that does not take our binary form
// (22P03), and a null in a column that is not ours, which every row would have.
func rowFault(e *pgconn.PgError) (fault, bool) {
	switch class(e) {
	case "22", "23", "54":
	default:
		return fault{}, false
	}
	f := fault{code: e.Code, column: e.ColumnName, constraint: e.ConstraintName}
	if at := copyColumn.FindStringSubmatch(e.Where); f.column == "" && at != nil {
		f.column = at[1]
	}
	if e.Code == "22P03" || e.Code == "23502" && !ours(f.column) {
		return f, false
	}
	return f, true
}

func ours(column string) bool {
	for _, n := range names {
		if n == column {
			return true
		}
	}
	return false
}

// What COPY says of where it was: "COPY orders, line 3, column __kafka_value". A table's name may hold anything.
var (
	copyLine   = regexp.MustCompile(`^COPY .*, line (\d+)(?:, column [^\n]*)?$`)
	copyColumn = regexp.MustCompile(`(?m)^COPY .*, line \d+, column ([^:\n]*)`)
)

// faultLine is the row at which a COPY stopped, counted from 0, and -1 where the server does not say. The row is named in the
// outermost line of the context.
func faultLine(e *pgconn.PgError) int {
	lines := strings.Split(e.Where, "\n")
	at := copyLine.FindStringSubmatch(lines[len(lines)-1])
	if at == nil {
		return -1
	}
	n, err := strconv.Atoi(at[1])
	if err != nil {
		return -1
	}
	return n - 1
}
