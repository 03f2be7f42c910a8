package kafka

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestCheck(t *testing.T) {
	f := func(name string, change func(*Options), want string, opts ...kfake.Opt) {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				o := w.options()
				change(&o)
				err := Check(w.ctx, o)
				if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
					t.Fatalf("%v, want %q", err, want)
				}
			}, append([]kfake.Opt{kfake.SeedTopics(2, "orders")}, opts...)...)
		})
	}
	f("good", func(*Options) {}, "")
	f("a pattern", func(o *Options) { o.Topics, o.TopicsRegex = nil, "^later" }, "")
	f("no topic", func(o *Options) { o.Topics = []string{"orders", "absent"} }, "the topic absent does not exist")
	f("no partition", func(o *Options) { o.Topics, o.Group, o.Partitions = nil, "", map[string][]int32{"orders": {0, 5}} }, "no partition 5")
	f("no broker", func(o *Options) { o.Brokers = []string{"localhost:1"} }, "no listener on port 1")
	f("wrong password", func(o *Options) { o.SASL = SASLOptions{"SCRAM-SHA-256", "admin", "wrong"} }, "cannot be reached: EOF", kfake.EnableSASL()) // a real broker says more
	f("right password", func(o *Options) { o.SASL = SASLOptions{"SCRAM-SHA-256", "admin", "admin"} }, "", kfake.EnableSASL())
	read := kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: "orders", Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: kmsg.ACLOperationRead, Allow: true}
	group := kfake.ACL{Resource: kmsg.ACLResourceTypeGroup, Name: "g", Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: kmsg.ACLOperationRead, Allow: true}
	plain := func(o *Options) { o.SASL = SASLOptions{"PLAIN", "user", "pw"} }
	f("all rights", plain, "", kfake.EnableSASL(), kfake.EnableACLs(), kfake.User("PLAIN", "user", "pw", read, group))
	f("no right to the topic", plain, "TOPIC_AUTHORIZATION_FAILED", kfake.EnableSASL(), kfake.EnableACLs(), kfake.User("PLAIN", "user", "pw", group))
	f("no right to the group", plain, "GROUP_AUTHORIZATION_FAILED", kfake.EnableSASL(), kfake.EnableACLs(), kfake.User("PLAIN", "user", "pw", read))
}

// What keeps us from connecting is named, not the deadline that it ran into.
func TestWrongPassword(t *testing.T) {
	bubble(t, func(w *world) {
		r := w.open(func(o *Options) { o.SASL = SASLOptions{"PLAIN", "user", "wrong"} })
		r.Until("a word", func() bool { return r.Noticed("source_down") })
		if text := r.Notices[0].Text; !strings.Contains(text, "EOF") || strings.Contains(text, "deadline") {
			t.Fatalf("it says %q", text)
		}
	}, kfake.SeedTopics(1, "orders"), kfake.EnableSASL(), kfake.User("PLAIN", "user", "pw"), kfake.Superuser("PLAIN", "admin", "admin"))
}

func TestGroupDenied(t *testing.T) {
	read := kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: "orders", Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: kmsg.ACLOperationRead, Allow: true}
	bubble(t, func(w *world) {
		r := w.open(func(o *Options) { o.SASL = SASLOptions{"PLAIN", "user", "pw"} })
		r.Until("a word", func() bool { return r.Noticed("source_down") })
		if text := r.Notices[0].Text; !strings.Contains(text, "GROUP_AUTHORIZATION_FAILED") {
			t.Fatalf("it says %q", text)
		}
	}, kfake.SeedTopics(1, "orders"), kfake.EnableSASL(), kfake.EnableACLs(), kfake.User("PLAIN", "user", "pw", read))
}

// A new cluster has no coordinator for a moment, because the topic that keeps groups is made when somebody first asks.
func TestCheckOfANewCluster(t *testing.T) {
	f := func(away time.Duration, want string) {
		t.Helper()
		bubble(t, func(w *world) {
			until := time.Now().Add(away)
			w.cluster.ControlKey(int16(kmsg.FindCoordinator), func(req kmsg.Request) (kmsg.Response, error, bool) {
				w.cluster.KeepControl()
				resp := req.ResponseKind().(*kmsg.FindCoordinatorResponse)
				resp.ErrorCode = kerr.CoordinatorNotAvailable.Code
				for _, k := range req.(*kmsg.FindCoordinatorRequest).CoordinatorKeys {
					resp.Coordinators = append(resp.Coordinators, kmsg.FindCoordinatorResponseCoordinator{Key: k, ErrorCode: kerr.CoordinatorNotAvailable.Code})
				}
				return resp, nil, time.Now().Before(until)
			})
			err := Check(w.ctx, w.options())
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("away for %s: %v, want %q", away, err, want)
			}
		}, kfake.SeedTopics(1, "orders"))
	}
	f(5*time.Second, "")
	f(time.Hour, "offsets.topic.replication.factor=1")
}
