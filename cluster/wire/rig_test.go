package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/stream-arrow/twgd/cluster/wire/wiretest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a network with ports, inside a bubble.
type rig struct {
	*testing.T
	net   *wiretest.Network
	ports map[string]*Port
	ends  map[string]func()
	mu    sync.Mutex
	told  map[string][]error // refusals by node
}

// inBubble runs a test in fake time, and ends its ports before the bubble does.
func inBubble(t *testing.T, f func(t *testing.T, r *rig)) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t, net: wiretest.New(), ports: map[string]*Port{}, ends: map[string]func(){}, told: map[string][]error{}}
		defer func() {
			for _, end := range r.ends {
				end()
			}
		}()
		f(t, r)
	})
}

const (
	testCluster = "prod"
	testSecret  = "0123456789abcdef0123456789abcdef"
)

// start runs a port at host:7481 and lets it answer some methods.
func (r *rig) start(node string, change ...func(*Options)) *Port {
	r.Helper()
	o := Options{
		Network:  r.net.Host(node),
		Listen:   node + ":7481",
		Cluster:  testCluster,
		Node:     node,
		ServerID: func() string { return node + "~1" },
		Refused: func(f Refusal) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.told[node] = append(r.told[node], f.Reason)
		},
	}
	for _, c := range change {
		c(&o)
	}
	if o.Keys == nil {
		o.Keys = []Keys{Derive(o.Cluster, testSecret)}
	}
	p, err := Open(o)
	if err != nil {
		r.Fatal(err)
	}
	handlers(p)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- p.Run(ctx) }()
	r.ports[node] = p
	r.ends[node] = func() {
		cancel()
		if err := <-ended; err != nil {
			r.Errorf("%s: %v", node, err)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.mu.conns) != 0 || p.mu.shaking != 0 {
			r.Errorf("%s has %d connections and %d handshakes after its end", node, len(p.mu.conns), p.mu.shaking)
		}
	}
	return p
}

func (r *rig) stop(node string) {
	r.ends[node]()
	delete(r.ends, node)
}

func handlers(p *Port) {
	p.Handle("echo", func(_ context.Context, _ Peer, body []byte) ([]byte, error) { return body, nil })
	p.Handle("who", func(_ context.Context, from Peer, _ []byte) ([]byte, error) {
		host, _, err := net.SplitHostPort(from.Addr)
		return fmt.Appendf(nil, "%s %s %s %s", from.Name, from.ServerID, from.Founding, host), err
	})
	p.Handle("plain", func(context.Context, Peer, []byte) ([]byte, error) { return nil, errors.New("no luck") })
	p.Handle("coded", func(context.Context, Peer, []byte) ([]byte, error) {
		return nil, fmt.Errorf("asking: %w", &RemoteError{Code: "not_leader", Text: "n2 leads"})
	})
	p.Handle("panic", func(context.Context, Peer, []byte) ([]byte, error) { panic("oh") })
	p.Handle("large", func(context.Context, Peer, []byte) ([]byte, error) { return make([]byte, MaxBody+1), nil })
	p.Handle("wait", func(ctx context.Context, _ Peer, _ []byte) ([]byte, error) {
		start := time.Now()
		<-ctx.Done()
		return fmt.Appendf(nil, "%v", time.Since(start)), nil
	})
	p.HandleOpen("open", func(context.Context, Peer, []byte) ([]byte, error) { return []byte("open"), nil })
}

// call expects an answer.
func (r *rig) call(from, to, method, body, want string) {
	r.Helper()
	got, err := r.ports[from].Call(r.Context(), to+":7481", method, []byte(body))
	if err != nil || string(got) != want {
		r.Errorf("%s asks %s of %s: %q, %v, want %q", from, method, to, got, err, want)
	}
}

// refuse expects an error, and returns it.
func refuse[E error](r *rig, from, to, method string) (found E) {
	r.Helper()
	_, err := r.ports[from].Call(r.Context(), to+":7481", method, nil)
	if !errors.As(err, &found) {
		r.Errorf("%s asks %s of %s: %T %v, want %T", from, method, to, err, err, found)
	}
	return found
}

// was expects that a node was told of a refusal with a type, and returns the first.
func was[E error](r *rig, node string) (found E) {
	r.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, err := range r.told[node] {
		if errors.As(err, &found) {
			return found
		}
	}
	r.Errorf("%s was told %v, and no %T", node, r.told[node], found)
	return found
}

func founded(f Founding) func(*Options) {
	return func(o *Options) { o.Founding = func() ([16]byte, bool) { return f, true } }
}

func inCluster(name string) func(*Options) { return func(o *Options) { o.Cluster = name } }

func secrets(s ...string) func(*Options) {
	return func(o *Options) {
		o.Keys = nil
		for _, secret := range s {
			o.Keys = append(o.Keys, Derive(o.Cluster, secret))
		}
	}
}
