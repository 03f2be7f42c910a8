package main

import (
	"github.com/stream-arrow/twgd/admin"
)

// commands are what the socket takes.
func (n *node) commands() []admin.Command { return nil }
