package lease

// pageSize is how many values a page has. A page that a snapshot holds is copied before it is changed, so small ones keep that short.
const pageSize = 64

// pages is an array that can be pinned: what pin returns never changes, and costs one pointer a page. A value is changed through edit
// alone.
type pages[T any] struct {
	page []*[pageSize]T
	ours []bool // whether nobody has pinned the page since it was made
	n    int
}

// at is a value, to be read.
func (p *pages[T]) at(i int) *T { return &p.page[i/pageSize][i%pageSize] }

// edit is a value, to be changed. The pointer is good until the next call of pin.
func (p *pages[T]) edit(i int) *T {
	k := i / pageSize
	if !p.ours[k] {
		own := *p.page[k]
		p.page[k], p.ours[k] = &own, true
	}
	return &p.page[k][i%pageSize]
}

// grow adds a zero value, and is its index.
func (p *pages[T]) grow() int {
	if p.n == len(p.page)*pageSize {
		p.page = append(p.page, new([pageSize]T))
		p.ours = append(p.ours, true)
	}
	p.n++
	return p.n - 1
}

// pin is the array as it is now.
func (p *pages[T]) pin() pages[T] {
	clear(p.ours)
	return pages[T]{page: append([]*[pageSize]T(nil), p.page...), n: p.n}
}
