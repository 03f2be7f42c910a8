//go:build linux && !amd64

package netlab

import (
	"errors"
	"time"
)

// Clock is the wall clock of one running program.
type Clock struct{}

// NewClock says that it works on amd64 only.
func NewClock(int) (*Clock, error) {
	return nil, errors.New("netlab: the wall clock of a process can be set on amd64 only")
}

// Set sets the clock.
func (*Clock) Set(time.Duration) error {
	return errors.New("netlab: the wall clock of a process can be set on amd64 only")
}
