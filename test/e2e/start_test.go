//go:build e2e

package e2e

import (
	"debug/elf"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stream-arrow/twgd/test/harness"
)

func TestProgramIsStatic(t *testing.T) {
	f, err := elf.Open(suite.Program)
	harness.Must(t, err)
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("the program asks for a dynamic linker")
		}
	}
}

// TestStart: /live and, with manual partitions, /ready answer within half a second of the process's start. The best of five starts
// counts, since others use the machine too.
func TestStart(t *testing.T) {
	topic := suite.Topic(t, 3, nil)
	c := suite.Stream(topic, "file://"+harness.Dir(t))
	c.Source.Kafka.Topics, c.Source.Kafka.Group = nil, ""
	c.Source.Kafka.Partitions = map[string][]int32{topic.Name: {0, 1, 2}}
	n := suite.Node(t, "n", c)
	live, ready := time.Hour, time.Hour
	for range 5 {
		begin := time.Now()
		n.Start()
		live = min(live, answers(t, n, "/live", begin))
		ready = min(ready, answers(t, n, "/ready", begin))
		n.Kill()
	}
	t.Logf("/live after %v, /ready after %v", live, ready)
	if live > 500*time.Millisecond || ready > 500*time.Millisecond {
		t.Errorf("/live answers after %v, /ready after %v", live, ready)
	}
}

// answers waits until path answers 200, and returns how long after begin that is.
func answers(t *testing.T, n *harness.Node, path string, begin time.Time) time.Duration {
	t.Helper()
	harness.Await(t, path+" to answer 200", 20*time.Second, func() (string, bool) {
		resp, err := http.Get(n.Address() + path)
		if err != nil {
			return err.Error(), false
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return string(body), resp.StatusCode == http.StatusOK
	})
	return time.Since(begin)
}
