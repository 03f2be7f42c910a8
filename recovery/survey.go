package recovery

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/stream-arrow/twgd/avrofile"
	"github.com/stream-arrow/twgd/pipeline"
	"github.com/stream-arrow/twgd/pipeline/flow"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks"
)

// Chains is the raw store as a survey looks at it.
type Chains interface {
	// Chains lists the chains that exist, beside an error that errors.Is finds avrofile.ErrDamaged for also those that are whole.
	Chains(ctx context.Context) ([]record.Partition, error)

	// HeadFrom is a chain's head, for who knows it as it was; the zero head where it was never seen.
	HeadFrom(ctx context.Context, p record.Partition, was sinks.Head) (sinks.Head, error)
}

// SurveyOptions of a Survey.
type SurveyOptions struct {
	Raw      Chains
	Assigned func(context.Context) map[record.Partition]pipeline.Extent // what this process reads itself; nil while it does not say
	Adopt    func(record.Partition)                                     // told of every chain that it does not read
	List     time.Duration                                              // how often chains are listed; 0 means 30 s
	Log      *slog.Logger
}

// Survey knows all chains of a stream's raw and where they end: of the partitions that this process reads from the pipeline, of all
// others by looking. Those others are read by other processes, or by nobody any more: of a topic that was deleted, created again or
// taken out of the configuration. What a sink lacks of them is in raw, and is recovered like the rest.
//
// How often a chain is looked at follows how often it grows. That the end which is known lags does no harm: what has come since is
// younger than anything that recovery may touch.
type Survey struct {
	opt SurveyOptions

	mu     sync.Mutex
	chains map[record.Partition]*chain
	looked bool // all chains of one listing have been looked at
}

// chain is one chain as it was seen last.
type chain struct {
	head  sinks.Head
	known bool // head has been found
	pause time.Duration
	due   time.Time
}

const (
	soon    = 15 * time.Second // between two looks at a chain that grows
	seldom  = 5 * time.Minute  // at one that does not
	lookers = 8                // looks at once
)

// NewSurvey does no I/O.
func NewSurvey(opt SurveyOptions) *Survey {
	if opt.List == 0 {
		opt.List = 30 * time.Second
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	return &Survey{opt: opt, chains: map[record.Partition]*chain{}}
}

// Extents lists all chains: with what the pipeline says of those that this process reads, and of the others with their end as their
// beginning, for nothing of them is ours. Nil while the pipeline says nothing. It does not wait for raw.
func (s *Survey) Extents(ctx context.Context) map[record.Partition]pipeline.Extent {
	all := s.opt.Assigned(ctx)
	if all == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for p, c := range s.chains {
		if _, read := all[p]; read || !c.known {
			continue
		}
		all[p] = pipeline.Extent{Genesis: c.head.Genesis, Begin: c.head.Next, Next: c.head.Next}
		s.opt.Adopt(p)
	}
	return all
}

// Whole reports whether every chain that exists has been seen.
func (s *Survey) Whole() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.looked
}

// Run looks until ctx ends.
func (s *Survey) Run(ctx context.Context) error {
	wait := flow.Backoff{Base: time.Second, Max: s.opt.List}
	var listAt time.Time
	for fault := ""; ; {
		var err error
		if now := time.Now(); !now.Before(listAt) {
			if err = s.list(ctx); err == nil {
				listAt = now.Add(s.opt.List)
			}
		}
		unseen := s.look(ctx)
		fault = s.tell(ctx, err, fault)
		pause := min(soon, s.opt.List)
		if err != nil || unseen {
			pause = wait.Next(rand.Float64())
		} else {
			wait.Reset()
			s.whole()
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		}
	}
}

func (s *Survey) whole() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looked = true
}

// tell logs a fault once.
func (s *Survey) tell(ctx context.Context, err error, before string) string {
	if err == nil || ctx.Err() != nil {
		return ""
	}
	if err.Error() != before {
		s.opt.Log.Warn("looking for chains in raw", "error", err)
	}
	return err.Error()
}

// list learns which chains there are. A folder that is damaged is left to audit and verify, which say what is wrong.
func (s *Survey) list(ctx context.Context) error {
	partitions, err := s.opt.Raw.Chains(ctx)
	if errors.Is(err, avrofile.ErrDamaged) {
		s.opt.Log.Debug("a chain in raw is damaged, and is not recovered", "error", err)
	} else if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	there := map[record.Partition]bool{}
	for _, p := range partitions {
		there[p] = true
		if s.chains[p] == nil {
			s.chains[p] = &chain{pause: soon}
		}
	}
	maps.DeleteFunc(s.chains, func(p record.Partition, _ *chain) bool { return !there[p] })
	return nil
}

// look finds the ends of the chains that are due, some at once. unseen says that one of them has never been found yet.
func (s *Survey) look(ctx context.Context) (unseen bool) {
	own := s.opt.Assigned(ctx)
	var looking sync.WaitGroup
	slots := make(chan struct{}, lookers)
	for p, c := range s.due(own) {
		slots <- struct{}{}
		looking.Go(func() {
			defer func() { <-slots }()
			head, err := s.opt.Raw.HeadFrom(ctx, p, c.head)
			s.seen(p, head, err)
		})
	}
	looking.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for p, c := range s.chains {
		if _, read := own[p]; !read && !c.known && c.pause < seldom {
			unseen = true
		}
	}
	return unseen
}

// due copies the chains that are to be looked at now.
func (s *Survey) due(own map[record.Partition]pipeline.Extent) map[record.Partition]chain {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, out := time.Now(), map[record.Partition]chain{}
	for p, c := range s.chains {
		if _, read := own[p]; !read && !now.Before(c.due) {
			out[p] = *c
		}
	}
	return out
}

// seen notes an answer. One that cannot be found is left to audit and verify too, and looked for ever less often.
func (s *Survey) seen(p record.Partition, head sinks.Head, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.chains[p]
	if c == nil {
		return
	}
	switch {
	case errors.Is(err, avrofile.ErrDamaged):
		c.pause = seldom
	case err != nil:
		c.due = time.Now().Add(time.Second)
		return
	case c.known && head.Next == c.head.Next:
		c.pause = min(2*c.pause, seldom)
	default:
		c.pause = soon
	}
	if err == nil {
		c.head, c.known = head, true
	}
	c.due = time.Now().Add(c.pause)
}
