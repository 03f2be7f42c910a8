package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/stream-arrow/twgd/store"
)

// upload is one backup on its way. It gets its name last: it is written under a temporary name, read back, checked, written from
// what was read under its own name, and checked once more. Whoever dies in between, and whatever becomes of a request, there is
// never a name of a backup in front of something that does not verify, as long as the store keeps its promise that an object is
// there whole or not at all. Where it does not, this process finds it out and takes the object away; only if it dies at that very
// moment does a name stay that lies, and then a restore passes it over.
type upload struct {
	p      *Place
	name   string // its own
	temp   string
	head   head
	foot   foot
	size   int64
	verify Verify
}

// Store makes a backup out of a snapshot. The snapshot is verified while it is read, and again out of the store, unless it is
// encrypted to others alone: then what came back is compared by its checksum. Requests whose replies are lost are settled by
// reading back; every other failure ends the attempt, and a later one begins anew with another snapshot (see [Schedule]). After
// success, what is beyond Options.Keep is deleted.
func (p *Place) Store(ctx context.Context, m Meta, snapshot io.Reader, verify Verify) (Info, error) {
	m.Time = m.Time.UTC().Truncate(time.Millisecond)
	u := &upload{p: p, name: backupName(m), temp: uploadName(), head: head{m, p.cluster, len(p.recipients) > 0}, verify: verify}
	if err := u.run(ctx, snapshot); err != nil {
		u.drop(ctx)
		return Info{}, fmt.Errorf("backup of cluster %s at index %d: %w", p.cluster, m.Index, err)
	}
	p.tidy(ctx, u)
	u.drop(ctx)
	return Info{Meta: m, Name: u.name, Size: u.size, Plain: u.foot.plain, Sealed: u.head.sealed}, nil
}

func (u *upload) run(ctx context.Context, snapshot io.Reader) error {
	err := u.publish(ctx, u.temp, func(w io.Writer) error {
		return verifying(u.verify, func(v io.Writer) (err error) {
			u.foot, err = writeContainer(w, u.head, u.p.recipients, io.TeeReader(until{ctx, snapshot}, v))
			return err
		})
	})
	if err != nil {
		return err
	}
	back, err := u.readBack(ctx, u.temp)
	if err != nil {
		return err
	}
	defer back.Close()
	u.size = back.size
	return u.give(ctx, back)
}

// publish stages what fill writes and makes it an object. Whether it is there is for the read-back to say.
func (u *upload) publish(ctx context.Context, name string, fill func(w io.Writer) error) error {
	st, err := u.p.bucket.Stage(ctx)
	if err != nil {
		return err
	}
	defer st.Discard()
	if err := fill(st); err != nil {
		return err
	}
	err = st.Publish(ctx, u.p.key(name))
	if errors.Is(err, store.ErrUnknown) || errors.Is(err, store.ErrExists) {
		u.p.opt.Log.Debug("reading back what may have been stored", "name", name, "error", err)
		return nil
	}
	return err
}

// readBack reads what has just been stored, and checks that it is what was written.
func (u *upload) readBack(ctx context.Context, name string) (*spool, error) {
	s, err := u.p.fetch(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("reading back: %w", err)
	}
	if err := u.check(ctx, s); err != nil {
		s.Close()
		return nil, fmt.Errorf("reading back %s: %w", name, err)
	}
	return s, nil
}

func (u *upload) check(ctx context.Context, s *spool) error {
	c, err := openContainer(s, s.size)
	if err != nil {
		return err
	}
	if c.foot != u.foot {
		return fmt.Errorf("%w: it is not what was written", ErrDamaged)
	}
	if c.sealed && len(u.p.identities) == 0 {
		return nil
	}
	plain, err := u.p.decode(ctx, c, u.verify)
	if errors.Is(err, ErrIdentity) {
		return nil // it is encrypted to others
	}
	if err != nil {
		return err
	}
	return plain.Close()
}

// give writes the checked bytes under the backup's own name.
func (u *upload) give(ctx context.Context, from *spool) error {
	err := u.publish(ctx, u.name, func(w io.Writer) error {
		_, err := io.Copy(w, until{ctx, from.reader()})
		return err
	})
	if err != nil {
		return err
	}
	back, err := u.readBack(ctx, u.name)
	if err == nil {
		return back.Close()
	}
	if !errors.Is(err, ErrDamaged) {
		return err
	}
	return u.settle(ctx, err)
}

// settle deals with an object that has the backup's name and not our bytes. If it is another node's backup of the same moment, it is
// as good as ours. If it is damaged when it is read a second time, too, it is taken away: nobody can restore it.
func (u *upload) settle(ctx context.Context, found error) error {
	info, err := u.p.Check(ctx, u.name, u.verify)
	switch {
	case err == nil || errors.Is(err, ErrIdentity):
		u.size, u.foot.plain, u.head.sealed = info.Size, info.Plain, info.Sealed
		return nil
	case passable(err):
		return errors.Join(found, u.p.bucket.Delete(ctx, u.p.key(u.name)))
	}
	return found
}

// drop removes the temporary object. Where that fails, a later backup does it.
func (u *upload) drop(ctx context.Context) {
	if err := u.p.bucket.Delete(ctx, u.p.key(u.temp)); err != nil {
		u.p.opt.Log.Debug("leaving a temporary object to a later backup", "name", u.temp, "error", err)
	}
}

// orphan is the age from which a temporary object is taken for that of a process that died, by the store's own clock.
const orphan = 24 * time.Hour

// tidy deletes the oldest backups beyond those that stay, and what dead processes have left. The backup has been made by now;
// what cannot be deleted is reported and tried again after the next one.
func (p *Place) tidy(ctx context.Context, u *upload) {
	entries, err := p.bucket.List(ctx, p.key(""), "", 0)
	if err != nil {
		p.opt.Log.Warn("cannot look for old backups to delete", "error", err)
		return
	}
	for _, name := range append(p.surplus(p.infos(entries), u.name), p.orphans(entries, u.temp)...) {
		if err := p.bucket.Delete(ctx, p.key(name)); err != nil {
			p.opt.Log.Warn("cannot delete an old backup", "name", name, "error", err)
		}
	}
}

// surplus names the backups beyond the newest Keep, of which just, the one just made, is none: it may be that of an older
// incarnation that is still alive.
func (p *Place) surplus(all []Info, just string) (names []string) {
	if p.opt.Keep <= 0 || len(all) <= p.opt.Keep {
		return nil
	}
	for _, b := range all[:len(all)-p.opt.Keep] {
		if b.Name != just {
			names = append(names, b.Name)
		}
	}
	return names
}

// orphans names temporary objects that are much older than ours, which has been stored a moment ago.
func (p *Place) orphans(entries []store.Entry, ours string) (names []string) {
	var now time.Time
	for _, e := range entries {
		if e.Key == p.key(ours) {
			now = e.Time
		}
	}
	for _, e := range entries {
		name := strings.TrimPrefix(e.Key, p.key(""))
		if strings.HasPrefix(name, uploadPrefix) && now.Sub(e.Time) > orphan {
			names = append(names, name)
		}
	}
	return names
}
