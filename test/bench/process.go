package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// cost is what some work took of the process that did it.
type cost struct {
	cpu     time.Duration // user and system
	wall    time.Duration
	mallocs float64
}

// perCPUSecond is n by seconds of processor time.
func (c cost) perCPUSecond(n int) float64 { return float64(n) / c.cpu.Seconds() }

// perSecond is n by seconds.
func (c cost) perSecond(n int) float64 { return float64(n) / c.wall.Seconds() }

// measure is what f costs this process. Nothing else runs in it meanwhile.
func measure(f func() error) (c cost, err error) {
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begin, cpu := time.Now(), ownCPU()
	err = f()
	c.cpu, c.wall = ownCPU()-cpu, time.Since(begin)
	runtime.ReadMemStats(&after)
	c.mallocs = float64(after.Mallocs - before.Mallocs)
	return c, err
}

func ownCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // only a wrong argument fails
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// procFile reads a file of another process.
func procFile(pid int, name string) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
	if err != nil {
		return ""
	}
	return string(b)
}

// field finds "name: number" in a file such as status or io; 0 where it is not there.
func field(text, name string) int64 {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			if fields := strings.Fields(rest); len(fields) > 0 {
				n, _ := strconv.ParseInt(fields[0], 10, 64)
				return n
			}
		}
	}
	return 0
}

// tick is the unit of times in /proc/PID/stat; Linux fixes it for programs.
const tick = 10 * time.Millisecond

// cpuOf is the processor time in the text of /proc/PID/stat.
func cpuOf(stat string) time.Duration {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:]) // the name in front may hold anything
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * tick
}

// activity is how often a process has asked the kernel for something, as far as the kernel counts it for everybody.
type activity struct {
	at     time.Time
	cpu    time.Duration
	io     int64 // reads and writes
	sleeps int64 // times that a thread waited
	rss    int64 // bytes
	stored int64 // bytes given to the disk
}

func activityOf(pid int) activity {
	io := procFile(pid, "io")
	a := activity{at: time.Now(), cpu: cpuOf(procFile(pid, "stat")), io: field(io, "syscr") + field(io, "syscw"), rss: field(procFile(pid, "status"), "VmRSS") << 10,
		stored: field(io, "write_bytes")}
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	for _, task := range tasks {
		if b, err := os.ReadFile(task); err == nil {
			a.sleeps += field(string(b), "voluntary_ctxt_switches")
		}
	}
	return a
}
