package roster

import "fmt"

// Step is one thing for the leader to do. One is under way at a time.
type Step struct {
	Kind Kind
	ID   string // of the node it is about; empty for Rest and Stop, and for Wait unless a node is waited for
	Rule string // the rule that asked for it: "3b"
	Why  string // a sentence for the log, with names
}

// Kind is what a Step does.
type Kind uint8

const (
	Rest        Kind = iota // nothing is to be done
	Wait                    // something is to be done, not yet
	HandOver                // send TimeoutNow to a seat that holds the whole log
	Clear                   // roster command: drop the marks, grant and refusal of ID
	Grant                   // roster command: ID may stop
	Refuse                  // roster command: ID may not leave, nobody would stay
	AddNonvoter             // configuration
	Promote                 // configuration: a nonvoter becomes a voter
	Demote                  // configuration: a voter becomes a nonvoter
	Remove                  // configuration: a nonvoter goes
	Bury                    // roster command tomb: ID has left for good and is in no configuration any more
	Stop                    // the leader may stop: it is the last, once those it granted are gone or 3 s have passed
)

var kindNames = [...]string{"rest", "wait", "hand over", "clear", "grant", "refuse", "add nonvoter", "promote", "demote", "remove", "bury", "stop"}

func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

func (s Step) String() string {
	if s.ID == "" {
		return fmt.Sprintf("%s [%s]", s.Kind, s.Rule)
	}
	return fmt.Sprintf("%s %s [%s]", s.Kind, s.ID, s.Rule)
}
