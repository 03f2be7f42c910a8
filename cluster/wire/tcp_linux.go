package wire

import "syscall"

// tcpUserTimeout is TCP_USER_TIMEOUT (RFC 5482), which package syscall does not name.
const tcpUserTimeout = 0x12

// limitUnacknowledged sets TCP_USER_TIMEOUT: without it, bytes on their way to a host that is gone keep a connection for a quarter of an
// hour, since keep-alive only watches connections on which nothing is under way. What is accepted inherits it.
func limitUnacknowledged(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) {
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(unsaid.Milliseconds()))
	})
}
