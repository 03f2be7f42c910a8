package chain

import "testing"

// script drives a Writer through answers and readings, and checks the head after each.
type script struct {
	*testing.T
	w    *Writer
	made []Link
}

func (s *script) propose(next int64) *script {
	s.Helper()
	l := s.w.Propose(next, Nonce{byte(len(s.made) + 1)})
	s.made = append(s.made, l)
	return s
}

func (s *script) answer(a Answer, took, doubt bool, head int64) *script {
	s.Helper()
	if got := s.w.Answered(a); got != took || s.w.InDoubt() != doubt || s.w.Head() != head {
		s.Fatalf("answer %d: took %v, doubt %v, head %d; want %v, %v, %d", a, got, s.w.InDoubt(), s.w.Head(), took, doubt, head)
	}
	return s
}

func (s *script) find(l *Link, ours bool, head int64) *script {
	s.Helper()
	if got := s.w.Found(l); got != ours || s.w.InDoubt() || s.w.Head() != head {
		s.Fatalf("found %v: ours %v, doubt %v, head %d; want %v, false, %d", l, got, s.w.InDoubt(), s.w.Head(), ours, head)
	}
	return s
}

func TestWriter(t *testing.T) {
	f := func(name string, play func(s *script)) {
		t.Run(name, func(t *testing.T) { play(&script{T: t, w: NewWriter(10)}) })
	}
	theirs := Link{10, 12, Nonce{99}}
	f("stored", func(s *script) {
		s.propose(20).answer(Stored, true, false, 20).propose(25).answer(Stored, true, false, 25)
	})
	f("refused, and again", func(s *script) {
		s.propose(20).answer(Refused, false, false, 10).propose(30).answer(Stored, true, false, 30)
	})
	f("D10 exists and is ours", func(s *script) { s.propose(20).answer(Exists, false, true, 10).find(&s.made[0], true, 20) })
	f("exists and is another's", func(s *script) { s.propose(20).answer(Exists, false, true, 10).find(&theirs, false, 12) })
	f("unknown, and is there", func(s *script) { s.propose(20).answer(Unknown, false, true, 10).find(&s.made[0], true, 20) })
	f("unknown, and is not there", func(s *script) {
		s.propose(20).answer(Unknown, false, true, 10).find(nil, false, 10).propose(21).answer(Stored, true, false, 21)
	})
	f("D30 the first of two attempts lands", func(s *script) {
		s.propose(12).answer(Unknown, false, true, 10).find(nil, false, 10)
		s.propose(13).answer(Exists, false, true, 10).find(&s.made[0], true, 12)
		s.propose(13).answer(Stored, true, false, 13)
	})
	f("a refused attempt lands after all", func(s *script) {
		s.propose(12).answer(Refused, false, false, 10)
		s.propose(13).answer(Exists, false, true, 10).find(&s.made[0], true, 12)
	})
	f("an old attempt is not ours at another head", func(s *script) {
		s.propose(12).answer(Stored, true, false, 12)
		s.propose(15).answer(Exists, false, true, 12).find(&Link{12, 14, s.made[0].Nonce}, false, 14)
	})
}

func TestWriterPanics(t *testing.T) {
	f := func(name string, play func(w *Writer)) {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			play(NewWriter(10))
		})
	}
	f("an empty link", func(w *Writer) { w.Propose(10, Nonce{}) })
	f("two in flight", func(w *Writer) { w.Propose(11, Nonce{1}); w.Propose(12, Nonce{2}) })
	f("an attempt in doubt", func(w *Writer) { w.Propose(11, Nonce{1}); w.Answered(Unknown); w.Propose(12, Nonce{2}) })
	f("an answer to nothing", func(w *Writer) { w.Answered(Stored) })
	f("a reading without need", func(w *Writer) { w.Found(nil) })
	f("a link from elsewhere", func(w *Writer) { w.Propose(11, Nonce{1}); w.Answered(Unknown); w.Found(&Link{9, 12, Nonce{1}}) })
	f("a link that goes back", func(w *Writer) { w.Propose(11, Nonce{1}); w.Answered(Unknown); w.Found(&Link{10, 10, Nonce{1}}) })
}
