//go:build linux

package netlab

import (
	"context"
	"errors"
	"fmt"
	stdnet "net"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/stream-arrow/twgd/test/servers"
)

// Host is one host: a network namespace with a loopback and one device.
type Host struct {
	Number  int
	Address string // IPv4, such as 10.99.7.1

	space  *os.File // the namespace
	device *os.File
}

// newHost makes the namespace on a thread that ends with it, and its device inside.
func newHost(i int) (*Host, error) {
	h := &Host{Number: i, Address: address(i).String()}
	err := onThread(func() (err error) {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make a network namespace: %w", err)
		}
		if h.space, err = os.Open("/proc/thread-self/ns/net"); err != nil {
			return fmt.Errorf("hold the network namespace: %w", err)
		}
		h.device, err = openDevice("eth0", address(i))
		return err
	})
	if err != nil {
		return nil, errors.Join(err, h.close())
	}
	return h, nil
}

func (h *Host) close() error {
	var errs []error
	for _, f := range []*os.File{h.device, h.space} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// onThread runs do on a thread of its own, which is not used for anything else afterwards: it ends with the goroutine that never lets go of it.
func onThread(do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		done <- do()
	}()
	return <-done
}

// enter moves the calling thread to the host.
func (h *Host) enter() error {
	if err := unix.Setns(int(h.space.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter host %d: %w", h.Number, err)
	}
	return nil
}

// Do runs do on the host: sockets that it makes itself are the host's for good. Goroutines that it starts are not on the host.
func (h *Host) Do(do func() error) error {
	return onThread(func() error {
		if err := h.enter(); err != nil {
			return err
		}
		return do()
	})
}

// Start starts a program on the host. It ends with this process.
func (h *Host) Start(cmd *exec.Cmd) (*servers.Child, error) {
	return servers.SpawnAt(cmd, syscall.SIGKILL, h.enter)
}

// Dial connects from the host, to an address of digits. A TCP connection is tried from one thread alone.
func (h *Host) Dial(ctx context.Context, network, address string) (conn stdnet.Conn, err error) {
	err = h.Do(func() error {
		conn, err = new(stdnet.Dialer).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// Listen listens on the host.
func (h *Host) Listen(network, address string) (l stdnet.Listener, err error) {
	err = h.Do(func() error {
		l, err = new(stdnet.ListenConfig).Listen(context.Background(), network, address)
		return err
	})
	return l, err
}
