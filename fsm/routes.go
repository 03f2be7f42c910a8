package fsm

import (
	"fmt"
	"reflect"
)

// Routes of commands. A number is never used twice.
const (
	routeTick   byte = 0 // no table: only the time moves
	RouteRoster byte = 1
	RouteLease  byte = 2
	RouteTuning byte = 3
	RouteDedup  byte = 4
)

// reserved are the names of sections in a snapshot, and their tables' routes. A name is never used twice.
var reserved = []struct {
	name  string
	route byte
}{
	{"roster", RouteRoster},
	{"leases", RouteLease},
	{"tuning", RouteTuning},
	{"dedup", RouteDedup},
}

// section is a table with its place in the list of reserved names.
type section struct {
	Section
	name  string
	route byte
}

// bind makes an empty table for each field of t, in the order of their routes. A field whose tag is not reserved, or whose type is no
// Section, is a fault of the program and panics in every test.
func bind(t *Tables) (out []section) {
	v := reflect.ValueOf(t).Elem()
	for _, row := range reserved {
		for i := range v.NumField() {
			if v.Type().Field(i).Tag.Get("section") == row.name {
				v.Field(i).Set(reflect.New(v.Type().Field(i).Type.Elem()))
				out = append(out, section{v.Field(i).Interface().(Section), row.name, row.route})
			}
		}
	}
	if len(out) != v.NumField() {
		panic(fmt.Sprintf("fsm: %d of %d tables have a reserved name", len(out), v.NumField()))
	}
	return out
}
