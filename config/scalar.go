package config

import (
	"encoding"
	"errors"
	"math"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// meaning is what a plain scalar is by the core schema of YAML 1.2. The library follows 1.1 in places (octal 0777, 1_000,
// timestamps), so the text is judged here, and yes, no, on and off are texts like any other.
type meaning uint8

const (
	isText meaning = iota
	isNull
	isBool
	isInt
	isFloat
)

var (
	coreInt   = regexp.MustCompile(`^([-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$`)
	coreFloat = regexp.MustCompile(`^([-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$`)
)

var core = map[string]meaning{
	"": isNull, "~": isNull, "null": isNull, "Null": isNull, "NULL": isNull,
	"true": isBool, "True": isBool, "TRUE": isBool, "false": isBool, "False": isBool, "FALSE": isBool,
}

// meaningOf a scalar node. An explicit tag wins over the look; quoted and block scalars are texts.
func meaningOf(n *yaml.Node) (meaning, error) {
	if n.Style&yaml.TaggedStyle != 0 {
		return tagged(n.Tag)
	}
	if n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		return isText, nil
	}
	return look(n.Value), nil
}

func look(value string) meaning {
	if m, ok := core[value]; ok {
		return m
	}
	switch {
	case coreInt.MatchString(value):
		return isInt
	case coreFloat.MatchString(value):
		return isFloat
	}
	return isText
}

func tagged(tag string) (meaning, error) {
	switch tag {
	case "!!str":
		return isText, nil
	case "!!int":
		return isInt, nil
	case "!!bool":
		return isBool, nil
	case "!!null":
		return isNull, nil
	case "!!float":
		return isFloat, nil
	}
	return isText, errors.New("this tag is not known")
}

// String says what a scalar is without its value.
func (m meaning) String() string {
	return [...]string{"a text", "nothing", "true or false", "a whole number", "a number"}[m]
}

// set puts value into v, which f describes. The error says what is wrong and never repeats value.
func (f *field) set(v reflect.Value, value string) error {
	switch f.shape {
	case boolean:
		v.SetBool(strings.EqualFold(value, "true"))
	case whole:
		n, err := parseInt(value, v.Type().Bits())
		if err != nil {
			return errors.New("this number is too large")
		}
		v.SetInt(n)
	case number:
		n, err := strconv.ParseFloat(value, 64)
		if err != nil || math.IsNaN(n) || math.IsInf(n, 0) {
			return errors.New("this is no number to reckon with")
		}
		v.SetFloat(n)
	case formed:
		if value == "" && f.def != nil && *f.def == "" {
			v.SetZero()
			return nil
		}
		if err := v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(value)); err != nil {
			return err
		}
	default:
		v.SetString(value)
	}
	return f.within(v)
}

// parseInt reads an integer of the core schema: a leading zero is decimal.
func parseInt(value string, bits int) (int64, error) {
	if rest, ok := strings.CutPrefix(value, "0o"); ok {
		return strconv.ParseInt(rest, 8, bits)
	}
	if rest, ok := strings.CutPrefix(value, "0x"); ok {
		return strconv.ParseInt(rest, 16, bits)
	}
	return strconv.ParseInt(value, 10, bits)
}

// within checks what the tags say of a value that has its type.
func (f *field) within(v reflect.Value) error {
	if f.enum != nil && !contains(f.enum, v.String()) {
		return errors.New("this value is not known")
	}
	if f.shape == text && f.pattern != nil && !f.pattern.MatchString(v.String()) {
		return errors.New("this value is not allowed")
	}
	if f.min != "" && less(v, f.bound(f.min)) {
		return errors.New("this is too small")
	}
	if f.max != "" && less(f.bound(f.max), v) {
		return errors.New("this is too large")
	}
	return nil
}

// bound reads a bound as a value of the field's type.
func (f *field) bound(written string) reflect.Value {
	plain := field{shape: f.shape, typ: f.typ}
	v := reflect.New(f.typ).Elem()
	if err := plain.set(v, written); err != nil {
		panic("config: bound " + written + " of " + f.name + ": " + err.Error())
	}
	return v
}

func less(a, b reflect.Value) bool {
	if a.CanFloat() {
		return a.Float() < b.Float()
	}
	return a.Int() < b.Int()
}

func contains(list []string, s string) bool {
	for _, e := range list {
		if e == s {
			return true
		}
	}
	return false
}

// preset gives v, which f describes, its default, and so on down.
func (f *field) preset(v reflect.Value) {
	if f.shape == mapping {
		for _, c := range f.fields {
			c.preset(v.FieldByIndex(c.index))
		}
		return
	}
	v.SetZero()
	if f.def != nil && *f.def != "" {
		plain := field{shape: f.shape, typ: f.typ}
		if err := plain.set(v, *f.def); err != nil {
			panic("config: default of " + f.name + ": " + err.Error())
		}
	}
}
