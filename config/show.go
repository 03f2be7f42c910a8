package config

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// Show is the effective configuration as YAML: every key, defaults included, secrets hidden.
func Show(cfg *Config) []byte {
	s := shower{cfg.hidden}
	return encode(s.node(cfg.spec, reflect.ValueOf(cfg).Elem(), ""))
}

type shower struct{ hidden map[string]bool }

func (s shower) node(f *field, v reflect.Value, path string) *yaml.Node {
	switch f.shape {
	case mapping:
		return s.mapping(f, v, path)
	case list:
		n := &yaml.Node{Kind: yaml.SequenceNode, Style: f.style()}
		for i := range v.Len() {
			n.Content = append(n.Content, s.node(f.elem, v.Index(i), fmt.Sprintf("%s[%d]", path, i)))
		}
		return n
	case table:
		return s.table(f, v, path)
	}
	if v.String() != "" && (f.secret || s.hidden[path]) {
		return scalarNode(hidden, "!!str")
	}
	return valueNode(f, v)
}

// style keeps lists of short values on one line.
func (f *field) style() yaml.Style {
	if f.elem.shape == mapping {
		return 0
	}
	return yaml.FlowStyle
}

func (s shower) mapping(f *field, v reflect.Value, path string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for _, c := range f.fields {
		n.Content = append(n.Content, scalarNode(c.name, "!!str"), s.node(c, v.FieldByIndex(c.index), join(path, c.name)))
	}
	if f.choice != nil {
		chosen := v.FieldByIndex(f.choice.index)
		if k := f.choice.kind(chosen.FieldByName("Kind").String()); k != nil {
			options := chosen.FieldByName("Options").Elem().Elem()
			n.Content = append(n.Content, scalarNode(k.name, "!!str"), s.node(k.spec, options, join(path, k.name)))
		}
	}
	return n
}

func (s shower) table(f *field, v reflect.Value, path string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	var keys []string
	for _, k := range v.MapKeys() {
		keys = append(keys, k.String())
	}
	slices.Sort(keys)
	for _, k := range keys {
		value := s.node(f.elem, v.MapIndex(reflect.ValueOf(k)), join(path, word(k)))
		n.Content = append(n.Content, scalarNode(k, "!!str"), value)
	}
	return n
}

func valueNode(f *field, v reflect.Value) *yaml.Node {
	switch f.shape {
	case boolean:
		return scalarNode(strconv.FormatBool(v.Bool()), "!!bool")
	case whole:
		return scalarNode(strconv.FormatInt(v.Int(), 10), "!!int")
	case number:
		return scalarNode(strconv.FormatFloat(v.Float(), 'f', -1, 64), "")
	}
	text := fmt.Sprint(v.Interface())
	if f.numbers() && look(text) == isInt {
		return scalarNode(text, "!!int")
	}
	return scalarNode(text, "!!str")
}

// scalarNode quotes where YAML, or the expansion of ${...}, would read something else.
func scalarNode(value, tag string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: value}
	if tag == "!!str" {
		n.Value = literal(value)
		if look(value) != isText {
			n.Style = yaml.DoubleQuotedStyle
		}
	}
	return n
}

func encode(n *yaml.Node) []byte {
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(n); err != nil {
		panic("config: " + err.Error())
	}
	return b.Bytes()
}
