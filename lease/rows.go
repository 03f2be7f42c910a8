package lease

import (
	"container/heap"
	"slices"
	"time"
)

// row is one attempt that holds a lease or waits for it.
type row struct {
	name, holder string
	request      Request
	place        uint64        // its rank among all attempts, by when they came first
	token        uint64        // 0: it waits
	ttl          time.Duration // what it asks for
	until        time.Duration // when its lease, or its place in the queue, ends
}

// rows keeps attempts, found by name, request, token and end. Rows lie in pages, so that a snapshot takes them without being in the
// way of the next command. An attempt keeps its index while it is there; which index it has shows nowhere.
type rows struct {
	pages     pages[row]
	free      []int32
	names     map[string]*line
	byRequest map[Request]int32
	byToken   map[uint64]int32
	heap      []int32 // of rows, the one that ends first on top; of two at one time the lower place
	spot      []int32 // where a row is in heap
}

func (r *rows) at(i int32) *row { return r.pages.at(int(i)) }

func (r *rows) len() int { return len(r.heap) }

// add lets a row in that waits: at the end of its name's queue.
func (r *rows) add(in row) int32 {
	if r.names == nil {
		r.names, r.byRequest, r.byToken = map[string]*line{}, map[Request]int32{}, map[uint64]int32{}
	}
	i := r.take()
	*r.pages.edit(int(i)) = in
	l := r.names[in.name]
	if l == nil {
		l = &line{holder: -1}
		r.names[in.name] = l
	}
	l.queue = append(l.queue, i)
	r.byRequest[in.request] = i
	heap.Push((*ends)(r), i)
	return i
}

// take is the index of a row that is not in use.
func (r *rows) take() int32 {
	if n := len(r.free); n > 0 {
		i := r.free[n-1]
		r.free = r.free[:n-1]
		return i
	}
	r.spot = append(r.spot, 0)
	return int32(r.pages.grow())
}

// first reports whether a row that waits is at the head of its queue and nobody holds the name.
func (r *rows) first(i int32) bool {
	l := r.names[r.at(i).name]
	return l.holder < 0 && l.queue[0] == i
}

// ahead is how many are in front of a row that waits, the holder included.
func (r *rows) ahead(i int32) int {
	l := r.names[r.at(i).name]
	n := l.find(r, r.at(i).place)
	if l.holder >= 0 {
		n++
	}
	return n
}

// hold makes the first of a queue the holder.
func (r *rows) hold(i int32, token uint64, until time.Duration) {
	l := r.names[r.at(i).name]
	l.queue = l.queue[1:]
	l.holder = i
	r.byToken[token] = i
	r.pages.edit(int(i)).token = token
	r.extend(i, until)
}

// extend moves a row's end.
func (r *rows) extend(i int32, until time.Duration) {
	if r.at(i).until == until {
		return
	}
	r.pages.edit(int(i)).until = until
	heap.Fix((*ends)(r), int(r.spot[i]))
}

// remove takes a row out, whether it holds or waits.
func (r *rows) remove(i int32) {
	out := r.at(i)
	l := r.names[out.name]
	if out.token != 0 {
		l.holder = -1
		delete(r.byToken, out.token)
	} else {
		k := l.find(r, out.place)
		l.queue = slices.Delete(l.queue, k, k+1)
	}
	if l.holder < 0 && len(l.queue) == 0 {
		delete(r.names, out.name)
	}
	delete(r.byRequest, out.request)
	heap.Remove((*ends)(r), int(r.spot[i]))
	*r.pages.edit(int(i)) = row{}
	r.free = append(r.free, i)
}

// soonest is the row that ends first.
func (r *rows) soonest() (i int32, until time.Duration, ok bool) {
	if len(r.heap) == 0 {
		return 0, 0, false
	}
	return r.heap[0], r.at(r.heap[0]).until, true
}

// ends is rows as a heap of their ends.
type ends rows

func (e *ends) Len() int { return len(e.heap) }

func (e *ends) Less(a, b int) bool {
	x, y := (*rows)(e).at(e.heap[a]), (*rows)(e).at(e.heap[b])
	return x.until < y.until || x.until == y.until && x.place < y.place
}

func (e *ends) Swap(a, b int) {
	e.heap[a], e.heap[b] = e.heap[b], e.heap[a]
	e.spot[e.heap[a]], e.spot[e.heap[b]] = int32(a), int32(b)
}

func (e *ends) Push(x any) {
	e.spot[x.(int32)] = int32(len(e.heap))
	e.heap = append(e.heap, x.(int32))
}

func (e *ends) Pop() any {
	last := e.heap[len(e.heap)-1]
	e.heap = e.heap[:len(e.heap)-1]
	return last
}
