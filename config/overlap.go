package config

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
)

// Whether two patterns can match one topic is decided by running both at once over every name, a letter at a time, and
// remembering the pairs of states that were met: topics are written in 65 letters, so there are few. Where there are too many
// all the same, the answer is that they may.

// letters are what a topic's name is made of.
const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"

// The bounds of the search: pairs of states, and instructions of a pattern.
const (
	mostPairs        = 2000
	mostInstructions = 500
)

// cannotTell is the answer about patterns beyond those bounds. Refusing them costs a second group's name; accepting them could
// cost one of the streams its records.
const cannotTell = "whether both take the same topics cannot be told of patterns this rich"

func matches(pattern, topic string) bool {
	if pattern == "" {
		return false
	}
	re, err := regexp.Compile(pattern)
	return err == nil && re.MatchString(topic)
}

// overlap finds a name that both patterns match, or says that it cannot rule one out.
func overlap(a, b string) (what string, shared bool) {
	if a == b {
		return "both take the topics of one pattern", true
	}
	p, q := compile(a), compile(b)
	if p == nil || q == nil {
		return "", false // a pattern that does not compile is reported where it stands
	}
	if len(p.Inst) > mostInstructions || len(q.Inst) > mostInstructions {
		return cannotTell, true
	}
	return search(p, q)
}

func compile(pattern string) *syntax.Prog {
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil
	}
	prog, err := syntax.Compile(re.Simplify())
	if err != nil {
		return nil
	}
	return prog
}

// pair is one name on its way through both patterns.
type pair struct {
	name string
	a, b state
}

// state is where a pattern can be behind a name: the instructions to try next, before it is known which letter follows.
type state struct {
	at   []uint32
	done bool // it has matched already: patterns are searched for anywhere
}

func (p pair) key() string {
	last := rune(-1)
	if p.name != "" {
		last = rune(p.name[len(p.name)-1])
	}
	return fmt.Sprint(p.a, p.b, syntax.IsWordChar(last), last < 0)
}

func search(p, q *syntax.Prog) (what string, shared bool) {
	queue := []pair{{}}
	seen := map[string]bool{queue[0].key(): true}
	for ; len(queue) > 0; queue = queue[1:] {
		next := queue[0]
		if next.name != "" && next.a.ends(p, next.name) && next.b.ends(q, next.name) {
			return fmt.Sprintf("both take a topic such as %q", next.name), true
		}
		if len(seen) > mostPairs {
			return cannotTell, true
		}
		for _, letter := range letters {
			n := pair{next.name + string(letter), next.a.step(p, next.name, letter), next.b.step(q, next.name, letter)}
			if key := n.key(); !seen[key] {
				seen[key] = true
				queue = append(queue, n)
			}
		}
	}
	return "", false
}

// ends reports whether the pattern has matched when the name ends here.
func (s state) ends(p *syntax.Prog, name string) bool {
	_, done := s.reach(p, name, -1)
	return s.done || done
}

// step is the state one letter on.
func (s state) step(p *syntax.Prog, name string, letter rune) state {
	if s.done {
		return s
	}
	open, done := s.reach(p, name, letter)
	if done {
		return state{done: true}
	}
	var n state
	for _, at := range open {
		if p.Inst[at].MatchRune(letter) && !slices.Contains(n.at, p.Inst[at].Out) {
			n.at = append(n.at, p.Inst[at].Out)
		}
	}
	slices.Sort(n.at)
	return n
}

// reach follows everything that takes no letter, between the name's last letter and the next one (-1: the end). It returns the
// instructions that wait for a letter, and whether the pattern has matched here.
func (s state) reach(p *syntax.Prog, name string, next rune) (open []uint32, done bool) {
	last := rune(-1)
	if name != "" {
		last = rune(name[len(name)-1])
	}
	flags := syntax.EmptyOpContext(last, next)
	seen := make([]bool, len(p.Inst))
	queue := append(slices.Clone(s.at), uint32(p.Start))
	for len(queue) > 0 {
		at := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		if seen[at] {
			continue
		}
		seen[at] = true
		switch i := &p.Inst[at]; i.Op {
		case syntax.InstAlt, syntax.InstAltMatch:
			queue = append(queue, i.Out, i.Arg)
		case syntax.InstCapture, syntax.InstNop:
			queue = append(queue, i.Out)
		case syntax.InstEmptyWidth:
			if syntax.EmptyOp(i.Arg)&^flags == 0 {
				queue = append(queue, i.Out)
			}
		case syntax.InstMatch:
			done = true
		case syntax.InstFail:
		default:
			open = append(open, at)
		}
	}
	return open, done
}
