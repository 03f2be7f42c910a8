//go:build linux

package netlab

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// openDevice makes a TUN device with that address in a network of 256, in the namespace of the calling thread, and brings it and the
// loopback up. What the device's host sends is read from it, one packet a read.
func openDevice(name string, addr netip.Addr) (*os.File, error) {
	f, err := openTUN(name)
	if err != nil {
		return nil, fmt.Errorf("make device %s: %w", name, err)
	}
	if err := configure(name, addr); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// openTUN attaches to the device before the file is handed to the poller: an unattached one is always in error.
func openTUN(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	req, err := unix.NewIfreq(name)
	if err == nil {
		req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
	}
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), name), nil
}

func configure(name string, addr netip.Addr) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("configure %s: %w", name, err)
	}
	defer unix.Close(fd)
	ip := addr.As4()
	return errors.Join(
		setAddress(fd, name, unix.SIOCSIFADDR, ip[:]),
		setAddress(fd, name, unix.SIOCSIFNETMASK, []byte{255, 255, 255, 0}),
		setQueue(fd, name, 5000), // the default of 500 drops under a burst that a real card would take
		setUp(fd, name), setUp(fd, "lo"))
}

func setAddress(fd int, name string, request uint, ip []byte) error {
	req, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	if err := req.SetInet4Addr(ip); err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, request, req); err != nil {
		return fmt.Errorf("give %s the address %v: %w", name, ip, err)
	}
	return nil
}

func setQueue(fd int, name string, packets uint32) error {
	req, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	req.SetUint32(packets)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFTXQLEN, req); err != nil {
		return fmt.Errorf("lengthen the queue of %s: %w", name, err)
	}
	return nil
}

func setUp(fd int, name string) error {
	req, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, req); err != nil {
		return fmt.Errorf("look at %s: %w", name, err)
	}
	req.SetUint16(req.Uint16() | unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req); err != nil {
		return fmt.Errorf("bring %s up: %w", name, err)
	}
	return nil
}
