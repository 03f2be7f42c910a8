// Package tuning is the small map of settings that all nodes of a cluster share: what `twgd tune` sets. It is pure: one of the tables
// behind the cluster's log.
package tuning

import (
	"fmt"
	"strconv"
	"time"
)

// The settings there are.
const (
	Size        = "cluster.size"         // seats: 1, 3, 5 or 7
	Settle      = "cluster.settle"       // how long a node is gone, or there, before its seat moves: a duration
	VoterBudget = "cluster.voter_budget" // what a voter has of a worker's byte budget: above 0, at most 1
	Share       = "recovery.share"       // what recovery may take of a node's throughput: above 0, at most 1
)

// Shortest and longest cluster.settle.
const (
	MinSettle = 10 * time.Second
	MaxSettle = 24 * time.Hour
)

// Keys are the settings there are, in order.
func Keys() []string { return []string{Size, Settle, VoterBudget, Share} }

// Check says what is allowed where the value is not. Whoever asks for a change calls it before proposing; the table itself takes any
// key and value of legal form (see Table.Apply).
func Check(key, value string) error {
	switch key {
	case Size:
		return checkSize(value)
	case Settle:
		return checkSettle(value)
	case VoterBudget, Share:
		return checkPart(key, value)
	}
	return fmt.Errorf("there is no setting %q; there are %s, %s, %s and %s", key, Size, Settle, VoterBudget, Share)
}

func checkSize(value string) error {
	switch value {
	case "1", "3", "5", "7":
		return nil
	}
	if n, err := strconv.Atoi(value); err == nil && n > 0 && n%2 == 0 && n < 8 {
		return fmt.Errorf("%s %d: an even number of seats survives no more losses than %d does, and costs one more; 1, 3, 5 and 7 work", Size, n, n-1)
	}
	return fmt.Errorf("%s %q: 1, 3, 5 and 7 work", Size, value)
}

func checkSettle(value string) error {
	d, err := time.ParseDuration(value)
	if err != nil || d < MinSettle || d > MaxSettle {
		return fmt.Errorf("%s %q: a duration from %v to %v works, such as 15m", Settle, value, MinSettle, MaxSettle)
	}
	return nil
}

func checkPart(key, value string) error {
	f, err := strconv.ParseFloat(value, 64)
	if err != nil || !(f > 0 && f <= 1) {
		return fmt.Errorf("%s %q: a number above 0 and at most 1 works, such as 0.5", key, value)
	}
	return nil
}
