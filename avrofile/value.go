package avrofile

import (
	"encoding/binary"
	"errors"
	"io"
)

// AppendLong appends an Avro int or long: a zigzag varint.
func AppendLong(b []byte, v int64) []byte { return binary.AppendVarint(b, v) }

// AppendBytes appends an Avro bytes or string value.
func AppendBytes[T []byte | string](b []byte, v T) []byte {
	return append(binary.AppendVarint(b, int64(len(v))), v...)
}

// AppendBool appends an Avro boolean.
func AppendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// AppendNullable appends a value of the union [null, bytes]: nil is the null.
func AppendNullable(b, v []byte) []byte {
	if v == nil {
		return append(b, 0)
	}
	return AppendBytes(append(b, 2), v)
}

// AppendNullableString appends a value of the union [null, string]: the empty string is the null.
func AppendNullableString(b []byte, v string) []byte {
	if v == "" {
		return append(b, 0)
	}
	return AppendBytes(append(b, 2), v)
}

// Decoder reads Avro values out of a block's entries. The first fault sticks: every later read returns zero, and Err says what
// it was. Byte slices alias the block.
type Decoder struct {
	b   []byte
	at  int
	err error
}

var errShort = errors.New("an entry ends in the middle of a value")

// NewDecoder reads from b.
func NewDecoder(b []byte) *Decoder { return &Decoder{b: b} }

// Err is the first fault.
func (d *Decoder) Err() error { return d.err }

// Offset is how many bytes have been read.
func (d *Decoder) Offset() int { return d.at }

// More reports whether bytes are left and none was faulty.
func (d *Decoder) More() bool { return d.err == nil && d.at < len(d.b) }

func (d *Decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
}

// Long reads an int or long.
func (d *Decoder) Long() int64 {
	if d.err != nil {
		return 0
	}
	v, n := binary.Varint(d.b[d.at:])
	if n <= 0 {
		d.fail(errShort)
		return 0
	}
	d.at += n
	return v
}

// Bool reads a boolean.
func (d *Decoder) Bool() bool {
	if d.err != nil || d.at >= len(d.b) {
		d.fail(errShort)
		return false
	}
	d.at++
	return d.b[d.at-1] != 0
}

// Bytes reads bytes or a string; never nil without a fault.
func (d *Decoder) Bytes() []byte {
	n := d.Long()
	if d.err != nil {
		return nil
	}
	if n < 0 || n > int64(len(d.b)-d.at) {
		d.fail(errShort)
		return nil
	}
	v := d.b[d.at : d.at+int(n) : d.at+int(n)]
	d.at += int(n)
	return v
}

// Fixed reads a fixed value of n bytes; nil with a fault.
func (d *Decoder) Fixed(n int) []byte {
	if d.err != nil || n > len(d.b)-d.at {
		d.fail(errShort)
		return nil
	}
	v := d.b[d.at : d.at+n : d.at+n]
	d.at += n
	return v
}

// Nullable reads a value of the union [null, bytes] or [null, string].
func (d *Decoder) Nullable() []byte {
	if !d.Present() {
		return nil
	}
	return d.Bytes()
}

// Present reads the branch of a union of null and one other type.
func (d *Decoder) Present() bool {
	switch d.Long() {
	case 0:
		return false
	case 1:
		return true
	}
	d.fail(errors.New("a union has a branch that the schema does not know"))
	return false
}

// Array calls item for each item of an array.
func (d *Decoder) Array(item func()) {
	for d.err == nil {
		n := d.Long()
		if n < 0 {
			n = -n
			d.Long() // the size of the run in bytes, for readers that skip
		}
		if n == 0 || d.err != nil {
			return
		}
		if n < 0 || n > int64(len(d.b)-d.at) { // every item takes a byte at least
			d.fail(errShort)
			return
		}
		for ; n > 0 && d.err == nil; n-- {
			item()
		}
	}
}

// appender is an io.Writer onto a slice.
type appender struct{ b []byte }

func (a *appender) Write(p []byte) (int, error) {
	a.b = append(a.b, p...)
	return len(p), nil
}

// byteReader is an io.Reader and io.ByteReader over a slice, so that flate adds no buffer of its own.
type byteReader struct {
	b  []byte
	at int
}

func (r *byteReader) Read(p []byte) (int, error) {
	if r.at >= len(r.b) {
		return 0, io.EOF
	}
	n := copy(p, r.b[r.at:])
	r.at += n
	return n, nil
}

func (r *byteReader) ReadByte() (byte, error) {
	if r.at >= len(r.b) {
		return 0, io.EOF
	}
	r.at++
	return r.b[r.at-1], nil
}

// readLimited appends what r gives to dst, up to limit bytes.
func readLimited(dst []byte, r io.Reader, limit int64) ([]byte, error) {
	out := appender{dst}
	n, err := io.Copy(&out, io.LimitReader(r, limit+1))
	if err == nil && n > limit {
		err = errTooLarge
	}
	return out.b, err
}
