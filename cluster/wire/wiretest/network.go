// Package wiretest is a network in memory, for synctest bubbles.
package wiretest

import (
	"context"
	"net"
	"time"
)

type Network struct{}

func New() *Network                                       { panic("seam") }
func (n *Network) Host(name string) *Host                 { panic("seam") } // the same host for the same name; addresses "n1:7481" or "10.0.0.1:7481"
func (n *Network) Cut(from, to string)                    { panic("seam") } // one way: nothing arrives; what TCP has sent waits
func (n *Network) CutBoth(a, b string)                    { panic("seam") }
func (n *Network) Heal(a, b string)                       { panic("seam") } // both ways
func (n *Network) Isolate(name string)                    { panic("seam") } // from all others
func (n *Network) Rejoin(name string)                     { panic("seam") }
func (n *Network) Reset(a, b string)                      { panic("seam") } // connections between them are reset
func (n *Network) Delay(from, to string, d time.Duration) { panic("seam") }

type Host struct{}

func (h *Host) Listen(address string) (net.Listener, error)                  { panic("seam") }
func (h *Host) Dial(ctx context.Context, address string) (net.Conn, error)   { panic("seam") }
func (h *Host) Packets(address string) (net.PacketConn, error)               { panic("seam") }
func (h *Host) Kill()                                                        { panic("seam") } // all sockets end; peers see resets
func (h *Host) Move()                                                        { panic("seam") } // Kill, and another IP address
func (h *Host) IP() string                                                   { panic("seam") }
func (n *Network) Lookup(ctx context.Context, host string) ([]string, error) { panic("seam") }
