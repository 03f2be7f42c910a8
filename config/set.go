package config

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Set is a value that a command line gives to a key, instead of what the file says.
type Set struct {
	Key   string // with dots between: cluster.secret
	Value any    // a text, or a list of texts; taken as it is, nothing in it is expanded
}

// apply puts the value into the file's tree. Where the file has something else than a mapping on the way there it is left alone: the
// decoder reports that.
func (s Set) apply(root *yaml.Node) error {
	var value yaml.Node
	if err := value.Encode(literal(s.Value)); err != nil {
		return fmt.Errorf("setting %s: %w", s.Key, err)
	}
	at := root
	keys := strings.Split(s.Key, ".")
	for i, key := range keys {
		next := valueOf(at, key)
		switch {
		case next == nil && at.Kind != yaml.MappingNode:
			return nil
		case next == nil:
			next = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: at.Line, Column: at.Column}
			at.Content = append(at.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key, Line: at.Line, Column: at.Column}, next)
		}
		if i == len(keys)-1 {
			line, column := next.Line, next.Column
			*next = value
			place(next, line, column)
		}
		at = next
	}
	return nil
}

// literal keeps the decoder from expanding what was meant as it is.
func literal(v any) any {
	switch v := v.(type) {
	case string:
		return strings.ReplaceAll(v, "${", "$${")
	case []string:
		out := make([]string, len(v))
		for i, s := range v {
			out[i] = strings.ReplaceAll(s, "${", "$${")
		}
		return out
	}
	return v
}

func valueOf(m *yaml.Node, key string) *yaml.Node {
	if m.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(m.Content); i += 2 {
		if m.Content[i].Value == key {
			return m.Content[i+1]
		}
	}
	return nil
}

func place(n *yaml.Node, line, column int) {
	n.Line, n.Column = line, column
	for _, c := range n.Content {
		place(c, line, column)
	}
}
