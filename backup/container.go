package backup

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"math"
	"time"

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"
)

// A container is a head, a body and a foot; docs/formats/backup.md draws them. The head says what the backup is of and can be read
// without the rest. The body is the snapshot as a zstd stream, and where there are recipients, that stream inside one age file. The
// foot holds the lengths and the SHA-256 of all bytes before, so that a container is known to be whole without any key.
const (
	magic      = "\x89TWGB\r\n\x1a" // not text, and it shows what a transfer as text does to it
	fixedHead  = 46                 // bytes in front of the cluster's name
	footSize   = 48
	flagSealed = 1
	maxName    = 255 // bytes of a cluster's name
)

// The window of the compressor bounds the memory of who reads: a reader refuses more.
const window = 4 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// head is the beginning of a container.
type head struct {
	Meta
	cluster string
	sealed  bool
}

func (h head) bytes() []byte {
	b := make([]byte, 0, fixedHead+len(h.cluster)+4)
	b = append(b, magic...)
	b = binary.BigEndian.AppendUint16(b, version)
	flags := uint16(0)
	if h.sealed {
		flags = flagSealed
	}
	b = binary.BigEndian.AppendUint16(b, flags)
	for _, n := range []uint64{h.Incarnation, h.Index, h.Term, uint64(h.Time.UnixMilli())} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	b = binary.BigEndian.AppendUint16(b, uint16(len(h.cluster)))
	b = append(b, h.cluster...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func (h head) size() int64 { return int64(fixedHead + len(h.cluster) + 4) }

// readHead reads the head, and with it nothing of the body.
func readHead(r io.Reader) (h head, err error) {
	b := make([]byte, fixedHead, fixedHead+maxName+4)
	if _, err := io.ReadFull(r, b); err != nil {
		return h, short("head", err)
	}
	if string(b[:len(magic)]) != magic {
		return h, fmt.Errorf("%w: it does not begin as a backup", ErrDamaged)
	}
	// A version is believed before the checksum is: a newer head may have another shape.
	if v := binary.BigEndian.Uint16(b[8:]); v > version {
		return h, fmt.Errorf("%w (%d)", ErrVersion, v)
	}
	n := int(binary.BigEndian.Uint16(b[fixedHead-2:]))
	if n > maxName {
		return h, fmt.Errorf("%w: the head does not fit its checksum", ErrDamaged)
	}
	b = b[:fixedHead+n+4]
	if _, err := io.ReadFull(r, b[fixedHead:]); err != nil {
		return h, short("head", err)
	}
	h.sealed = binary.BigEndian.Uint16(b[10:])&flagSealed != 0
	h.Incarnation, h.Index, h.Term = binary.BigEndian.Uint64(b[12:]), binary.BigEndian.Uint64(b[20:]), binary.BigEndian.Uint64(b[28:])
	h.Time = time.UnixMilli(int64(binary.BigEndian.Uint64(b[36:]))).UTC()
	h.cluster = string(b[fixedHead : fixedHead+n])
	if !bytes.Equal(h.bytes(), b) {
		return h, fmt.Errorf("%w: the head does not fit its checksum", ErrDamaged)
	}
	return h, nil
}

func short(what string, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it ends within the %s", ErrDamaged, what)
	}
	return err
}

// foot is the end of a container.
type foot struct {
	plain, body int64 // bytes
	sum         [sha256.Size]byte
}

func (f foot) lengths() []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(f.plain))
	return binary.BigEndian.AppendUint64(b, uint64(f.body))
}

// counter counts what passes on its way to w, and remembers how w failed.
type counter struct {
	w   io.Writer
	n   int64
	err error
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	c.err = err
	return n, err
}

// writeContainer writes snapshot as a container. What is returned is its foot.
func writeContainer(w io.Writer, h head, to []age.Recipient, snapshot io.Reader) (f foot, err error) {
	h.sealed = len(to) > 0
	sum := sha256.New()
	out := &counter{w: io.MultiWriter(w, sum)}
	if _, err := out.Write(h.bytes()); err != nil {
		return f, err
	}
	if f.plain, err = writeBody(out, to, snapshot); err != nil {
		return f, err
	}
	f.body = out.n - h.size()
	if _, err := out.Write(f.lengths()); err != nil {
		return f, err
	}
	sum.Sum(f.sum[:0])
	_, err = w.Write(f.sum[:])
	return f, err
}

func writeBody(w io.Writer, to []age.Recipient, snapshot io.Reader) (plain int64, err error) {
	inner, finish := w, func() error { return nil }
	if len(to) > 0 {
		sealing, err := age.Encrypt(w, to...)
		if err != nil {
			return 0, fmt.Errorf("encrypting: %w", err)
		}
		inner, finish = sealing, sealing.Close
	}
	// One goroutine: this one.
	enc, err := zstd.NewWriter(inner, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(window), zstd.WithEncoderCRC(true))
	if err != nil {
		return 0, fmt.Errorf("compressing: %w", err)
	}
	plain, err = io.Copy(enc, struct{ io.Reader }{snapshot})
	if cerr := enc.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return plain, err
	}
	return plain, finish()
}

// container is one that is whole: its checksum has been computed.
type container struct {
	head
	foot
	r io.ReaderAt
}

// openContainer reads all of a container of the given size and checks everything that can be checked without a key.
func openContainer(r io.ReaderAt, size int64) (*container, error) {
	h, err := readHead(io.NewSectionReader(r, 0, size))
	if err != nil {
		return nil, err
	}
	c := &container{head: h, r: r}
	end := make([]byte, footSize)
	if size < h.size()+footSize {
		return nil, fmt.Errorf("%w: it ends within the foot", ErrDamaged)
	}
	if _, err := io.ReadFull(io.NewSectionReader(r, size-footSize, footSize), end); err != nil {
		return nil, short("foot", err)
	}
	c.plain, c.body = int64(binary.BigEndian.Uint64(end)), int64(binary.BigEndian.Uint64(end[8:]))
	copy(c.sum[:], end[16:])
	if err := c.check(sha256.New(), size); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *container) check(sum hash.Hash, size int64) error {
	if _, err := io.Copy(sum, io.NewSectionReader(c.r, 0, size-sha256.Size)); err != nil {
		return err
	}
	if !bytes.Equal(sum.Sum(nil), c.sum[:]) {
		return fmt.Errorf("%w: its checksum does not match", ErrDamaged)
	}
	if c.body != size-footSize-c.head.size() || c.plain < 0 || c.plain == math.MaxInt64 {
		return fmt.Errorf("%w: its lengths do not match", ErrDamaged)
	}
	return nil
}

// decode writes the snapshot to w. Whatever goes wrong is damage, but for what w says and what is missing to read it.
func (c *container) decode(w io.Writer, with []age.Identity) error {
	body, err := c.unsealed(with)
	if err != nil {
		return err
	}
	dec, err := zstd.NewReader(body, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(window), zstd.WithDecoderLowmem(true))
	if err != nil {
		return fmt.Errorf("decompressing: %w", err)
	}
	defer dec.Close()
	out := &counter{w: w}
	// One byte more than there should be: it shows that there is more, and makes the decoder check its last checksum.
	_, err = io.Copy(out, io.LimitReader(struct{ io.Reader }{dec}, c.plain+1))
	switch {
	case out.err != nil:
		return out.err
	case err != nil:
		return fmt.Errorf("%w: %v", ErrDamaged, err)
	case out.n != c.plain:
		return fmt.Errorf("%w: it does not hold %d bytes", ErrDamaged, c.plain)
	}
	return nil
}

func (c *container) unsealed(with []age.Identity) (io.Reader, error) {
	body := io.NewSectionReader(c.r, c.head.size(), c.body)
	if !c.sealed {
		return body, nil
	}
	if len(with) == 0 {
		return nil, ErrIdentity
	}
	r, err := age.Decrypt(body, with...)
	if err != nil {
		return nil, unsealing(err)
	}
	return r, nil
}

func unsealing(err error) error {
	var none *age.NoIdentityMatchError
	if errors.As(err, &none) {
		return ErrIdentity
	}
	return fmt.Errorf("%w: %v", ErrDamaged, err)
}
