package store_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stream-arrow/twgd/store"
	"github.com/stream-arrow/twgd/store/storetest"
)

// The chain of these tests is what an owner makes of append files: files named by the number of their first block, a
// header in each, and blocks of a length, a CRC-32C over number and payload, the number, and a payload that follows from
// the number.

const header = "header of the file\n"

func block(seq int) []byte {
	rng := rand.New(rand.NewPCG(uint64(seq), 7))
	p := make([]byte, 16+rng.IntN(5*storetest.Page))
	for i := range p[16:] {
		p[16+i] = byte(rng.Uint32())
	}
	binary.BigEndian.PutUint64(p[8:], uint64(seq))
	binary.BigEndian.PutUint32(p, uint32(len(p)))
	binary.BigEndian.PutUint32(p[4:], crc32.Checksum(p[8:], crc32.MakeTable(crc32.Castagnoli)))
	return p
}

// parseBlock takes the first block off p; ok is false where there is no valid one.
func parseBlock(p []byte) (seq, n int, ok bool) {
	if len(p) < 16 {
		return 0, 0, false
	}
	n = int(binary.BigEndian.Uint32(p))
	if n < 16 || n > len(p) || crc32.Checksum(p[8:n], crc32.MakeTable(crc32.Castagnoli)) != binary.BigEndian.Uint32(p[4:]) {
		return 0, 0, false
	}
	return int(binary.BigEndian.Uint64(p[8:])), n, true
}

// owner drives append files as the owner of a chain would, through everything that the disk does to it.
type owner struct {
	t     *testing.T
	disk  *storetest.Disk
	rng   *rand.Rand
	file  *store.AppendFile // nil while down
	next  int               // the number of the next block
	acked int               // all blocks below are acknowledged
	seen  map[string]int    // what has happened, to know that the test tests something
}

const chainDir = "/raw/chain"

func fileName(seq int) string { return fmt.Sprintf("%s/%06d", chainDir, seq) }

// read returns the blocks that a reader finds, in order: a file ends at its first invalid block, or where the next
// file begins. Valid is the end of the last valid block of the last file, last its bytes (or the header's).
func (o *owner) read() (blocks []int, name string, valid int64, last []byte) {
	names := o.files()
	for i, seq := range names {
		end := 1 << 30
		if i+1 < len(names) {
			end = names[i+1]
		}
		name = fileName(seq)
		p := o.content(name)
		if !bytes.HasPrefix(p, []byte(header)) {
			o.t.Fatalf("%s has no header: %q", name, p)
		}
		last, valid = []byte(header), int64(len(header))
		for {
			seq, n, ok := parseBlock(p[valid:])
			if !ok || seq >= end {
				break
			}
			if last = p[valid : valid+int64(n)]; !bytes.Equal(last, block(seq)) {
				o.t.Fatalf("block %d in %s is another", seq, name)
			}
			blocks = append(blocks, seq)
			valid += int64(n)
		}
	}
	return blocks, name, valid, last
}

func (o *owner) files() (names []int) {
	for _, f := range o.disk.Files() {
		if base, ok := strings.CutPrefix("/"+f, chainDir+"/"); ok && !strings.HasPrefix(base, ".tmp-") {
			seq, err := strconv.Atoi(base)
			if err != nil {
				o.t.Fatal(err)
			}
			names = append(names, seq)
		}
	}
	return names
}

func (o *owner) content(name string) []byte {
	f, err := o.disk.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		o.t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		o.t.Fatal(err)
	}
	p := make([]byte, info.Size())
	if _, err := f.ReadAt(p, 0); err != nil && !errors.Is(err, io.EOF) {
		o.t.Fatal(err)
	}
	return p
}

// check reads the chain without faults: contiguous, and at least what was acknowledged.
func (o *owner) check(after string) {
	o.t.Helper()
	o.disk.Fault(nil)
	blocks, _, _, _ := o.read()
	for i, seq := range blocks {
		if seq != i {
			o.t.Fatalf("after %s: block %d stands where %d belongs", after, seq, i)
		}
	}
	if len(blocks) < o.acked {
		o.t.Fatalf("after %s: %d blocks were acknowledged, %d are there", after, o.acked, len(blocks))
	}
}

// start opens the chain, or begins it; under faults it may fail, and the owner stays down.
func (o *owner) start() {
	o.disk.Fault(nil)
	blocks, name, valid, last := o.read()
	o.faults()
	var err error
	if name == "" {
		o.file, err = store.CreateAppend(o.disk, fileName(0), []byte(header))
	} else {
		o.file, err = store.OpenAppend(o.disk, name, valid, last)
		if seq, _ := strconv.Atoi(filepath.Base(name)); len(blocks) < seq {
			o.t.Fatalf("%s begins behind a gap: %d blocks before it", name, len(blocks))
		}
	}
	if err != nil {
		o.file = nil
		o.seen["start failed"]++
		return
	}
	// Everything that is there now is believed, and the source will be told so.
	o.next = len(blocks)
	o.acked = max(o.acked, o.next)
}

func (o *owner) append() {
	off, err := o.file.Append(block(o.next))
	switch {
	case err == nil:
		o.next++
		o.acked = o.next
		if off+int64(len(block(o.next-1))) != o.file.Size() {
			o.t.Fatal("the block does not end at the size")
		}
	case errors.Is(err, store.ErrBroken):
		o.seen["broken"]++
		o.roll()
	default:
		o.seen["append failed"]++
		o.disk.Fault(nil)
		if _, name, _, _ := o.read(); int64(len(o.content(name))) != o.file.Size() {
			o.t.Fatalf("a failed append has left something in %s: %v", name, err)
		}
	}
}

func (o *owner) roll() {
	f, err := store.CreateAppend(o.disk, fileName(o.next), []byte(header))
	if err != nil {
		// Create-only tells as well that the broken file is itself the one of this number, without a block: a restart
		// opens it again.
		o.seen["roll failed"]++
		o.down(false)
		return
	}
	o.file.Close()
	o.file = f
	o.seen["rolled"]++
}

func (o *owner) down(power bool) {
	o.file = nil
	if power {
		o.disk.PowerLoss()
		o.seen["power loss"]++
	} else {
		o.disk.Kill()
		o.seen["kill"]++
	}
}

// faults makes one operation in eight fail.
func (o *owner) faults() {
	o.disk.Fault(func(op storetest.Op) error {
		if o.rng.IntN(8) > 0 {
			return nil
		}
		switch op.Name {
		case "write":
			return storetest.Partial{N: o.rng.IntN(op.Size), Err: syscall.ENOSPC}
		case "sync", "syncdir":
			o.seen["sync failed"]++
			return syscall.EIO
		case "link":
			return storetest.Late{Err: syscall.EIO}
		case "truncate", "create", "mkdir":
			return syscall.EROFS
		}
		return nil
	})
}

func (o *owner) step() string {
	switch n := o.rng.IntN(20); {
	case n == 0:
		o.down(true)
		return "power loss"
	case n == 1:
		o.down(false)
		return "kill"
	case o.file == nil:
		o.start()
		return "start"
	case n == 2:
		o.roll()
		return "roll"
	default:
		o.append()
		return "append"
	}
}

// seeds is how many histories of 100 steps are played.
const seeds = 120

// TestCaseD35AppendFileSurvives drives chains through torn writes, failed syncs and truncations, kills and power losses,
// and reads back every acknowledged block after each.
func TestCaseD35AppendFileSurvives(t *testing.T) {
	seen := map[string]int{}
	blocks := 0
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			o := &owner{t: t, disk: storetest.NewDisk(seed), rng: rand.New(rand.NewPCG(seed, 2)), seen: seen}
			for range 100 {
				o.faults()
				did := o.step()
				o.check(did)
			}
			o.down(true)
			o.check("the last power loss")
			blocks += o.acked
		})
	}
	for _, what := range []string{"power loss", "kill", "broken", "rolled", "append failed", "start failed", "roll failed", "sync failed"} {
		if seen[what] == 0 {
			t.Errorf("%q never happened: the test does not test it", what)
		}
	}
	if blocks < seeds*20 {
		t.Errorf("only %d blocks were acknowledged", blocks)
	}
}
