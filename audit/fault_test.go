package audit

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stream-arrow/twgd/avrofile"
)

// A cut that is damaged keeps its sink from working for ever: an audit that took it for an absence would pass by the copies.
func TestDamageOfASinkIsNoAbsence(t *testing.T) {
	var away, damaged SinkFacts
	away.fault(errors.New("no route"))
	damaged.fault(fmt.Errorf("finding the head of the cuts: %w", avrofile.ErrDamaged))
	if away.Away == "" || away.Refuse != "" || damaged.Refuse == "" || damaged.Away != "" {
		t.Errorf("%+v, %+v", away, damaged)
	}
}
