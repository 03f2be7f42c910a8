//go:build linux && amd64

package netlab

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"time"
)

// Clock is the wall clock of one running Go program, which can be set as an operator or NTP sets a machine's: time.Now jumps, and its
// monotonic part, timers and all other processes stay as they are.
//
// A Go program reads both clocks through a function of the vDSO, a small library that the kernel maps into each process, and keeps that
// function's address in a variable. A function of ours, laid into the unused end of the process's own copy of the vDSO, calls the
// kernel's and adds an offset to what it says of the wall clock; the variable is changed to point to it. Both the variable and the
// offset are aligned words that are written whole, so the program need not be stopped for it. It works on amd64.
type Clock struct {
	pid    int
	offset int64 // where the offset in seconds is
}

// shim is the function of ours, clock_gettime(edi clock, rsi *timespec), with the offset behind it.
var shim = []byte{
	0x57, 0x56, 0x50, // push rdi; push rsi; push rax, so that the stack is aligned for the call
	0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, // mov rax, the kernel's function
	0xff, 0xd0, // call rax
	0x59, 0x5e, 0x5f, // pop rcx; pop rsi; pop rdi
	0x85, 0xff, // test edi, edi: the wall clock is number 0
	0x75, 0x0a, // jne to the ret
	0x48, 0x8b, 0x0d, shimOffset - 29, 0, 0, 0, // mov rcx, [the offset], which is so far from here
	0x48, 0x01, 0x0e, // add [rsi], rcx: the seconds
	0xc3, // ret
}

// Places within the shim.
const (
	shimTarget = 5  // the address of the kernel's function
	shimOffset = 40 // the offset, aligned
	shimSize   = 48
)

// NewClock takes hold of the wall clock of a process.
func NewClock(pid int) (*Clock, error) {
	c, err := takeClock(pid)
	if err != nil {
		return nil, fmt.Errorf("netlab: take hold of the clock of process %d: %w", pid, err)
	}
	return c, nil
}

func takeClock(pid int) (*Clock, error) {
	areas, err := readAreas(pid)
	if err != nil {
		return nil, err
	}
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer mem.Close()
	function, room, err := findFunction(mem, areas)
	if err != nil {
		return nil, err
	}
	variables, err := findVariable(mem, areas, function)
	if err != nil {
		return nil, err
	}
	return &Clock{pid, room + shimOffset}, install(mem, function, room, variables)
}

// install lays the function down before anything points to it.
func install(mem *os.File, function, room int64, variables []int64) error {
	code := bytes.Clone(shim)
	binary.LittleEndian.PutUint64(code[shimTarget:], uint64(function))
	if _, err := mem.WriteAt(append(code, make([]byte, shimSize-len(code))...), room); err != nil {
		return fmt.Errorf("write into the vDSO: %w", err)
	}
	for _, v := range variables {
		if _, err := mem.WriteAt(binary.LittleEndian.AppendUint64(nil, uint64(room)), v); err != nil {
			return fmt.Errorf("change the pointer to the vDSO: %w", err)
		}
	}
	return nil
}

// Set makes the wall clock differ from the true one by offset, in whole seconds.
func (c *Clock) Set(offset time.Duration) error {
	if offset%time.Second != 0 {
		return fmt.Errorf("netlab: a clock is set by whole seconds, not by %v", offset)
	}
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", c.pid), os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("netlab: set the clock of process %d: %w", c.pid, err)
	}
	defer mem.Close()
	if _, err := mem.WriteAt(binary.LittleEndian.AppendUint64(nil, uint64(offset/time.Second)), c.offset); err != nil {
		return fmt.Errorf("netlab: set the clock of process %d: %w", c.pid, err)
	}
	return nil
}

// area is a line of /proc/PID/maps.
type area struct {
	from, to int64
	rights   string
	name     string
}

func readAreas(pid int) (out []area, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		var from, to uint64
		if _, err := fmt.Sscanf(fields[0], "%x-%x", &from, &to); err != nil {
			return nil, fmt.Errorf("read %q: %w", line, err)
		}
		if to > math.MaxInt64 {
			continue // the kernel's half
		}
		a := area{from: int64(from), to: int64(to), rights: fields[1]}
		if len(fields) > 5 {
			a.name = fields[5]
		}
		out = append(out, a)
	}
	return out, nil
}

func (a area) read(mem *os.File) ([]byte, error) {
	b := make([]byte, a.to-a.from)
	if _, err := mem.ReadAt(b, a.from); err != nil {
		return nil, fmt.Errorf("read the memory at %x: %w", a.from, err)
	}
	return b, nil
}

// findFunction finds the vDSO's clock_gettime, and room at the vDSO's end.
func findFunction(mem *os.File, areas []area) (function, room int64, err error) {
	for _, a := range areas {
		if a.name != "[vdso]" {
			continue
		}
		image, err := a.read(mem)
		if err != nil {
			return 0, 0, err
		}
		end := len(image) - shimSize
		if len(bytes.Trim(image[end:], "\x00")) > 0 {
			return 0, 0, errors.New("no room at the end of the vDSO, or the clock was taken before")
		}
		offset, err := symbol(image)
		return a.from + offset, a.from + int64(end), err
	}
	return 0, 0, errors.New("it has no vDSO")
}

func symbol(image []byte) (int64, error) {
	lib, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return 0, fmt.Errorf("read the vDSO: %w", err)
	}
	symbols, err := lib.DynamicSymbols()
	if err != nil {
		return 0, fmt.Errorf("read the vDSO: %w", err)
	}
	for _, s := range symbols {
		if s.Name == "__vdso_clock_gettime" {
			return int64(s.Value), nil
		}
	}
	return 0, errors.New("the vDSO has no clock_gettime")
}

// findVariable finds the words of the program's data that hold the function's address: its initialised data is mapped from the file, the rest follows.
func findVariable(mem *os.File, areas []area, function int64) (at []int64, err error) {
	for i, a := range areas {
		follows := i > 0 && areas[i-1].to == a.from && a.name == ""
		if !strings.HasPrefix(a.rights, "rw") || !strings.HasPrefix(a.name, "/") && !follows {
			continue
		}
		data, err := a.read(mem)
		if err != nil {
			return nil, err
		}
		for o := 0; o+8 <= len(data); o += 8 {
			if binary.LittleEndian.Uint64(data[o:]) == uint64(function) {
				at = append(at, a.from+int64(o))
			}
		}
	}
	if len(at) == 0 {
		return nil, errors.New("nothing in its data points to the vDSO's clock_gettime: it is no Go program, or not yet started")
	}
	return at, nil
}
