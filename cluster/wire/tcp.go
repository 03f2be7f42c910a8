package wire

import (
	"context"
	"net"
	"time"
)

// alive lets the kernel notice, on connections that say nothing, that a host is gone.
var alive = net.KeepAliveConfig{Enable: true, Idle: 2 * time.Second, Interval: time.Second, Count: 3}

// unsaid is how long the kernel tries to deliver what a peer does not acknowledge.
const unsaid = 10 * time.Second

// TCP is the network of the host.
func TCP() Network { return tcp{} }

type tcp struct{}

func (tcp) Listen(address string) (net.Listener, error) {
	lc := net.ListenConfig{KeepAliveConfig: alive, Control: limitUnacknowledged}
	return lc.Listen(context.Background(), "tcp", address)
}

func (tcp) Dial(ctx context.Context, address string) (net.Conn, error) {
	d := net.Dialer{KeepAliveConfig: alive, Control: limitUnacknowledged}
	return d.DialContext(ctx, "tcp", address)
}
