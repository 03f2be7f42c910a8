package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// ProbePrefix begins the keys of the objects that a probe makes, and of nothing else.
const ProbePrefix = "_probe"

// probeOrphan is the age from which a probe's objects are taken for those of a process that died, and removed.
const probeOrphan = 24 * time.Hour

// racers is how many creators race for one key in a probe. A store that compares first and writes later passes when
// asked twice in a row, and fails here.
const racers = 8

// prober makes the objects of one probe and removes them again.
type prober struct {
	b     Bucket
	name  string // _probe-<16 hex digits>; a key is this, a hyphen, and a name, so that no directory is left behind
	parts bool   // the probe of uploads in parts
	made  []string
}

func newProber(b Bucket, parts bool) *prober {
	return &prober{b: b, name: fmt.Sprintf("%s-%016x", ProbePrefix, rand.Uint64()), parts: parts}
}

func (p *prober) key(name string) string {
	key := p.name + "-" + name
	p.made = append(p.made, key)
	return key
}

// probe tries everything that a Bucket promises with small objects.
func probe(ctx context.Context, b Bucket) error {
	p := newProber(b, false)
	defer p.clean(ctx)
	if err := p.cleanOrphans(ctx, time.Now()); err != nil {
		return fmt.Errorf("probe: list: %w", err)
	}
	if err := p.createOnly(ctx, b.Create); err != nil {
		return err
	}
	return p.readList(ctx)
}

// probeParts tries the uploads in parts, through the same code that uploads large objects: a part may be small if it is
// the last one.
func probeParts(ctx context.Context, b *blobBucket) error {
	p := newProber(b, true)
	defer p.clean(ctx)
	return p.createOnly(ctx, func(ctx context.Context, key string, body []byte) error {
		ctx, o := withOutcome(ctx)
		return settled("create", key, o, b.s3.putParts(ctx, o, key, newByteSource(body), partSize, createOnly))
	})
}

type creator func(ctx context.Context, key string, body []byte) error

// createOnly creates an object twice, then lets several race for another.
func (p *prober) createOnly(ctx context.Context, create creator) error {
	key := p.key("a")
	first, second := []byte("first"), []byte("second")
	// "Exists" may be our own work, when the library has repeated a request: the content tells.
	if err := create(ctx, key, first); err != nil && !errors.Is(err, ErrExists) {
		return fmt.Errorf("probe: %w", err)
	}
	err := create(ctx, key, second)
	if err == nil {
		return p.refuse("a second creation of one name succeeded")
	}
	if !errors.Is(err, ErrExists) {
		return fmt.Errorf("probe: create the same name again: %w", err)
	}
	got, err := p.b.Read(ctx, key)
	if err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	if !bytes.Equal(got, first) {
		return p.refuse("a second creation was answered with an error, but has replaced the object")
	}
	return p.race(ctx, create)
}

// race refuses the store when more than one creator is told that it won. That nobody wins is legal: all may have been
// answered with a conflict.
func (p *prober) race(ctx context.Context, create creator) error {
	key := p.key("race")
	errs := make([]error, racers)
	var wg sync.WaitGroup
	for i := range racers {
		wg.Go(func() { errs[i] = create(ctx, key, fmt.Append(nil, "racer ", i)) })
	}
	wg.Wait()
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
		}
	}
	if won > 1 {
		return p.refuse(fmt.Sprintf("of %d creators of one name that raced, %d were told that they had won", racers, won))
	}
	return nil
}

// refuse says what the store does not keep and why that matters.
func (p *prober) refuse(what string) error {
	which := "PutObject"
	if p.parts {
		which = "CompleteMultipartUpload"
	}
	if _, local := p.b.Local(); local {
		which = "link(2)"
	}
	return &Error{Op: "probe", Kind: ErrPermission, Err: fmt.Errorf(
		"%s: this store (or a proxy before it) does not keep creation create-only (If-None-Match: *) for %s; this is unsafe, since a process that was thought dead could overwrite what another has stored since, and records would be lost",
		what, which)}
}

// readList tries ranges, listings that start after a key, and deletion.
func (p *prober) readList(ctx context.Context) error {
	a, z := p.name+"-a", p.key("z")
	if err := p.b.Create(ctx, z, []byte("0123456789")); err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	part, err := p.b.ReadRange(ctx, z, 3, 4)
	if err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	if string(part) != "3456" {
		return broken("a read of bytes 3 to 6 gave %d others", len(part))
	}
	list, err := p.b.List(ctx, p.name+"-", p.name+"-race", 1)
	if err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	if len(list) != 1 || list[0].Key != z || list[0].Size != 10 {
		return broken("a listing that starts after a key does not show the object that was stored just before it")
	}
	return p.deletes(ctx, a)
}

func (p *prober) deletes(ctx context.Context, key string) error {
	if err := p.b.Delete(ctx, key); err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	_, err := p.b.Read(ctx, key)
	if err == nil {
		return broken("an object can still be read after it was deleted")
	}
	if !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("probe: read what was deleted: %w", err)
	}
	return nil
}

func broken(format string, args ...any) error {
	return &Error{Op: "probe", Kind: ErrPermission, Err: fmt.Errorf("the store cannot be used: "+format, args...)}
}

// clean removes what the probe has made, though its context may have ended. What it cannot remove, a later probe will.
func (p *prober) clean(ctx context.Context) {
	ctx, cancel := limit(context.WithoutCancel(ctx), DefaultTimeout)
	defer cancel()
	for _, key := range p.made {
		p.b.Delete(ctx, key)
	}
}

func (p *prober) cleanOrphans(ctx context.Context, now time.Time) error {
	all, err := p.b.List(ctx, ProbePrefix+"-", "", 0)
	if err != nil {
		return err
	}
	for _, e := range all {
		if now.Sub(e.Time) > probeOrphan {
			p.made = append(p.made, e.Key)
		}
	}
	return nil
}
