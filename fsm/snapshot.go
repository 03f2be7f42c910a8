package fsm

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"time"

	"github.com/hashicorp/raft"
)

// Header is what a snapshot says of itself.
type Header struct {
	Index    uint64        // of the last entry in it
	Time     time.Duration // the cluster's
	Sum      [32]byte      // see FSM.Sum
	Sections []SectionInfo
}

// SectionInfo is one section of a snapshot.
type SectionInfo struct {
	Name    string
	Version uint16
	Bytes   int64 // of the table's own data
}

// docs/formats/snapshot.md draws what follows.
const (
	magic       = "TWGDSNAP"
	snapshotV1  = 1
	fixedHead   = len(magic) + 2 + 2 + 8 + 8 + 32 // without its checksum
	maxSections = 64
	chunkSize   = 64 << 10 // what is written
	maxChunk    = 1 << 20  // what is read
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// snapshot is the tables as they were when it was made.
type snapshot struct {
	head   Header
	tables []pinned
}

type pinned struct {
	name    string
	version uint16
	write   func(io.Writer) error
}

// Snapshot pins the tables as they are. What it returns is persisted beside later Applies.
func (f *FSM) Snapshot() (raft.FSMSnapshot, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := &snapshot{head: Header{Index: f.mu.index, Time: f.mu.now, Sum: f.mu.sum}}
	for i := range f.mu.sections {
		s := &f.mu.sections[i]
		out.tables = append(out.tables, pinned{s.name, s.Version(), s.Section.Snapshot()})
	}
	return out, nil
}

// Persist writes the snapshot and closes the sink, or cancels it.
func (s *snapshot) Persist(sink raft.SnapshotSink) error {
	if err := s.write(sink); err != nil {
		return errors.Join(fmt.Errorf("writing a snapshot of the tables: %w", err), sink.Cancel())
	}
	return sink.Close()
}

// Release has nothing to let go of: what was pinned goes when nobody points at it.
func (s *snapshot) Release() {}

func (s *snapshot) write(w io.Writer) error {
	all := &hashed{w: w, h: sha256.New()}
	if _, err := all.Write(s.appendHead(nil)); err != nil {
		return err
	}
	for _, table := range s.tables {
		if err := table.section(all); err != nil {
			return fmt.Errorf("section %s: %w", table.name, err)
		}
	}
	_, err := w.Write(all.h.Sum(nil))
	return err
}

func (s *snapshot) appendHead(to []byte) []byte {
	to = append(to, magic...)
	to = binary.BigEndian.AppendUint16(to, snapshotV1)
	to = binary.BigEndian.AppendUint16(to, uint16(len(s.tables)))
	to = binary.BigEndian.AppendUint64(to, uint64(s.head.Time))
	to = binary.BigEndian.AppendUint64(to, s.head.Index)
	to = append(to, s.head.Sum[:]...)
	return binary.BigEndian.AppendUint32(to, crc32.Checksum(to, castagnoli))
}

func (p *pinned) section(w io.Writer) error {
	head := append([]byte{byte(len(p.name))}, p.name...)
	head = binary.BigEndian.AppendUint16(head, p.version)
	head = binary.BigEndian.AppendUint32(head, crc32.Checksum(head, castagnoli))
	if _, err := w.Write(head); err != nil {
		return err
	}
	out := &chunks{w: w, buf: make([]byte, 0, chunkSize)}
	if err := p.write(out); err != nil {
		return err
	}
	return out.close()
}

// hashed writes, and hashes what it writes.
type hashed struct {
	w io.Writer
	h hash.Hash
}

func (h *hashed) Write(p []byte) (int, error) {
	n, err := h.w.Write(p)
	h.h.Write(p[:n])
	return n, err
}

// chunks cuts what is written to it into chunks with checksums.
type chunks struct {
	w     io.Writer
	buf   []byte
	total uint64
}

func (c *chunks) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		n := min(len(rest), chunkSize-len(c.buf))
		c.buf = append(c.buf, rest[:n]...)
		rest = rest[n:]
		if len(c.buf) == chunkSize {
			if err := c.flush(); err != nil {
				return 0, err
			}
		}
	}
	return len(p), nil
}

func (c *chunks) flush() error {
	var head [8]byte
	binary.BigEndian.PutUint32(head[0:], uint32(len(c.buf)))
	binary.BigEndian.PutUint32(head[4:], crc32.Checksum(c.buf, castagnoli))
	if _, err := c.w.Write(head[:]); err != nil {
		return err
	}
	_, err := c.w.Write(c.buf)
	c.total += uint64(len(c.buf))
	c.buf = c.buf[:0]
	return err
}

// close ends the section: a chunk of no bytes, and how many there were.
func (c *chunks) close() error {
	if len(c.buf) > 0 {
		if err := c.flush(); err != nil {
			return err
		}
	}
	end := make([]byte, 4, 12)
	_, err := c.w.Write(binary.BigEndian.AppendUint64(end, c.total))
	return err
}
