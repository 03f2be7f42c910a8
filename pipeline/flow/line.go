package flow

// Line is where pieces wait for a Budget. Every key (a partition) has its own queue, and the queues take turns, so that a
// partition with a thousand batches waiting does not keep another's single batch behind all of them. Within a key the order is
// that of arrival.
//
// Nobody overtakes the one whose turn it is, however small: otherwise a large piece could wait for ever behind small ones. So an
// owner asks a Line before a Budget: while somebody waits, whoever comes anew waits as well. The zero value is empty.
type Line[K comparable] struct {
	queues map[K][]int64 // bytes of each piece, in order; never an empty queue
	turns  []K           // keys of queues, the next one first
}

// Wait puts a piece of n bytes behind those of its key.
func (l *Line[K]) Wait(k K, n int64) {
	if l.queues == nil {
		l.queues = map[K][]int64{}
	}
	if len(l.queues[k]) == 0 {
		l.turns = append(l.turns, k)
	}
	l.queues[k] = append(l.queues[k], n)
}

// Next takes the bytes of the piece whose turn it is out of b, and the piece out of the line. It returns false where nobody
// waits, and where the budget does not suffice yet. The owner calls it after every Give until it says false.
func (l *Line[K]) Next(b *Budget) (k K, n int64, ok bool) {
	if len(l.turns) == 0 {
		return k, 0, false
	}
	k = l.turns[0]
	q := l.queues[k]
	if !b.TryTake(q[0]) {
		return k, 0, false
	}
	l.turns = l.turns[1:]
	if len(q) == 1 {
		delete(l.queues, k)
	} else {
		l.queues[k] = q[1:]
		l.turns = append(l.turns, k)
	}
	return k, q[0], true
}

// Drop forgets all that waits under k, which was revoked, and returns how many pieces that were.
func (l *Line[K]) Drop(k K) int {
	n := len(l.queues[k])
	if n == 0 {
		return 0
	}
	delete(l.queues, k)
	for i, t := range l.turns {
		if t == k {
			l.turns = append(l.turns[:i:i], l.turns[i+1:]...)
			break
		}
	}
	return n
}

// Empty reports whether nobody waits.
func (l *Line[K]) Empty() bool { return len(l.turns) == 0 }

// Waiting is how many pieces wait under k.
func (l *Line[K]) Waiting(k K) int { return len(l.queues[k]) }
