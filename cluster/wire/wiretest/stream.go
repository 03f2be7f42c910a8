package wiretest

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// window is how many bytes a stream holds that the other end has not read, before a write waits. It is more than any test sends into a cut: what
// writes to a stream may hold a lock meanwhile, and while somebody waits for a lock the time of a bubble stands still.
const window = 16 << 20

// conn is one end of a stream.
type conn struct {
	host        *Host
	remote      string // the other host's name
	here, there net.Addr
	in, out     *half
	once        sync.Once
	done        chan struct{}
}

func newPair(a, b *Host, here, there net.Addr) (ours, theirs *conn) {
	ab, ba := a.net.link(a.name, b.name), a.net.link(b.name, a.name)
	up, down := &half{link: ab, back: ba}, &half{link: ba, back: ab}
	ours = &conn{host: a, remote: b.name, here: here, there: there, in: down, out: up, done: make(chan struct{})}
	theirs = &conn{host: b, remote: a.name, here: there, there: here, in: up, out: down, done: make(chan struct{})}
	return ours, theirs
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.in.read(b)
	if err != nil && err != io.EOF {
		err = failed("read", "tcp", c.there, err)
	}
	return n, err
}

func (c *conn) Write(b []byte) (int, error) {
	n, err := c.out.write(b)
	if err != nil {
		err = failed("write", "tcp", c.there, err)
	}
	return n, err
}

// Close ends both directions: the other end reads what was sent, then the end, and is reset when it writes.
func (c *conn) Close() error {
	err := net.ErrClosed
	c.once.Do(func() {
		err = nil
		c.forget()
		c.out.end(segment{end: io.EOF})
		c.in.leave()
	})
	return err
}

// CloseWrite ends the direction of this end: the other reads what was sent, then the end.
func (c *conn) CloseWrite() error {
	c.out.finish()
	return nil
}

// kill ends the stream as the death of the process does.
func (c *conn) kill() {
	c.once.Do(func() {
		c.forget()
		c.out.end(segment{end: syscall.ECONNRESET})
		c.in.leave()
	})
}

func (c *conn) forget() {
	c.host.mu.Lock()
	defer c.host.mu.Unlock()
	close(c.done)
	delete(c.host.ends, c)
}

func (c *conn) LocalAddr() net.Addr  { return c.here }
func (c *conn) RemoteAddr() net.Addr { return c.there }

func (c *conn) SetDeadline(t time.Time) error {
	c.in.setDeadline(&c.in.readBy, t)
	c.out.setDeadline(&c.out.writeBy, t)
	return nil
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.in.setDeadline(&c.in.readBy, t)
	return nil
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.out.setDeadline(&c.out.writeBy, t)
	return nil
}

// half is one direction of a stream.
type half struct {
	link, back *link // of this direction, and of the other

	mu              sync.Mutex
	queue           []segment
	held            int   // bytes in queue
	ended           bool  // the writer has closed: the queue ends in an end
	left            bool  // the reader has closed
	aborted         bool  // reset for both
	broken          error // what the reader has read at the end of the queue
	readBy, writeBy time.Time
	news            signal
}

// segment is what one write sent, or the end.
type segment struct {
	at   time.Time // when it arrives
	data []byte
	end  error
}

func (h *half) read(b []byte) (int, error) {
	for {
		cut, since, _, linkNews := h.link.state()
		n, until, news, err := h.take(b, cut, since)
		if n > 0 || err != nil || len(b) == 0 {
			return n, err
		}
		await(until, news, linkNews)
	}
}

// take reads what has arrived. Where nothing has, it says until when to wait (zero: no end), and for what.
func (h *half) take(b []byte, cut bool, since time.Time) (n int, until time.Time, news <-chan struct{}, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	switch {
	case h.left:
		return 0, until, nil, net.ErrClosed
	case h.aborted:
		return 0, until, nil, syscall.ECONNRESET
	case h.broken != nil:
		return 0, until, nil, h.broken
	case passed(h.readBy, now):
		return 0, until, nil, os.ErrDeadlineExceeded
	}
	until = h.readBy
	if len(h.queue) > 0 {
		first := &h.queue[0]
		if arrived := !first.at.After(now); arrived && (!cut || first.at.Before(since)) {
			n, err = h.consume(first, b)
			return n, until, nil, err
		}
		if !cut {
			until = earlier(until, first.at)
		}
	}
	return 0, until, h.news.next(), nil
}

func (h *half) consume(first *segment, b []byte) (int, error) {
	if first.end != nil {
		h.broken = first.end
		return 0, first.end
	}
	n := copy(b, first.data)
	first.data = first.data[n:]
	if len(first.data) == 0 {
		h.queue = h.queue[1:]
	}
	h.held -= n
	h.news.tell()
	return n, nil
}

func (h *half) write(b []byte) (written int, err error) {
	for {
		cut, _, delay, linkNews := h.link.state()
		backCut, _, _, backNews := h.back.state()
		n, until, news, err := h.put(b[written:], delay, cut || backCut)
		written += n
		if err != nil || written == len(b) {
			return written, err
		}
		if n == 0 {
			await(until, news, linkNews, backNews)
		}
	}
}

// put sends what the window has room for.
func (h *half) put(b []byte, delay time.Duration, cut bool) (n int, until time.Time, news <-chan struct{}, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	switch {
	case h.ended:
		return 0, until, nil, net.ErrClosed
	case h.aborted, h.left && !cut:
		return 0, until, nil, syscall.ECONNRESET
	case passed(h.writeBy, now):
		return 0, until, nil, os.ErrDeadlineExceeded
	}
	if n = min(len(b), window-h.held); n > 0 {
		h.send(segment{at: now.Add(delay), data: append([]byte(nil), b[:n]...)})
	}
	return n, h.writeBy, h.news.next(), nil
}

// send queues a segment behind all others, however short its way has become. The caller holds mu.
func (h *half) send(s segment) {
	if last := len(h.queue) - 1; last >= 0 && s.at.Before(h.queue[last].at) {
		s.at = h.queue[last].at
	}
	h.queue = append(h.queue, s)
	h.held += len(s.data)
	h.news.tell()
}

func (h *half) finish() { h.end(segment{end: io.EOF}) }

// end sends the end, once.
func (h *half) end(s segment) {
	_, _, delay, _ := h.link.state()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return
	}
	h.ended = true
	s.at = time.Now().Add(delay)
	h.send(s)
}

// leave is the reader going away.
func (h *half) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.left, h.queue, h.held = true, nil, 0
	h.news.tell()
}

func (h *half) abort() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.aborted = true
	h.news.tell()
}

func (h *half) setDeadline(which *time.Time, t time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	*which = t
	h.news.tell()
}

func passed(deadline, now time.Time) bool { return !deadline.IsZero() && !deadline.After(now) }

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// await returns when one of the channels is closed or the time has come.
func await(until time.Time, news ...<-chan struct{}) {
	var due <-chan time.Time
	if !until.IsZero() {
		t := time.NewTimer(time.Until(until))
		defer t.Stop()
		due = t.C
	}
	news = append(news, nil, nil, nil)
	select {
	case <-due:
	case <-news[0]:
	case <-news[1]:
	case <-news[2]:
	}
}
