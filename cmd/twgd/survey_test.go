package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
)

// A sink that is added later is filled from all of raw, also from what a topic of the same name held before it was created again.
func TestChainsThatAreNotReadAnyMoreAreRecovered(t *testing.T) {
	l := newLab(t)
	l.produce("a", "b", "c")
	stop := l.start(l.config("one", "", ""))
	l.covered(3)
	stop()
	admin := kadm.NewClient(l.client)
	_, err := admin.DeleteTopics(l.Context(), "orders")
	l.must(err)
	_, err = admin.CreateTopics(l.Context(), 1, 1, nil, "orders")
	l.must(err)
	l.client.PurgeTopicsFromClient("orders")
	l.produce("d", "e")
	more := fmt.Sprintf("}, {name: again, parquet: {to: \"file://%s/again\", roll: {age: 1s}}", l.dir)
	l.start(l.config("one", "", more))
	l.until("both chains in the new sink", func() bool {
		code, out, _ := l.twgd("audit", "-c", l.dir+"/one.yaml", "--rows")
		return code == 0 && strings.Contains(out, "3 of 3") && strings.Contains(out, "2 of 2")
	})
}
