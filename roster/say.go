package roster

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// silence is what a node with state waits for that hears of no leader.
func (v *StartView) silence() string {
	return "waiting for a leader: " + v.seats()
}

// seats says what is known of each seat: "1 of 3 seats, silent: n2, on a new disk: n3".
func (v *StartView) seats() string {
	var up, silent, superseded []string
	for _, id := range v.Seats {
		switch p := v.answerOf(id); {
		case id == v.Me || p != nil && p.ID == id:
			up = append(up, NameOf(id))
		case p != nil && p.ID != "":
			superseded = append(superseded, NameOf(id))
		default:
			silent = append(silent, NameOf(id))
		}
	}
	out := []string{fmt.Sprintf("%d of %d seats", len(up), len(v.Seats))}
	if len(silent) > 0 {
		out = append(out, "silent: "+strings.Join(silent, ", "))
	}
	if len(superseded) > 0 {
		out = append(out, "on a new disk: "+strings.Join(superseded, ", "))
	}
	return strings.Join(out, ", ")
}

// answerOf is the answer of an id, else of its name under another birth, else nil.
func (v *StartView) answerOf(id string) *Peer {
	answers := func(ok func(Peer) bool) *Peer {
		if i := slices.IndexFunc(v.Peers, func(p Peer) bool { return p.Says != Silent && p.Says != Foreign && ok(p) }); i >= 0 {
			return &v.Peers[i]
		}
		return nil
	}
	if p := answers(func(p Peer) bool { return p.ID == id }); p != nil {
		return p
	}
	return answers(func(p Peer) bool { return p.Name == NameOf(id) })
}

// answers lists what the listed addresses said, those that ok picks; nil picks all.
func (v *StartView) answers(ok func(Peer) bool) string {
	var out []string
	for _, p := range v.Peers {
		if p.Listed && p.ID != v.Me && (ok == nil || ok(p)) {
			out = append(out, p.says())
		}
	}
	if len(out) == 0 {
		return "all have answered"
	}
	return strings.Join(out, ", ")
}

func (p *Peer) says() string {
	switch p.Says {
	case Empty:
		return p.Name + " at " + p.Addr + " is empty"
	case Claiming:
		return p.Name + " at " + p.Addr + " is founding"
	case HasState:
		return p.Name + " at " + p.Addr + " has state"
	}
	if p.Error == "" {
		return p.Addr + " is silent"
	}
	return p.Addr + ": " + p.Error
}

func short(founding [16]byte) string { return hex.EncodeToString(founding[:4]) }
