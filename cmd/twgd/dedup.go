package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/stream-arrow/twgd/admin"
	"github.com/stream-arrow/twgd/config"
	"github.com/stream-arrow/twgd/dedupset"
	"github.com/stream-arrow/twgd/pipeline"
	"github.com/stream-arrow/twgd/pipeline/content"
	"github.com/stream-arrow/twgd/pipeline/duplicates"
	"github.com/stream-arrow/twgd/record"
)

// dedup is how a stream tells repeated records; a nil one does not.
type dedup struct {
	mode   string
	window time.Duration
	screen *content.Screen
	filter *dedupset.Filter   // nil at size 0: nobody remembers
	notes  *duplicates.Writer // of what is dropped
}

// openDedup joins the hash of contents with the cluster's set of claims. A node that only recovers screens nothing.
func (s *stream) openDedup(r *rooms, exclusive bool) (*dedup, error) {
	c := &s.cfg.Dedup
	if !c.Active() || !s.node.ingests() {
		return nil, nil
	}
	d := &dedup{mode: c.Mode, window: time.Duration(c.Window)}
	var claims content.Claims = nobody{}
	if p := s.node.part; p != nil {
		d.filter = dedupset.NewFilter(dedupset.FilterOptions{Proposer: p.node.Dedup(), Key: p.node.DedupKey, Stream: s.cfg.Name,
			Window: d.window, Entries: int64(c.MaxEntries), Timeout: time.Duration(c.Timeout), Log: s.log})
		claims = claimed{d.filter}
	} else {
		s.log.Warn("repeated records are not told: what was seen is remembered by the cluster, and cluster.size is 0; a size of 1 is enough for one node")
	}
	var err error
	if d.screen, err = content.New(content.Options{Stream: s.cfg.Name, On: c.On, Fields: c.Fields, Claims: claims, Raw: r.raw.Identity, Unfit: unfit(s.cfg.Sinks)}); err != nil {
		return nil, fmt.Errorf("dedup: %w", err)
	}
	d.notes = duplicates.NewWriter(duplicates.Options{Bucket: r.bucket, Stream: s.cfg.Name, Node: s.node.cfg.Node.ID, Instance: s.node.random(),
		Local: exclusive, Log: s.log})
	return d, nil
}

// unfit says which records some sink refuses whatever their values are: those that are too large for one, with their keys and headers, and
// those that no file takes. They claim nothing. A file is written once, so that a twin which was dropped for the sake of such a record would
// never be in it.
func unfit(sinks []config.Sink) func(*record.Record) string {
	largest := int64(math.MaxInt64)
	for i := range sinks {
		if most := int64(sinks[i].MaxRecord); most > 0 {
			largest = min(largest, most)
		}
	}
	return func(r *record.Record) string {
		if r.Payload() > largest {
			return content.Oversize
		}
		if slices.ContainsFunc(r.Headers, func(h record.Header) bool { return !utf8.ValidString(h.Key) }) {
			return content.HeaderName
		}
		return ""
	}
}

// screening is the pipeline's part; nil where nothing is screened.
func (d *dedup) screening(r *rejects) *pipeline.Screening {
	if d == nil {
		return nil
	}
	return &pipeline.Screening{Contents: d.screen, Drop: d.mode == "drop", Begin: d.notes.Forget, Note: func(ctx context.Context, noted []duplicates.Noted) error {
		err := d.notes.Append(ctx, noted)
		for i := range noted {
			if err == nil {
				r.noted(int64(len(noted[i].Dropped)))
			}
		}
		return err
	}}
}

func (d *dedup) close() error {
	if d == nil {
		return nil
	}
	return d.notes.Close()
}

// claimed makes claims of contents in the cluster's set.
type claimed struct{ filter *dedupset.Filter }

// Key implements content.Claims.
func (c claimed) Key(ctx context.Context) ([32]byte, error) {
	key, err := c.filter.Key(ctx)
	return key, unavailable(err)
}

// Claim implements content.Claims.
func (c claimed) Claim(ctx context.Context, key *[32]byte, rows [][24]byte) ([]content.Held, error) {
	held, err := c.filter.Claim(ctx, key, rows)
	out := make([]content.Held, len(held))
	for i, h := range held {
		out[i] = content.Held(h)
	}
	return out, unavailable(err)
}

func unavailable(err error) error {
	var u *dedupset.Unavailable
	if errors.As(err, &u) {
		return &content.Unavailable{Reason: u.Reason, Err: err}
	}
	return err
}

// nobody remembers: the node is for itself.
type nobody struct{}

var errNobody = &content.Unavailable{Reason: "size_0", Err: errors.New("cluster.size is 0")}

// Key implements content.Claims.
func (nobody) Key(context.Context) ([32]byte, error) { return [32]byte{}, errNobody }

// Claim implements content.Claims.
func (nobody) Claim(context.Context, *[32]byte, [][24]byte) ([]content.Held, error) {
	return nil, errNobody
}

// status is what /status shows of a stream's deduplication; nil where there is none.
func (d *dedup) status(n *node, stream string, counts *pipeline.DedupStatus) *admin.Dedup {
	if d == nil || counts == nil {
		return nil
	}
	out := &admin.Dedup{Mode: d.mode, Checked: counts.Checked, Duplicates: counts.Duplicates, Dropped: counts.Dropped,
		Unavailable: counts.Unavailable, Unkeyed: counts.Unkeyed, Window: d.window.Seconds(), Circuit: "open", Reason: "cluster.size is 0; a size of 1 is enough for one node"}
	if d.filter != nil {
		st := d.filter.Status()
		out.Circuit, out.Reason = st.Circuit, st.Reason
	}
	if n.part == nil {
		return out
	}
	for _, set := range n.part.node.DedupStats() {
		if set.Stream == stream {
			held := set.Held.Seconds()
			out.Entries, out.Held = &set.Entries, &held
		}
	}
	return out
}

// remembering is the memory that this configuration's sets of claims may take on a node with a replica. It lies outside of the heap.
func remembering(cfg *config.Config) (bytes int64) {
	for i := range cfg.Streams {
		if d := &cfg.Streams[i].Dedup; d.Active() && cfg.Cluster.Size > 0 {
			bytes += dedupset.Memory(int64(d.MaxEntries))
		}
	}
	return bytes
}

// dedupNotes say what the sets of claims of a configuration will take.
func dedupNotes(cfg *config.Config) (notes []string) {
	for i := range cfg.Streams {
		s := &cfg.Streams[i]
		switch d := s.Dedup; {
		case !d.Active() && len(d.Fields) > 0:
			notes = append(notes, fmt.Sprintf("stream %s: dedup.fields are named, but dedup.mode is none: nothing is compared; mode: measure counts what repeats", s.Name))
		case !d.Active():
		case cfg.Cluster.Size == 0:
			notes = append(notes, fmt.Sprintf("stream %s: dedup.mode is %s, but cluster.size is 0: nobody remembers what was seen, and nothing is compared; a size of 1 is enough for one node", s.Name, d.Mode))
		default:
			notes = append(notes, fmt.Sprintf("stream %s: dedup remembers up to %s contents, %s of memory on every voter and standby; "+
				"its window of %s is held up to %s records a second", s.Name, grouped(int64(d.MaxEntries)), inMiB(dedupset.Memory(int64(d.MaxEntries))),
				d.Window, grouped(int64(float64(d.MaxEntries)/time.Duration(d.Window).Seconds()))))
		}
	}
	return notes
}

// inMiB is a number of bytes for people.
func inMiB(bytes int64) string { return fmt.Sprintf("%s MiB", grouped((bytes+1<<20-1)>>20)) }

// grouped is a number with its thousands apart.
func grouped(n int64) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", grouped(n/1000), n%1000)
}
