package content

import (
	"fmt"
	"strings"
)

// Why a record has no content hash. Such a record is never a twin, and nobody is its twin.
const (
	NullValue    = "null_value"    // the value is a null: all deletes would be each other's twins
	EmptyValue   = "empty_value"   // it has no bytes
	NotJSON      = "not_json"      // it is no JSON text by RFC 8259
	DuplicateKey = "duplicate_key" // a name on the way to a declared field stands there twice
	FieldType    = "field_type"    // a declared field is an object, an array, or a number with an exponent beyond ±2^62
	MissingField = "missing_field" // a declared field is not there, or null
	Oversize     = "oversize"      // Options.Unfit: it is larger than a sink takes
	HeaderName   = "header_name"   // Options.Unfit: the name of a header is no UTF-8, which no file takes
)

// tree is the declared fields as a tree of names. A leaf is a field.
type tree struct {
	name     string
	field    int // its place among the sorted paths, -1 inside
	place    int // of this node among all
	children []*tree
}

// newTree takes dotted paths, sorted, and returns how many nodes there are.
func newTree(paths []string) (root *tree, nodes int, err error) {
	root, nodes = &tree{field: -1}, 1
	for i, path := range paths {
		at := root
		for name := range strings.SplitSeq(path, ".") {
			if name == "" {
				return nil, 0, fmt.Errorf("the field %q has an empty name in it", path)
			}
			next := at.child([]byte(name))
			if next == nil {
				next = &tree{name: name, field: -1, place: nodes}
				nodes++
				at.children = append(at.children, next)
			}
			if at = next; at.field >= 0 {
				return nil, 0, fmt.Errorf("the field %q is declared, and so is %q, which it is a part of or the same as", path, paths[at.field])
			}
		}
		if len(at.children) > 0 {
			return nil, 0, fmt.Errorf("the field %q is declared, and so are parts of it", path)
		}
		at.field = i
	}
	return root, nodes, nil
}

func (t *tree) child(name []byte) *tree {
	for _, c := range t.children {
		if c.name == string(name) {
			return c
		}
	}
	return nil
}
