package kafka

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/stream-arrow/twgd/record"
)

func TestAnotherMemberOfAGroupThatHasRawForItselfIsTold(t *testing.T) {
	bubble(t, func(w *world) {
		whole := record.Partition{Cluster: "fake"}
		a := w.open(func(o *Options) { o.Alone = true })
		a.For(20 * time.Second)
		if len(a.Held) > 0 {
			t.Fatalf("held while alone: %v", a.Held)
		}
		b := w.open(func(o *Options) { o.Client = "node~2" })
		a.Until("a word of the other", func() bool { return strings.Contains(a.Held[whole], "node~2") })
		b.Close()
		a.Until("the end of it", func() bool { return len(a.Held) == 0 })
	}, kfake.SeedTopics(2, "orders"))
}
