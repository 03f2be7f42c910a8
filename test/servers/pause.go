package servers

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// guard holds a process and its children stopped, and lets them go on when it is released or when we die: a stopped process takes no notice
// of its parent's death, so a small shell waits for the end of our pipe and then continues them. They end by themselves after that.
type guard struct {
	pids []int
	cmd  *exec.Cmd
	hold *os.File // the pipe's end: closing it is the release
}

// pauseFamily stops a process and its children. The parent is stopped first, so that no further child appears.
func pauseFamily(pid int) (*guard, error) {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return nil, fmt.Errorf("pause process %d: %w", pid, err)
	}
	pids, err := children(pid)
	g := &guard{pids: append([]int{pid}, pids...)}
	if err := errors.Join(err, g.arm()); err != nil {
		return nil, errors.Join(err, g.signal(syscall.SIGCONT))
	}
	return g, g.signal(syscall.SIGSTOP)
}

// arm starts the shell.
func (g *guard) arm() error {
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make the pause's guard: %w", err)
	}
	defer r.Close()
	args := []string{"-c", `read -r gone; kill -CONT "$@" 2>/dev/null`, "guard"}
	for _, pid := range g.pids {
		args = append(args, strconv.Itoa(pid))
	}
	g.cmd, g.hold = exec.Command("sh", args...), w
	g.cmd.Stdin = r
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := g.cmd.Start(); err != nil {
		w.Close()
		return fmt.Errorf("start the pause's guard: %w", err)
	}
	return nil
}

// release continues the family and ends the shell.
func (g *guard) release() error {
	err := g.signal(syscall.SIGCONT)
	g.hold.Close()
	g.cmd.Wait() // its status is that of a second, needless continue
	return err
}

func (g *guard) signal(sig syscall.Signal) error {
	var errs []error
	for _, pid := range g.pids {
		if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			errs = append(errs, fmt.Errorf("send %v to process %d: %w", sig, pid, err))
		}
	}
	return errors.Join(errs...)
}

// children lists the processes whose parent is pid.
func children(pid int) ([]int, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	var found []int
	for _, stat := range stats {
		b, err := os.ReadFile(stat)
		if err != nil {
			continue // it has ended
		}
		fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:])) // state, parent, …
		number, _ := strconv.Atoi(filepath.Base(filepath.Dir(stat)))
		if len(fields) > 1 && fields[1] == strconv.Itoa(pid) {
			found = append(found, number)
		}
	}
	return found, nil
}
