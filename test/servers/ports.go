package servers

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

// ports are loopback ports that stay reserved while their servers are down.
//
// The kernel's ephemeral ports would not do: while a server is stopped, any outgoing connection may be given its port. So the numbers
// come from below that range, and each is reserved among our own processes by an abstract unix socket of that name, which ends with the process.
type ports struct {
	numbers []int
	held    []net.Listener
}

// The range lies below the kernel's ephemeral ports (32768 and up) and above the well-known ones.
const firstPort, lastPort = 15000, 32000

// reservePorts reserves n free ports.
func reservePorts(n int) (*ports, error) {
	p := &ports{}
	for tries := 0; len(p.numbers) < n; tries++ {
		if tries == 1000 {
			p.release()
			return nil, errors.New("no free loopback port found in 1000 tries")
		}
		p.try(firstPort + rand.IntN(lastPort-firstPort))
	}
	return p, nil
}

func (p *ports) try(number int) {
	hold, err := net.Listen("unix", fmt.Sprintf("@twgd-test-port-%d", number))
	if err != nil {
		return
	}
	probe, err := net.Listen("tcp", loopback(number))
	if err != nil {
		hold.Close()
		return
	}
	probe.Close()
	p.numbers, p.held = append(p.numbers, number), append(p.held, hold)
}

func (p *ports) release() {
	for _, l := range p.held {
		l.Close()
	}
}

func loopback(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// Ports reserves n free loopback ports for a program of the test's own, until release is called.
func Ports(n int) (numbers []int, release func(), err error) {
	p, err := reservePorts(n)
	if err != nil {
		return nil, nil, err
	}
	return p.numbers, p.release, nil
}
