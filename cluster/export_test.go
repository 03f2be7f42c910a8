package cluster

import (
	"errors"
)

// abort ends the node as a kill would: without a word.
func (n *Node) abort() { n.end(errors.New("killed")) }
