package pipeline

import (
	"container/heap"
	"time"
)

// agenda orders the partitions that have something open and no commit under way by when they are due, so that an event of one
// partition costs nothing for thousands of idle ones.
type agenda []*part

// put places p anew, or takes it out where it has nothing to do.
func (a *agenda) put(p *part, at time.Time, ok bool) {
	switch {
	case !ok && p.place >= 0:
		heap.Remove(a, p.place)
	case ok && p.place >= 0:
		p.at = at
		heap.Fix(a, p.place)
	case ok:
		p.at = at
		heap.Push(a, p)
	}
}

// next is the partition that is due first, nil where there is none.
func (a agenda) next() *part {
	if len(a) == 0 {
		return nil
	}
	return a[0]
}

func (a agenda) Len() int           { return len(a) }
func (a agenda) Less(i, j int) bool { return a[i].at.Before(a[j].at) }
func (a agenda) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].place, a[j].place = i, j
}

// Push implements heap.Interface.
func (a *agenda) Push(x any) {
	p := x.(*part)
	p.place = len(*a)
	*a = append(*a, p)
}

// Pop implements heap.Interface.
func (a *agenda) Pop() any {
	last := len(*a) - 1
	p := (*a)[last]
	(*a)[last] = nil
	*a = (*a)[:last]
	p.place = -1
	return p
}
