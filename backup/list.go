package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/stream-arrow/twgd/store"
)

// List returns the backups that there are, the oldest first, as their names tell. None of them is read.
func (p *Place) List(ctx context.Context) ([]Info, error) {
	entries, err := p.bucket.List(ctx, p.key(""), "", 0)
	if err != nil {
		return nil, fmt.Errorf("listing the backups of cluster %s: %w", p.cluster, err)
	}
	return p.infos(entries), nil
}

func (p *Place) infos(entries []store.Entry) (all []Info) {
	for _, e := range entries {
		name := strings.TrimPrefix(e.Key, p.key(""))
		if m, ok := parseName(name); ok {
			all = append(all, Info{Meta: m, Name: name, Size: e.Size})
		}
	}
	return all // the order of names is the order of backups
}

// Newest returns the newest backup that verifies, and the snapshot in it, which the caller closes. What the snapshot's reader
// returns is what was verified: it has been copied, and is Info.Plain bytes long. Newer ones that are torn, flipped or do not
// verify are passed over; Info.Skipped names each, and so does the log. Where none is left the error is ErrNone, and Info.Skipped
// says what there is.
//
// A store that does not answer, a newer version and a missing identity are errors and not passed over: an older backup than
// need be would be restored.
func (p *Place) Newest(ctx context.Context, verify Verify) (Info, io.ReadCloser, error) {
	all, err := p.List(ctx)
	if err != nil {
		return Info{}, nil, err
	}
	var skipped []Skipped
	for _, b := range slices.Backward(all) {
		info, snapshot, err := p.open(ctx, b.Name, verify)
		if err == nil {
			info.Skipped = skipped
			return info, plain{snapshot.reader(), snapshot}, nil
		}
		if !passable(err) {
			return Info{Skipped: skipped}, nil, err
		}
		p.opt.Log.Warn("passing over a backup that cannot be restored", "backup", b.Name, "error", err)
		skipped = append(skipped, Skipped{b.Name, err})
	}
	return Info{Skipped: skipped}, nil, fmt.Errorf("cluster %s: %w", p.cluster, ErrNone)
}

// passable says that a backup is no use to anybody. One that is gone was deleted since it was listed.
func passable(err error) bool {
	return errors.Is(err, ErrDamaged) || errors.Is(err, errRefused) || errors.Is(err, store.ErrNotFound)
}

// Check reads one backup and says whether it verifies. ErrIdentity means that it is whole, but that nobody here can look into it.
func (p *Place) Check(ctx context.Context, name string, verify Verify) (Info, error) {
	info, snapshot, err := p.open(ctx, name, verify)
	if err == nil {
		err = snapshot.Close()
	}
	return info, err
}

// Read returns one backup's snapshot as Newest does.
func (p *Place) Read(ctx context.Context, name string, verify Verify) (Info, io.ReadCloser, error) {
	info, snapshot, err := p.open(ctx, name, verify)
	if err != nil {
		return info, nil, err
	}
	return info, plain{snapshot.reader(), snapshot}, nil
}

// open fetches a backup, decodes it into a spool and has it verified there.
func (p *Place) open(ctx context.Context, name string, verify Verify) (Info, *spool, error) {
	meta, ok := parseName(name)
	if !ok {
		return Info{}, nil, fmt.Errorf("%q is not the name of a backup", name)
	}
	packed, err := p.fetch(ctx, name)
	if err != nil {
		return Info{}, nil, err
	}
	defer packed.Close()
	c, err := openContainer(packed, packed.size)
	if err == nil {
		err = p.fits(c.head, name)
	}
	if err != nil {
		return Info{Meta: meta, Name: name, Size: packed.size}, nil, fmt.Errorf("%s: %w", name, err)
	}
	info := c.info(name, packed.size)
	snapshot, err := p.decode(ctx, c, verify)
	if err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return info, snapshot, err
}

func (c *container) info(name string, size int64) Info {
	return Info{Meta: c.Meta, Name: name, Size: size, Plain: c.plain, Sealed: c.sealed}
}

// fits checks that a backup is the one that its name and its folder promise.
func (p *Place) fits(h head, name string) error {
	if h.cluster != p.cluster {
		return fmt.Errorf("%w: it is a backup of cluster %q", ErrDamaged, h.cluster)
	}
	if backupName(h.Meta) != name {
		return fmt.Errorf("%w: it is the backup %s", ErrDamaged, backupName(h.Meta))
	}
	return nil
}

func (p *Place) decode(ctx context.Context, c *container, verify Verify) (*spool, error) {
	s, err := newSpool(p.opt.SpoolDir)
	if err != nil {
		return nil, err
	}
	if err = c.decode(s, p.identities); err == nil {
		err = verifying(verify, func(w io.Writer) error {
			_, err := io.Copy(w, until{ctx, s.reader()})
			return err
		})
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}
