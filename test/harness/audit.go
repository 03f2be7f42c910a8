package harness

import (
	"encoding/json"
	"strings"
)

// AuditReport is what "twgd audit -o json" says of one stream.
type AuditReport struct {
	Verdict    string
	Findings   []AuditFinding
	Partitions []struct {
		Sinks []struct {
			Name    string
			LeftOut map[string]int64 `json:"left_out"`
		}
	}
}

// AuditFinding is one thing that is not as it should be.
type AuditFinding struct {
	Kind      string
	Topic     string
	Partition int32
	Sink      string
	Span      *struct{ From, To int64 }
	Text      string
}

// Audit asks the auditor of the node's first stream, and returns his exit code and what he says.
func (n *Node) Audit(args ...string) (code int, report AuditReport) {
	n.t.Helper()
	code, printed := n.Ask(append([]string{"audit", "-o", "json"}, args...)...)
	var reports []AuditReport
	if err := json.NewDecoder(strings.NewReader(printed)).Decode(&reports); err != nil || len(reports) == 0 {
		n.t.Fatalf("audit %q exits with code %d and prints %s: %v", args, code, printed, err)
	}
	return code, reports[0]
}

// LeftOut sums what is left out for a reason, by sink.
func (r AuditReport) LeftOut(reason string) map[string]int64 {
	out := map[string]int64{}
	for _, p := range r.Partitions {
		for _, s := range p.Sinks {
			out[s.Name] += s.LeftOut[reason]
		}
	}
	return out
}
