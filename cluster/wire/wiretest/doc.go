// Package wiretest is a network in memory for tests: streams and packets between named hosts, and what goes wrong there.
//
//	network := wiretest.New()
//	n1, n2 := network.Host("n1"), network.Host("n2")      // each is a wire.Network
//	l, err := n1.Listen("n1:7481")
//	c, err := n2.Dial(ctx, "n1:7481")
//	network.Cut("n1", "n2")                               // one way
package wiretest
