package raw

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/stream-arrow/twgd/avrofile"
	"github.com/stream-arrow/twgd/chain"
	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks"
	"github.com/stream-arrow/twgd/store"
)

// Finding is one thing that is not as it should be in a chain.
type Finding struct {
	Partition record.Partition
	Kind      FindingKind
	Path      string          // the object's key, or the file
	Byte      int64           // where in it, -1: all of it, or it is missing
	Span      checkpoint.Span // the offsets that cannot be read for it; To is OpenEnd where nothing says where they end
	Problem   string
}

// OpenEnd is the end of a span that nothing that is stored tells.
const OpenEnd = math.MaxInt64

// FindingKind says what a finding means for the data.
type FindingKind uint8

// The kinds of findings.
const (
	// Damaged: what was acknowledged is hurt or missing. Nothing may be cut.
	Damaged FindingKind = iota + 1
	// Torn: an unfinished write at the end of a local chain, never acknowledged. Its owner cuts it when it opens the chain.
	Torn
	// Doubtful: bytes at the end of a local chain that are either an unfinished write or damage. Its owner keeps them aside and cuts.
	Doubtful
	// Stray: something that does not belong there. No data is hurt.
	Stray
)

func (k FindingKind) String() string {
	switch k {
	case Damaged:
		return "damaged"
	case Torn:
		return "torn"
	case Doubtful:
		return "doubtful"
	case Stray:
		return "stray"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Cuttable tells whether the owner of the chain cuts the bytes off by itself.
func (k FindingKind) Cuttable() bool { return k == Torn || k == Doubtful }

// Verify reads the whole chain of p and reports all that is wrong with it: names, headers, checksums, offsets, contiguity. It goes
// on behind damage as far as there is something to go on from. An error means that it could not look, not that it found something.
func (s *Store) Verify(ctx context.Context, p record.Partition, report func(Finding)) error {
	id, known, err := s.reader(ctx, p)
	v := &verifier{ctx: ctx, id: id, report: report, at: id.genesis, limit: OpenEnd}
	if errors.Is(err, avrofile.ErrDamaged) {
		v.found(Damaged, id.dir+"/_genesis", -1, OpenEnd, err.Error())
		return nil
	}
	if err != nil {
		return err
	}
	if known != nil {
		v.limit = known.Next
	}
	if err := s.medium.verify(v); err != nil {
		return err
	}
	if known != nil && v.at < known.Next {
		v.found(Damaged, id.dir, -1, known.Next, fmt.Sprintf("the chain ends at %d, but %d is stored", v.at, known.Next))
	}
	return nil
}

// verifier walks along a chain.
type verifier struct {
	ctx    context.Context
	id     chainID
	report func(Finding)
	at     int64 // up to where the chain has been accounted for, as read or as reported
	limit  int64 // what lies behind it may be in the middle of being written
}

// found reports what cannot be read from v.at to to.
func (v *verifier) found(kind FindingKind, path string, at, to int64, problem string) {
	v.report(Finding{v.id.partition, kind, path, at, checkpoint.Span{From: v.at, To: max(v.at, to)}, problem})
}

func (v *verifier) stray(path, problem string) {
	v.report(Finding{v.id.partition, Stray, path, -1, checkpoint.Span{}, problem})
}

// covers takes a commit that has been read at a place, which has to follow what was there.
func (v *verifier) covers(c commit, path string, at int64) {
	switch {
	case c.first > v.at:
		v.found(Damaged, path, at, c.first, fmt.Sprintf("[%d, %d) is missing in front of it", v.at, c.first))
	case c.first < v.at:
		v.report(Finding{v.id.partition, Damaged, path, at, checkpoint.Span{From: c.first, To: c.first},
			fmt.Sprintf("it covers [%d, %d), but the chain in front of it ends at %d", c.first, c.next, v.at)})
	}
	v.at = max(v.at, c.next)
}

// verify implements medium.
func (o *objects) verify(v *verifier) error {
	log := o.log(v.id, nil)
	for after := v.id.dir + "/"; ; {
		entries, err := o.bucket.List(v.ctx, v.id.dir+"/", after, 1000)
		if err != nil {
			return fmt.Errorf("listing the chain of %v: %w", v.id.partition, err)
		}
		for _, e := range entries {
			if err := o.verifyEntry(v, log, e.Key); err != nil {
				return err
			}
			after = e.Key
		}
		if len(entries) == 0 {
			return nil
		}
	}
}

func (o *objects) verifyEntry(v *verifier, log *chain.Log, key string) error {
	name := strings.TrimPrefix(key, v.id.dir+"/")
	first, ok := fileOffset(name)
	switch {
	case name == "_genesis":
		return nil
	case !ok:
		v.stray(key, "it is no segment")
		return nil
	case first < v.id.genesis:
		v.stray(key, fmt.Sprintf("it lies in front of the chain, which begins at %d", v.id.genesis))
		return nil
	}
	got, err := o.segment(v.ctx, log, v.id, first)
	switch {
	case err == nil:
		v.covers(got, key, 0)
		return nil
	case errors.Is(err, store.ErrNotFound):
		return nil // a listing may show what is gone; the next segment tells
	case !errors.Is(err, avrofile.ErrDamaged):
		return err
	}
	if first > v.at {
		v.found(Damaged, key, -1, first, fmt.Sprintf("[%d, %d) is missing in front of it", v.at, first))
		v.at = first
	}
	next, nerr := log.Names(v.ctx, first+1, OpenEnd, 1)
	if nerr != nil {
		return nerr
	}
	to := int64(OpenEnd)
	if len(next) > 0 {
		to = next[0]
	}
	v.found(Damaged, key, 0, to, err.Error())
	if len(next) > 0 {
		v.at = max(v.at, to)
	}
	return nil
}

// verify implements medium.
func (m *files) verify(v *verifier) error {
	names, err := m.list(v.id)
	if err != nil {
		return err
	}
	if err := m.strays(v); err != nil {
		return err
	}
	for i, first := range names {
		next := int64(-1)
		if i+1 < len(names) {
			next = names[i+1]
		}
		if v.at >= v.limit {
			return nil
		}
		if err := m.verifyFile(v, first, next); err != nil {
			return err
		}
	}
	return nil
}

func (m *files) strays(v *verifier) error {
	entries, err := m.fs.ReadDir(m.path(v.id))
	if err != nil {
		return fmt.Errorf("listing the chain of %v: %w", v.id.partition, err)
	}
	for _, e := range entries {
		_, segment := fileOffset(e.Name())
		switch {
		case segment, e.Name() == "_genesis", strings.HasPrefix(e.Name(), ".tmp-"):
		case strings.HasSuffix(e.Name(), ".torn"):
			v.stray(m.path(v.id)+"/"+e.Name(), "the end of a file, kept aside when it was cut off")
		default:
			v.stray(m.path(v.id)+"/"+e.Name(), "it is no segment")
		}
	}
	return nil
}

func (m *files) verifyFile(v *verifier, first, next int64) error {
	s, err := m.openSegment(v.id, first)
	if errors.Is(err, avrofile.ErrDamaged) {
		to := next
		if next < 0 {
			to = OpenEnd
		}
		v.found(Damaged, m.file(v.id, first), 0, to, err.Error())
		v.at = max(v.at, next)
		return nil
	}
	if err != nil {
		return err
	}
	defer s.close()
	if first != v.at {
		v.found(Damaged, s.path, 0, first, fmt.Sprintf("the file begins at %d, but the chain in front of it ends at %d", first, v.at))
		v.at = max(v.at, first)
	}
	last, err := v.blocks(s, next)
	if err != nil || last == s.size || v.at >= v.limit {
		return err
	}
	return v.tail(s, last, next)
}

// blocks checks the blocks of a file and returns where what is valid of it ends. Bad bytes with a valid block behind them are
// reported here; what is bad at the very end is left to tail.
func (v *verifier) blocks(s *segment, next int64) (end int64, err error) {
	end = s.header.Size
	for at := end; at < s.size && v.at < v.limit; {
		if err := v.ctx.Err(); err != nil {
			return end, err
		}
		frame, got, err := s.at(at)
		if err != nil && !errors.Is(err, avrofile.ErrDamaged) && !errors.Is(err, avrofile.ErrTorn) {
			return end, fmt.Errorf("reading %s: %w", s.path, err)
		}
		if err != nil {
			cause := err
			if frame, got, err = s.after(at); err != nil || frame.Size == 0 {
				return end, err
			}
			v.found(Damaged, s.path, at, got.first, fmt.Sprintf("no valid block up to byte %d: %v", frame.Offset, cause))
			v.at = max(v.at, got.first)
		}
		if next >= 0 && got.first >= next {
			return s.size, nil // names win: this was never acknowledged
		}
		v.covers(got, s.path, frame.Offset)
		at, end = frame.End(), frame.End()
	}
	return end, nil
}

// tail reports what is behind the last valid block of a file.
func (v *verifier) tail(s *segment, at, next int64) error {
	switch {
	case next >= 0 && v.at >= next:
		return nil // never acknowledged: the chain goes on in the next file without a hole
	case next >= 0:
		v.found(Damaged, s.path, at, next, fmt.Sprintf("no valid block from byte %d to the end", at))
		v.at = next
		return nil
	}
	_, _, cause := s.at(at)
	s.bad, s.cause = at, cause
	s.tail = tail{tailTorn, s.size - at, cause}
	err := s.judge()
	switch {
	case errors.Is(err, avrofile.ErrDamaged):
		v.found(Damaged, s.path, at, OpenEnd, err.Error())
	case err != nil:
		return err
	case s.tail.kind == tailTorn:
		v.found(Torn, s.path, at, OpenEnd, fmt.Sprintf("%d bytes of an unfinished write", s.tail.size))
	default:
		v.found(Doubtful, s.path, at, OpenEnd, fmt.Sprintf("%d bytes that are no valid block: %v", s.tail.size, s.tail.cause))
	}
	return nil
}

// at reads the block that begins at a byte.
func (s *segment) at(at int64) (avrofile.Frame, commit, error) {
	frame, err := s.header.NextFrame(s.f, at, s.size)
	if err != nil {
		return frame, commit{}, err
	}
	got, err := readCommit(&s.header, s.f, frame)
	return frame, got, err
}

// after finds the first valid block behind the bad one at a byte; a frame without a size where there is none.
func (s *segment) after(at int64) (frame avrofile.Frame, got commit, err error) {
	frame, found, err := s.header.FindFrame(s.f, at, s.size, func(f avrofile.Frame) bool {
		c, err := readCommit(&s.header, s.f, f)
		got = c
		return err == nil
	})
	if !found {
		return avrofile.Frame{}, commit{}, err
	}
	return frame, got, err
}

var _ sinks.Raw = (*Store)(nil)
