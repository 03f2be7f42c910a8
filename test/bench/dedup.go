package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"

	"github.com/stream-arrow/twgd/dedupset"
)

// How claims are made: rows a batch, and batches at once. One at a time shows how long a claim takes, several how many there can be.
var (
	claimBatches = []int{1_000, 10_000}
	claimCrowds  = []int{1, 8}
)

const (
	claimStream  = "bench"
	claimEntries = 5_000_000
	claimWindow  = time.Hour
)

// measureDedup takes the time of claims from the asking client to its answer, beside bare commits of as many bytes; then the set itself, and
// Redis on the same disk.
func measureDedup(ctx context.Context, b *bench) error {
	if err := measureClaims(ctx, b); err != nil {
		return err
	}
	if err := measureSet(ctx, b); err != nil {
		return err
	}
	return measureRedis(ctx, b)
}

// claimed is what came of one way of claiming, by batch and crowd.
type claimed [2][2]loads

func measureClaims(ctx context.Context, b *bench) (err error) {
	one, err := b.openAll(ctx, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeSeats(one)) }()
	three, err := b.openAll(ctx, 3)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeSeats(three)) }()
	stop, err := b.startProfile()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	var bare [2]loads
	var single, leading, elsewhere claimed
	for range b.runs {
		lead, other, err := roles(ctx, three)
		if err != nil {
			return err
		}
		if err := b.bareClaims(&bare); err != nil {
			return err
		}
		for _, x := range []struct {
			to *claimed
			at *seat
		}{{&single, one[0]}, {&leading, lead}, {&elsewhere, other}} {
			if err := x.to.take(ctx, b, x.at); err != nil {
				return errors.Join(err, x.at.logTail())
			}
		}
	}
	for i, rows := range claimBatches {
		name := fmt.Sprintf("bare Bolt commits of %d rows", rows)
		b.report.add(name+", p50", "ms", bare[i].percentile(50))
		b.report.add(name+", p99", "ms", bare[i].percentile(99))
		b.report.add(name, "rows/s", bare[i].rates())
	}
	single.report(&b.report, "one node", bare, aim{AtLeast: 1_200_000})
	leading.report(&b.report, "three, at the leader", bare, aim{AtLeast: 500_000})
	elsewhere.report(&b.report, "three, elsewhere", bare, aim{AtLeast: 500_000})
	return nil
}

func (b *bench) claimSpan() time.Duration { return time.Duration(b.seconds) * time.Second / 5 }

// bareClaims commits values of as many bytes to Bolt, one after the other.
func (b *bench) bareClaims(to *[2]loads) error {
	for i, rows := range claimBatches {
		err := b.inScratch(func(dir string) error {
			l, err := openLog(filepath.Join(dir, "bolt"))
			if err != nil {
				return err
			}
			defer l.Close()
			value := make([]byte, rows*24)
			done, err := again(b.claimSpan(), func(n uint64) error {
				return l.Update(func(tx *bbolt.Tx) error {
					return tx.Bucket(logsBucket).Put(binary.BigEndian.AppendUint64(nil, n), value)
				})
			})
			done.rate *= float64(rows)
			to[i] = append(to[i], done)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// claimNumber gives every claim of the bench contents that were never there before.
var claimNumber atomic.Uint64

// fillRows makes rows of new contents.
func fillRows(rows [][24]byte) {
	n := claimNumber.Add(uint64(len(rows))) - uint64(len(rows))
	for i := range rows {
		n++
		binary.LittleEndian.PutUint64(rows[i][:], scatter(n))
		binary.LittleEndian.PutUint64(rows[i][8:], scatter(^n))
		binary.LittleEndian.PutUint64(rows[i][16:], n)
	}
}

// scatter is a number that looks random, another one for each.
func scatter(x uint64) uint64 {
	hi, lo := bits.Mul64(x^0x9e3779b97f4a7c15, 0xbf58476d1ce4e5b9)
	return (hi ^ lo ^ x) * 0x94d049bb133111eb
}

func (c *claimed) take(ctx context.Context, b *bench, at *seat) error {
	f := dedupset.NewFilter(dedupset.FilterOptions{Proposer: at.node.Dedup(), Key: at.node.DedupKey, Stream: claimStream, Window: claimWindow,
		Entries: claimEntries, Timeout: 10 * time.Second, InFlight: claimCrowds[len(claimCrowds)-1]})
	for i, rows := range claimBatches {
		for j, crowd := range claimCrowds {
			l, err := claimAll(ctx, f, rows, crowd, b.claimSpan())
			if err != nil {
				return fmt.Errorf("%d at once, %d rows each: %w", crowd, rows, err)
			}
			c[i][j] = append(c[i][j], l)
		}
	}
	return nil
}

// claimAll lets a crowd claim new contents for a while.
func claimAll(ctx context.Context, f *dedupset.Filter, rows, crowd int, span time.Duration) (load, error) {
	key, err := f.Key(ctx)
	if err != nil {
		return load{}, err
	}
	counted := time.Now().Add(warmUp)
	end := counted.Add(span)
	took := make([][]float64, crowd)
	var first firstError
	var all sync.WaitGroup
	for i := range crowd {
		all.Go(func() {
			batch := make([][24]byte, rows)
			for time.Now().Before(end) {
				fillRows(batch)
				asked := time.Now()
				held, err := f.Claim(ctx, &key, batch)
				if err == nil && len(held) > 0 {
					err = fmt.Errorf("%d new contents are held by others", len(held))
				}
				if err != nil {
					first.note(err)
					return
				}
				if now := time.Now(); now.After(counted) && now.Before(end) {
					took[i] = append(took[i], float64(now.Sub(asked).Microseconds())/1000)
				}
			}
		})
	}
	all.Wait()
	var l load
	for _, ms := range took {
		l.ms = append(l.ms, ms...)
	}
	l.rate = float64(len(l.ms)*rows) / span.Seconds()
	return l, first.get()
}

func (c *claimed) report(r *report, who string, bare [2]loads, rate aim) {
	for i, rows := range claimBatches {
		for j, crowd := range claimCrowds {
			name := fmt.Sprintf("%s, %d rows, %d at once", who, rows, crowd)
			r.add(name+", p50", "ms", c[i][j].percentile(50))
			r.add(name+", p99", "ms", c[i][j].percentile(99))
			if rows == 10_000 && crowd > 1 {
				r.add(name, "hashes/s", c[i][j].rates(), rate)
			} else {
				r.add(name, "hashes/s", c[i][j].rates())
			}
		}
		r.add(fmt.Sprintf("%s, %d rows, %d at once / bare", who, rows, claimCrowds[1]), "ratio", ratios(c[i][1].rates(), bare[i].rates()))
	}
}
