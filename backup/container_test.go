package backup

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"
)

// pack writes a container.
func pack(t testing.TB, m Meta, body []byte, to ...age.Recipient) []byte {
	t.Helper()
	var out bytes.Buffer
	if _, err := writeContainer(&out, head{Meta: m, cluster: "prod"}, to, bytes.NewReader(body)); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// unpack reads one.
func unpack(b []byte, with ...age.Identity) (head, []byte, error) {
	c, err := openContainer(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return head{}, nil, err
	}
	var out bytes.Buffer
	err = c.decode(&out, with)
	return c.head, out.Bytes(), err
}

func identity(t testing.TB) *age.X25519Identity {
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestContainersComeBack(t *testing.T) {
	id := identity(t)
	for _, n := range []int{0, 1, 1000, 64 << 10, 5 << 20, 9<<20 + 1} {
		for _, to := range [][]age.Recipient{nil, {id.Recipient()}, {identity(t).Recipient(), id.Recipient()}} {
			body := snapshot(n)
			h, got, err := unpack(pack(t, meta(7, 4711), body, to...), id)
			if err != nil || !bytes.Equal(got, body) {
				t.Fatalf("%d bytes to %d recipients: %v", n, len(to), err)
			}
			if h.Meta != meta(7, 4711) || h.cluster != "prod" || h.sealed != (len(to) > 0) {
				t.Fatalf("the head came back as %+v", h)
			}
		}
	}
}

// TestEveryFlippedBitIsFound flips each bit, cuts at each byte and adds a byte: nothing of it may verify.
func TestEveryFlippedBitIsFound(t *testing.T) {
	id := identity(t)
	for _, whole := range [][]byte{pack(t, meta(1, 2), snapshot(300)), pack(t, meta(1, 2), snapshot(300), id.Recipient())} {
		bad := func(b []byte, what string, at int) {
			_, _, err := unpack(b, id)
			if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrVersion) {
				t.Errorf("%s %d of %d: %v", what, at, len(whole), err)
			}
		}
		for i := range whole {
			for bit := range 8 {
				b := bytes.Clone(whole)
				b[i] ^= 1 << bit
				bad(b, "flipped at", i)
			}
			bad(whole[:i], "cut at", i)
		}
		bad(append(bytes.Clone(whole), 0), "a byte behind", len(whole))
	}
}

// TestAForgedSumIsNotEnough gives a wrong body the right checksum, as nothing but intent does: the decoder must still stop.
func TestAForgedSumIsNotEnough(t *testing.T) {
	good := pack(t, meta(1, 2), snapshot(3000))
	h := head{Meta: meta(1, 2), cluster: "prod"}
	forge := func(change func(c []byte)) error {
		b := bytes.Clone(good)
		change(b)
		sum := sha256.Sum256(b[:len(b)-32])
		copy(b[len(b)-32:], sum[:])
		_, _, err := unpack(b)
		return err
	}
	foot := len(good) - footSize
	for name, change := range map[string]func([]byte){
		"more plain bytes":  func(b []byte) { b[foot+7]++ },
		"fewer plain bytes": func(b []byte) { b[foot+7]-- },
		"endless plain":     func(b []byte) { copy(b[foot:], "\x7f\xff\xff\xff\xff\xff\xff\xff") },
		"negative plain":    func(b []byte) { b[foot] = 0xff },
		"another body":      func(b []byte) { b[foot+15]++ },
		"a flipped frame":   func(b []byte) { b[h.size()+40] ^= 1 },
	} {
		if err := forge(change); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWhoHasNoIdentityReadsNothing(t *testing.T) {
	b := pack(t, meta(1, 2), snapshot(300), identity(t).Recipient())
	for _, with := range [][]age.Identity{nil, {identity(t)}} {
		if _, got, err := unpack(b, with...); !errors.Is(err, ErrIdentity) || len(got) > 0 {
			t.Errorf("with %d identities: %d bytes, %v", len(with), len(got), err)
		}
	}
}

func TestAFullDiskIsNotDamage(t *testing.T) {
	b := pack(t, meta(1, 2), snapshot(300))
	c, err := openContainer(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	full := errors.New("no space left")
	if err := c.decode(failing{full}, nil); !errors.Is(err, full) || errors.Is(err, ErrDamaged) {
		t.Errorf("decoding onto a full disk: %v", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// TestDrawing reads a container as docs/formats/backup.md draws it, with nothing of this package but its constants for the test.
func TestDrawing(t *testing.T) {
	page, err := os.ReadFile("../docs/formats/backup.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(page), "```hex\n")
	text, _, closed := strings.Cut(text, "```")
	if !found || !closed {
		t.Fatal("docs/formats/backup.md has no container in hex")
	}
	b, err := hex.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		t.Fatal(err)
	}
	h, got, err := unpack(b)
	if err != nil || string(got) != "what the tables hold" {
		t.Fatalf("the container of the page holds %q: %v", got, err)
	}
	if want := (Meta{Incarnation: 1, Index: 4711, Term: 3, Time: noon}); h.Meta != want || h.cluster != "prod" {
		t.Errorf("its head says %+v", h)
	}
	if name := backupName(h.Meta); !strings.Contains(string(page), name) {
		t.Errorf("the page does not name %s", name)
	}
	dec, err := zstd.NewReader(bytes.NewReader(b[54:len(b)-48]), zstd.WithDecoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	defer dec.Close()
	if plain, err := io.ReadAll(dec); err != nil || string(plain) != "what the tables hold" {
		t.Errorf("bytes 54 up to the last 48 hold %q: %v", plain, err)
	}
}

func FuzzContainer(f *testing.F) {
	id, err := age.ParseX25519Identity("AGE-SECRET-KEY-184JMZMVQH3E6U0PSL869004Y3U2NYV7R30EU99CSEDNPH02YUVFSZW44VU")
	if err != nil {
		f.Fatal(err)
	}
	whole := pack(f, meta(1, 2), snapshot(40))
	f.Add(whole)
	f.Add(pack(f, meta(1, 2), snapshot(40), id.Recipient()))
	f.Add(whole[:len(whole)-1])
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, _, err := unpack(b, id); err == nil {
			again(t, b, id)
		}
		if len(b) < footSize { // what the checksum hides from the fuzzer
			return
		}
		b = bytes.Clone(b)
		sum := sha256.Sum256(b[:len(b)-32])
		copy(b[len(b)-32:], sum[:])
		if _, _, err := unpack(b, id); err == nil {
			again(t, b, id)
		}
	})
}

// again writes what was read once more: the head and the snapshot must come back equal.
func again(t *testing.T, b []byte, id age.Identity) {
	h, body, _ := unpack(b, id)
	var out bytes.Buffer
	if _, err := writeContainer(&out, h, nil, bytes.NewReader(body)); err != nil {
		t.Fatal(err)
	}
	h.sealed = false
	if g, got, err := unpack(out.Bytes()); err != nil || g != h || !bytes.Equal(got, body) {
		t.Fatalf("%+v came back as %+v: %v", h, g, err)
	}
}
