package pipeline

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// crew is the goroutines that a stream has started, each under the name of what it does. All of them end by themselves once their
// context has ended, unless a destination ignores it: then wait says which, and Run returns all the same, so that a process can
// still exit within its grace period.
type crew struct {
	mu      sync.Mutex
	running map[string]int
	ended   chan struct{} // closed when running becomes empty; nil while nobody waits
}

// begin runs f in a goroutine.
func (c *crew) begin(what string, f func()) {
	c.mu.Lock()
	if c.running == nil {
		c.running = map[string]int{}
	}
	c.running[what]++
	c.mu.Unlock()
	go func() {
		defer c.end(what)
		f()
	}()
}

func (c *crew) end(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running[what]--; c.running[what] == 0 {
		delete(c.running, what)
	}
	if len(c.running) == 0 && c.ended != nil {
		close(c.ended)
		c.ended = nil
	}
}

// wait returns when nothing runs any more, or, with an error that names what still does, when ctx ends.
func (c *crew) wait(ctx context.Context) error {
	c.mu.Lock()
	if len(c.running) == 0 {
		c.mu.Unlock()
		return nil
	}
	if c.ended == nil {
		c.ended = make(chan struct{})
	}
	ended := c.ended
	c.mu.Unlock()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %s", ErrHanging, c.list())
	}
}

func (c *crew) list() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(slices.Sorted(maps.Keys(c.running)), ", ")
}
