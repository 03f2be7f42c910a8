package leasing

import (
	"testing"
	"time"
)

const ttl = 10 * time.Second

// The histories below are of one name; times are seconds.
func at(tenant int, kind Kind, call, ret float64, token uint64) Op {
	return Op{Tenant: tenant, Kind: kind, Name: "x", Call: seconds(call), Return: seconds(ret), Token: token}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// grant is an acquire that was granted, and counted on until then.
func grant(tenant int, call, ret float64, token uint64, until float64) Op {
	o := at(tenant, Acquire, call, ret, token)
	o.TTL, o.Until = ttl, seconds(until)
	return o
}

// gave is the same, and its holder gave it up then.
func gave(tenant int, call, ret float64, token uint64, until float64) Op {
	o := grant(tenant, call, ret, token, until)
	o.Gave = true
	return o
}

func lost(o Op) Op { o.Return = Never; return o }

func stale(o Op) Op { o.Stale = true; return o }

func TestJudge(t *testing.T) {
	f := func(what string, right bool, ops ...Op) {
		t.Helper()
		if err := Judge(ops); (err == nil) != right {
			t.Errorf("%s: %v", what, err)
		}
	}
	f("nothing", true)
	f("one after another, by release", true, gave(1, 0, 1, 5, 3), at(1, Release, 3, 4, 5), grant(2, 3.5, 5, 6, 20))
	f("before the release", false, gave(1, 0, 1, 5, 3), at(1, Release, 3, 4, 5), grant(2, 1.5, 2.5, 6, 20))
	f("the release's answer is lost", true, gave(1, 0, 1, 5, 3), lost(at(1, Release, 3, 0, 5)), grant(2, 6, 7, 6, 20))
	f("released by nobody, its time is not over", false, gave(1, 0, 1, 5, 3), grant(2, 6, 7, 6, 20))
	f("its time is over", true, grant(1, 0, 1, 5, 10), grant(2, 2, 11, 6, 30))
	f("its time is over, but it was renewed", false, grant(1, 0, 1, 5, 25), grant(2, 12, 13, 6, 30))
	f("two at once", false, grant(1, 0, 1, 5, 10), grant(2, 0, 1, 6, 10))
	f("counted on to the end of the test", true, grant(1, 0, 1, 5, 1000), at(2, Acquire, 2, 3, 0), at(2, Observe, 3, 4, 5))
	f("ended early", false, grant(1, 0, 1, 5, 6))
	f("ended with its margin", true, grant(1, 0, 1, 5, 9))
	f("a token again", false, grant(1, 0, 1, 5, 10), grant(2, 30, 31, 5, 45))
	f("a smaller token", false, grant(1, 0, 1, 5, 10), grant(2, 30, 31, 4, 45))
	f("the holder is seen", true, grant(1, 0, 1, 5, 10), at(2, Observe, 2, 3, 5), at(2, Observe, 20, 21, 0))
	f("the holder is seen again after nobody was", false, grant(1, 0, 1, 5, 10), at(2, Observe, 20, 21, 0), at(2, Observe, 22, 23, 5))
	f("nobody is seen while it is held", false, grant(1, 0, 1, 5, 10), at(2, Observe, 2, 3, 0))
	f("another is seen than holds", false, grant(1, 0, 1, 5, 10), at(2, Observe, 2, 3, 4))
	f("the old holder is seen after the new one was told", false, grant(1, 0, 1, 5, 10), grant(2, 12, 13, 6, 30), at(3, Observe, 14, 15, 5))
	f("who never heard of it holds", true, lost(at(1, Acquire, 0, 0, 0)), at(2, Observe, 2, 3, 7), grant(3, 20, 21, 8, 40))
	f("who never heard of it took it from its holder", false, grant(1, 0, 1, 5, 10), lost(at(2, Acquire, 1, 0, 0)), at(3, Observe, 2, 3, 6), at(3, Observe, 4, 5, 5))
	f("granted too late to be told", true, at(2, Observe, 2, 3, 7), grant(1, 0, 20, 8, 40))
	f("granted too late to be told, and taken from its holder", false, grant(1, 0, 1, 5, 10), at(2, Observe, 2, 3, 7), grant(3, 0, 20, 8, 40))
	f("done", true, gave(1, 0, 1, 5, 3), at(1, Done, 3, 4, 5), at(2, Observe, 5, 6, 0))
	f("done twice", false, gave(1, 0, 1, 5, 3), at(1, Done, 3, 4, 5), at(1, Done, 5, 6, 5))
	f("done too late", true, grant(1, 0, 1, 5, 10), grant(2, 12, 13, 6, 30), stale(at(1, Done, 14, 15, 5)))
	f("done by one who lost it, and believed", false, grant(1, 0, 1, 5, 10), grant(2, 12, 13, 6, 30), at(1, Done, 14, 15, 5))
	f("done by its holder, and refused", false, gave(1, 0, 1, 5, 3), stale(at(1, Done, 3, 4, 5)))
	f("released too late does nothing", true, grant(1, 0, 1, 5, 10), grant(2, 12, 13, 6, 30), at(1, Release, 14, 15, 5), at(3, Observe, 16, 17, 6))
	f("released too late took it from another", false, grant(1, 0, 1, 5, 10), grant(2, 12, 13, 6, 30), at(1, Release, 14, 15, 5), at(3, Observe, 16, 17, 0))
}
