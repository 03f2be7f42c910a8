package unit

import (
	"errors"
	"net"
	"strconv"
	"strings"
)

// Address is host:port of a TCP endpoint. An empty host means every interface, which only makes sense to listen on.
type Address string

// ParseAddress reads an address.
func ParseAddress(s string) (Address, error) {
	host, port, err := net.SplitHostPort(s)
	switch {
	case strings.ContainsAny(s, "/@ \t\n"):
		return "", errors.New("an address has no scheme, no credentials and no path")
	case err != nil:
		return "", errors.New("the port is missing, or an IPv6 address stands without brackets")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || strconv.FormatUint(n, 10) != port {
		return "", errors.New("the port is not a number up to 65535")
	}
	return Address(net.JoinHostPort(host, port)), nil
}

// UnmarshalText reads an address.
func (a *Address) UnmarshalText(text []byte) (err error) {
	*a, err = ParseAddress(string(text))
	return err
}

func (a Address) String() string { return string(a) }

// Host is the part before the port, without brackets.
func (a Address) Host() string {
	host, _, _ := net.SplitHostPort(string(a))
	return host
}

// Form says what an address looks like.
func (Address) Form() string { return "host:port" }

// Pattern is what an address matches.
func (Address) Pattern() string { return `^[^\s/@]*:[0-9]{1,5}$` }
