package raw

import (
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"

	"github.com/stream-arrow/twgd/avrofile"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/store"
)

// tail is what lies behind the last valid block of a chain's last file.
//
// A file never holds the remains of more than one attempt: an append that failed is cut off and the writer goes on in a new file,
// and whoever opens the file first cuts off, and syncs, what the last owner left. So what is there is one of three things:
//
//   - The beginning of one block: its counts, if they are there, say that it would go on behind the end of the file. A killed
//     process leaves that. It was never acknowledged, and is cut.
//   - More than one block: a sync marker with bytes behind it. The second block was written only after the first one had been
//     acknowledged, so the first one is damaged. Nothing is cut.
//   - Anything else: a whole block whose checksum is wrong, an end that is a marker, zeros. A power loss can leave that of a block
//     that was never acknowledged, and so can damage of the last one that was. Nobody can tell, so nothing is thrown away: the bytes
//     are kept in a file beside, the log says which, and the chain ends in front of them. What they held is read from the source
//     again, and where the source has it no longer, the gap is recorded as the loss that it is.
type tail struct {
	kind  tailKind
	size  int64
	cause error
}

type tailKind uint8

const (
	tailNone tailKind = iota
	tailTorn
	tailDoubtful
)

// resolveLast leaves the blocks that count in the last file of a chain, and says what is behind them.
func (s *segment) resolveLast() error {
	n := len(s.frames)
	if n > 0 {
		got, err := s.commit(n - 1)
		switch {
		case err == nil:
			s.final = got
		case !errors.Is(err, avrofile.ErrDamaged):
			return err
		case s.bad < s.size:
			return fmt.Errorf("%w; bytes follow it, so it was acknowledged", err)
		default:
			return s.giveUpLast(err)
		}
	}
	if s.bad == s.size {
		return nil
	}
	s.tail = tail{kind: tailTorn, size: s.size - s.bad, cause: s.cause}
	return s.judge()
}

// giveUpLast takes the last block away, whose frame is whole and whose content is not.
func (s *segment) giveUpLast(cause error) error {
	n := len(s.frames) - 1
	s.tail = tail{tailDoubtful, s.frames[n].Size, cause}
	s.frames = s.frames[:n]
	if n == 0 {
		return nil
	}
	var err error
	if s.final, err = s.commit(n - 1); err != nil {
		return fmt.Errorf("%w; a block follows it, so it was acknowledged", err)
	}
	return nil
}

// judge tells the beginning of one block from more than one, and from what may be either.
func (s *segment) judge() error {
	bad, _ := s.header.NextFrame(s.f, s.bad, s.size)
	if bad.Size > 0 {
		if _, err := s.header.NextFrame(s.f, bad.End(), s.size); err == nil {
			return fmt.Errorf("%w: %s: no marker at the end of the block at byte %d, and a block follows it", avrofile.ErrDamaged, s.path, s.bad)
		}
	}
	end, found, err := s.header.FindMarker(s.f, s.bad, s.size)
	if err != nil {
		return fmt.Errorf("reading %s: %w", s.path, err)
	}
	switch {
	case found && end < s.size:
		return fmt.Errorf("%w: %s: no block at byte %d, though one that began there was acknowledged: it ends at %d, and bytes follow",
			avrofile.ErrDamaged, s.path, s.bad, end)
	case found || !errors.Is(s.cause, avrofile.ErrTorn):
		s.tail.kind = tailDoubtful
	}
	return nil
}

// keepAside copies the tail into a file of its own beside the segment. Doing so twice makes one file.
func (m *files) keepAside(end fileEnd) (path string, err error) {
	f, err := m.fs.OpenFile(end.path, os.O_RDONLY, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b := make([]byte, end.tail.size)
	if n, err := f.ReadAt(b, end.valid); n < len(b) {
		return "", err
	}
	name := fmt.Sprintf("%s-%d-%08x.torn", record.OffsetName(end.next), end.valid, crc32.Checksum(b, castagnoli))
	path = filepath.Join(filepath.Dir(end.path), name)
	aside, err := store.CreateAppend(m.fs, path, b)
	if errors.Is(err, store.ErrExists) {
		return path, nil
	}
	if err != nil {
		return "", err
	}
	return path, aside.Close()
}
