package config

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// object is a JSON Schema under construction.
type object = map[string]any

// Schema is the JSON Schema (draft 2020-12) of a file, for editors. It knows keys, types, allowed values and kinds; what depends
// on several keys at once only Load tells.
func Schema(parts Parts) []byte {
	s := specOf(parts).schema()
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["title"] = "twgd"
	s["$defs"] = object{"expanded": object{
		"description": "A value with ${NAME}, ${NAME:-default} or ${file:/path} in it.",
		"type":        "string", "pattern": `\$\{`,
	}}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(s); err != nil {
		panic("config: " + err.Error())
	}
	return b.Bytes()
}

func (f *field) schema() object {
	s := f.typeSchema()
	if f.doc != "" {
		s["description"] = f.doc
	}
	if f.auto != "" {
		s["description"] = f.doc + " Default: " + f.auto + "."
	}
	if f.secret {
		s["writeOnly"] = true
	} else if f.def != nil {
		s["default"] = f.defaultValue()
	}
	return s
}

func (f *field) defaultValue() any {
	switch f.shape {
	case boolean:
		return *f.def == "true"
	case whole, number:
		return json.Number(*f.def)
	}
	return *f.def
}

func (f *field) typeSchema() object {
	switch f.shape {
	case mapping:
		return f.mappingSchema()
	case list:
		return f.listSchema()
	case table:
		return object{"type": []string{"object", "null"}, "additionalProperties": f.elem.schema()}
	}
	return object{"anyOf": []any{f.scalarSchema(), object{"$ref": "#/$defs/expanded"}}}
}

func (f *field) listSchema() object {
	s := object{"type": []string{"array", "null"}, "items": f.elem.schema()}
	if f.required != "" {
		s["type"], s["minItems"] = "array", 1
	}
	return s
}

func (f *field) scalarSchema() object {
	s := object{"type": "string"}
	switch {
	case f.shape == boolean:
		s["type"] = "boolean"
	case f.shape == whole:
		s["type"] = "integer"
		f.bounds(s)
	case f.shape == number:
		s["type"] = "number"
		f.bounds(s)
	case f.enum != nil:
		s["enum"] = f.enum
	case f.pattern != nil:
		s["pattern"] = f.pattern.String()
	}
	switch {
	case f.numbers():
		return object{"anyOf": []any{s, object{"type": "integer", "minimum": 0}}}
	case f.shape == formed && f.def != nil && *f.def == "":
		return object{"anyOf": []any{s, object{"const": ""}}}
	case f.shape == formed:
		return object{"anyOf": []any{s, object{"const": 0}}}
	}
	return s
}

func (f *field) bounds(s object) {
	for key, bound := range map[string]string{"minimum": f.min, "maximum": f.max} {
		if n, err := strconv.ParseFloat(bound, 64); err == nil {
			s[key] = n
		}
	}
}

func (f *field) mappingSchema() object {
	properties := object{}
	required := []string{}
	for _, c := range f.fields {
		properties[c.name] = c.schema()
		if c.required != "" {
			required = append(required, c.name)
		}
	}
	s := object{"type": []string{"object", "null"}, "properties": properties, "additionalProperties": false}
	if f.choice != nil {
		s["oneOf"] = f.choice.schema(properties)
	}
	if len(required) > 0 || f.choice != nil {
		s["type"], s["required"] = "object", required
	}
	return s
}

// schema adds each kind to the properties and says that exactly one is given.
func (c *choice) schema(properties object) (one []any) {
	for _, k := range c.kinds {
		properties[k.name] = k.spec.schema()
		one = append(one, object{"required": []string{k.name}})
	}
	return one
}
