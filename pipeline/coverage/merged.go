package coverage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/stream-arrow/twgd/avrofile"
	"github.com/stream-arrow/twgd/store"
)

// mergedName is the object that holds the union of all copies of a sink. It is a cache: whoever needs to know reads the copies, and is
// spared those that it has seen in the state in which they are now.
const mergedName = "_merged" + suffix

// source is a copy as it was when it was merged. One that has changed since, or is gone, shows by that.
type source struct {
	Name string `json:"name"`
	Size int64  `json:"size"`
	Time string `json:"time"` // when it was stored, by the clock of the store
}

func sourceOf(dir string, e store.Entry) source {
	return source{strings.TrimPrefix(e.Key, dir), e.Size, e.Time.UTC().Format(time.RFC3339Nano)}
}

// merged is what is read back of the cache.
type merged struct {
	set     Set
	sources map[source]bool
}

// readMerged reads the cache; nothing where there is none that this program understands.
func readMerged(ctx context.Context, bucket store.Bucket, stream, sink string) (m merged, err error) {
	body, err := bucket.Read(ctx, dir(stream, sink)+mergedName)
	if err != nil {
		return m, err
	}
	return decodeMerged(body)
}

func decodeMerged(body []byte) (m merged, err error) {
	m.set = Set{}
	if err := decode(body, m.set); err != nil {
		return merged{}, err
	}
	var o object
	if err := json.Unmarshal(body, &o); err != nil {
		return merged{}, fmt.Errorf("%w: %v", avrofile.ErrDamaged, err)
	}
	m.sources = map[source]bool{}
	for _, s := range o.Copies {
		m.sources[s] = true
	}
	return m, nil
}

// stands reports whether every copy that was merged is still there, in whatever state: where one was taken away somebody wants coverage
// forgotten, and the cache must not remember it.
func (m merged) stands(now []source) bool {
	names := map[string]bool{}
	for _, s := range now {
		names[s.Name] = true
	}
	for s := range m.sources {
		if !names[s.Name] {
			return false
		}
	}
	return len(m.sources) > 0 // one that does not say what it is made of is worth nothing
}

// Merged is the union as the elected node wrote it last, for the price of one read: a hint that lags behind the copies. Nil where
// there is none.
func Merged(ctx context.Context, bucket store.Bucket, stream, sink string) (Set, error) {
	m, err := readMerged(ctx, bucket, stream, sink)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the merged coverage of %s: %w", sink, err)
	}
	return m.set, nil
}

// Merger keeps the caches of one stream. It is the work of one elected node at a time; two at once would only write the same twice.
type Merger struct {
	Bucket store.Bucket // raw's
	Stream string
	Sinks  []string
	Every  time.Duration // the shortest time between two looks at one sink; 0 means 10 s. While nothing changes it grows to a minute
	Log    *slog.Logger  // nil means silent
}

// state is what a Merger knows of one sink between two looks.
type state struct {
	copies map[source]Set // decoded
	wrote  []source
	whole  bool // wrote is what the cache was made of; false before
	pause  time.Duration
	due    time.Time
	fault  string
}

const slowest = time.Minute

// Run merges until ctx ends. What cannot be read or written is tried again at the next look; nobody depends on it.
func (m Merger) Run(ctx context.Context) error {
	if m.Every == 0 {
		m.Every = 10 * time.Second
	}
	if m.Log == nil {
		m.Log = slog.New(slog.DiscardHandler)
	}
	states := map[string]*state{}
	for _, sink := range m.Sinks {
		states[sink] = &state{copies: map[source]Set{}, pause: m.Every}
	}
	for {
		next := time.Now().Add(slowest)
		for _, sink := range m.Sinks {
			st := states[sink]
			if !time.Now().Before(st.due) {
				m.look(ctx, sink, st)
			}
			if st.due.Before(next) {
				next = st.due
			}
		}
		select {
		case <-time.After(time.Until(next)):
		case <-ctx.Done():
			return nil
		}
	}
}

// look merges one sink, and says when to look again.
func (m Merger) look(ctx context.Context, sink string, st *state) {
	changed, err := m.merge(ctx, sink, st)
	text := ""
	if err != nil && ctx.Err() == nil {
		text = err.Error()
	}
	if text != "" && text != st.fault {
		m.Log.Warn("the copies of coverage cannot be merged; trying again", "sink", sink, "error", err)
	}
	st.fault = text
	if st.pause = min(2*st.pause, slowest); changed {
		st.pause = m.Every
	}
	st.due = time.Now().Add(st.pause)
}

// merge writes the union anew where a copy has changed, and an empty one where there are none: that nothing is covered is known then. A copy that cannot be read is left out, and not named: a reader then reads it
// for itself and sees what is wrong with it.
func (m Merger) merge(ctx context.Context, sink string, st *state) (changed bool, err error) {
	now, err := list(ctx, m.Bucket, m.Stream, sink)
	if err != nil {
		return false, err
	}
	var have []source
	for _, s := range now {
		if st.copies[s] == nil {
			set, rerr := readCopy(ctx, m.Bucket, m.Stream, sink, s.Name)
			if rerr != nil {
				err = errors.Join(err, rerr)
				continue
			}
			st.copies[s] = set
		}
		have = append(have, s)
	}
	maps.DeleteFunc(st.copies, func(s source, _ Set) bool { return !slices.Contains(have, s) })
	if st.whole && slices.Equal(have, st.wrote) {
		return false, err
	}
	if werr := m.write(ctx, sink, have, st.copies); werr != nil {
		return false, errors.Join(err, werr)
	}
	changed = !slices.Equal(have, st.wrote)
	st.wrote, st.whole = have, true
	return changed, err
}

func (m Merger) write(ctx context.Context, sink string, have []source, copies map[source]Set) error {
	former, err := readMerged(ctx, m.Bucket, m.Stream, sink)
	switch {
	case errors.Is(err, errVersion):
		return fmt.Errorf("merging the coverage of %s: %w", sink, err)
	case err == nil && len(former.sources) == len(have) && !slices.ContainsFunc(have, func(s source) bool { return !former.sources[s] }):
		return nil // whoever was elected before has written it
	}
	union := Set{}
	for _, s := range have {
		for p, spans := range copies[s] {
			union.add(p, spans)
		}
	}
	o := newObject(m.Stream, sink, "_merged", union, time.Now())
	o.Copies = have
	body, err := json.Marshal(o)
	if err == nil {
		err = m.Bucket.Replace(ctx, dir(m.Stream, sink)+mergedName, body)
	}
	if err != nil {
		return fmt.Errorf("writing the merged coverage of %s: %w", sink, err)
	}
	return nil
}
