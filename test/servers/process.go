package servers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// grace is how long a server may take to stop before it is killed, and that reported.
const grace = 60 * time.Second

// process is one server program that can be started, stopped and started again. It is signalled through its own process handle only, so that
// a number which the system has given to another process meanwhile is never hit.
type process struct {
	name    string
	command func() *exec.Cmd            // a fresh one for each start
	death   syscall.Signal              // what the kernel sends it when we die
	log     string                      // file that takes its output, appended to
	ready   func(context.Context) error // nil when the server answers
	limit   time.Duration               // for becoming ready

	mu    sync.Mutex
	child *Child // nil while stopped
}

// start starts the program and waits until it is ready. A program that runs already is left alone.
func (p *process) start(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.child != nil && !p.child.Ended() {
		return nil
	}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open the log of %s: %w", p.name, err)
	}
	defer log.Close()
	cmd := p.command()
	cmd.Stdout, cmd.Stderr = log, log
	c, err := Spawn(cmd, p.death)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	p.child = c
	if err := p.await(ctx, c); err != nil {
		return errors.Join(err, p.end(syscall.SIGKILL))
	}
	return nil
}

func (p *process) await(ctx context.Context, c *Child) error {
	ctx, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	go func() {
		select {
		case <-c.exited:
			cancel()
		case <-ctx.Done():
		}
	}()
	err := poll(ctx, 50*time.Millisecond, p.ready)
	if c.Ended() {
		return fmt.Errorf("%s ended while starting (%v); the end of its log:\n%s", p.name, c.err, tail(p.log, 3000))
	}
	if err != nil {
		return fmt.Errorf("%s is not ready: %w; the end of its log:\n%s", p.name, err, tail(p.log, 3000))
	}
	return nil
}

// stop ends the program by sig and waits for its end. A program that does not run is no error.
func (p *process) stop(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.end(sig)
}

// end does the work of stop; p.mu is held.
func (p *process) end(sig syscall.Signal) error {
	if p.child == nil {
		return nil
	}
	c := p.child
	p.child = nil
	c.Signal(sig)
	c.Signal(syscall.SIGCONT)
	if c.Wait(grace) {
		return nil
	}
	c.Signal(syscall.SIGKILL)
	if !c.Wait(grace) {
		return fmt.Errorf("%s (pid %d) survives SIGKILL", p.name, c.PID)
	}
	return fmt.Errorf("%s did not stop within %v of %v and was killed", p.name, grace, sig)
}

// signal sends sig to the running program.
func (p *process) signal(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.child == nil || p.child.Ended() {
		return fmt.Errorf("send %v to %s: it does not run", sig, p.name)
	}
	return p.child.Signal(sig)
}

// pid is 0 while the program is stopped.
func (p *process) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.child == nil || p.child.Ended() {
		return 0
	}
	return p.child.PID
}

// Child is one run of a program that ends with us.
type Child struct {
	PID     int
	process *os.Process
	exited  chan struct{}
	err     error // how it ended; read it after exited is closed
}

// Spawn starts cmd in a process group of its own. The kernel's parent-death signal is bound to the thread that forked, so that thread is
// kept by a goroutine until the child has ended.
func Spawn(cmd *exec.Cmd, death syscall.Signal) (*Child, error) {
	return SpawnAt(cmd, death, func() error { return nil })
}

// SpawnAt is Spawn from a thread that has gone through enter, such as into a namespace, which the child inherits. The thread is not used for
// anything else afterwards.
func SpawnAt(cmd *exec.Cmd, death syscall.Signal, enter func() error) (*Child, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	cmd.SysProcAttr.Pdeathsig = death
	started := make(chan error, 1)
	c := &Child{exited: make(chan struct{})}
	go func() {
		runtime.LockOSThread()
		if err := enter(); err != nil {
			started <- err
			return
		}
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		c.PID, c.process = cmd.Process.Pid, cmd.Process
		started <- nil
		c.err = cmd.Wait()
		close(c.exited)
	}()
	return c, <-started
}

// outputs runs cmd to its end on a thread that is kept, for the reason that spawn gives.
func outputs(cmd *exec.Cmd) (stdout, stderr []byte, err error) {
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		done <- cmd.Run()
	}()
	err = <-done
	return out.Bytes(), errs.Bytes(), err
}

// combined is outputs in one.
func combined(cmd *exec.Cmd) ([]byte, error) {
	stdout, stderr, err := outputs(cmd)
	return append(stdout, stderr...), err
}

// Signal sends sig, also to a child that is stopped; of one that has ended it is an error.
func (c *Child) Signal(sig syscall.Signal) error { return c.process.Signal(sig) }

// Ended reports whether the program has ended.
func (c *Child) Ended() bool {
	select {
	case <-c.exited:
		return true
	default:
		return false
	}
}

// Wait waits for the program to end, for limit at most, and reports whether it has.
func (c *Child) Wait(limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-c.exited:
		return true
	case <-timer.C:
		return false
	}
}

// Code is the program's exit code, -1 where a signal ended it. It may be asked once the program has ended.
func (c *Child) Code() int {
	var exit *exec.ExitError
	switch {
	case c.err == nil:
		return 0
	case errors.As(c.err, &exit):
		return exit.ExitCode()
	}
	return -1
}
