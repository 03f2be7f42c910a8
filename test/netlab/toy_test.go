//go:build linux

package netlab

import (
	"bufio"
	"fmt"
	"io"
	stdnet "net"
	"os"
	"os/exec"
	"strings"
	"time"
)

// The test's own binary plays the programs on the hosts: which, an environment variable says.
const toyVariable = "NETLAB_TOY"

func toy(name string, args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), toyVariable+"="+name)
	cmd.Stderr = os.Stderr
	return cmd
}

// playToy does not return where this process is a toy.
func playToy() {
	toys := map[string]func() error{"echo": echo, "clock": clock, "writer": writer, "lab": idleLab}
	play, ok := toys[os.Getenv(toyVariable)]
	if !ok {
		return
	}
	if err := play(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// echo answers what it is sent, over TCP and UDP.
func echo() error {
	l, err := stdnet.Listen("tcp4", ":7000")
	if err != nil {
		return err
	}
	u, err := stdnet.ListenPacket("udp4", ":7000")
	if err != nil {
		return err
	}
	fmt.Println("ready")
	go func() {
		b := make([]byte, 2000)
		for {
			n, from, err := u.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = u.WriteTo(b[:n], from)
		}
	}()
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() { defer c.Close(); _, _ = io.Copy(c, c) }()
	}
}

// clock prints, for each line it reads, the wall clock and the time since its start, in milliseconds.
func clock() error {
	begin := time.Now()
	fmt.Println("ready")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		now := time.Now()
		fmt.Println(now.UnixMilli(), now.Sub(begin).Milliseconds())
	}
	return nil
}

// writer writes 20 blocks of 4 KiB through to the disk in the directory it is given, after each line it reads, and says how long that took.
func writer() error {
	f, err := os.CreateTemp(os.Args[1], "writer-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	fmt.Println("ready")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		begin := time.Now()
		for range 20 {
			if _, err := f.WriteString(strings.Repeat("x", 4096)); err != nil {
				return err
			}
			if err := f.Sync(); err != nil {
				return err
			}
		}
		fmt.Println(time.Since(begin).Milliseconds())
	}
	return nil
}

// idleLab makes a lab of two hosts with a process on each, prints their ids, and waits.
func idleLab() error {
	l, err := New(2)
	if err != nil {
		return err
	}
	var pids []any
	for i := 1; i <= 2; i++ {
		c, err := l.Host(i).Start(toy("echo"))
		if err != nil {
			return err
		}
		pids = append(pids, c.PID)
	}
	fmt.Println(pids...)
	select {}
}
