package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// node is twgd, running.
type node struct {
	cmd   *exec.Cmd
	url   string
	log   string // file
	began time.Time
	ended chan struct{}
}

// startNode runs twgd with a configuration of its own below dir, which stream ends: the YAML of one stream. It returns when twgd is ready.
func startNode(ctx context.Context, program, dir, stream string, env []string) (*node, error) {
	n, err := launch(program, dir, "id: bench, shutdown_grace: 2m", "streams:\n"+stream, env)
	if err != nil {
		return nil, err
	}
	return n, n.awaitReady(ctx)
}

// launch runs twgd with a configuration of its own below dir: keys are those of its node beside the data directory and the address,
// rest is what follows.
func launch(program, dir, keys, rest string, env []string) (*node, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "twgd.yaml")
	text := fmt.Sprintf("node: {%s, data_dir: %s/data, http: %q}\n%s", keys, dir, address, rest)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	n := &node{url: "http://" + address, log: filepath.Join(dir, "twgd.log"), ended: make(chan struct{})}
	log, err := os.Create(n.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	n.cmd = exec.Command(program, "run", "-c", file)
	n.cmd.Stderr, n.cmd.Env = log, append(os.Environ(), env...)
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	n.began = time.Now()
	if err := n.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start twgd (make build): %w", err)
	}
	go func() {
		n.cmd.Wait()
		close(n.ended)
	}()
	return n, nil
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

func (n *node) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		if resp, err := http.Get(n.url + "/ready"); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		if err := n.sleep(ctx, 50*time.Millisecond); err != nil {
			return fmt.Errorf("twgd does not become ready: %w", errors.Join(err, n.kill(), n.logTail()))
		}
	}
}

// sleep waits; it is an error if twgd or ctx ends meanwhile.
func (n *node) sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-n.ended:
		return errors.New("twgd has ended")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// kill ends the process at once. One that has ended already is no error.
func (n *node) kill() error {
	n.cmd.Process.Kill()
	<-n.ended
	return nil
}

// logTail is the end of the log as an error, to be joined to another.
func (n *node) logTail() error {
	b, _ := os.ReadFile(n.log)
	return errors.New("the log ends:\n" + string(b[max(0, len(b)-2000):]))
}

// used is what a run took from its start to its end.
type used struct {
	cpu  time.Duration
	peak int64 // bytes of memory

	mallocs float64 // until it was told to end; only of an idle pass
}

// stop ends twgd by SIGTERM, which makes it store all that it holds, and returns what it used.
func (n *node) stop() (u used, err error) {
	pid := n.cmd.Process.Pid
	n.cmd.Process.Signal(syscall.SIGTERM)
	for limit := time.After(2 * time.Minute); ; {
		if hwm := field(procFile(pid, "status"), "VmHWM") << 10; hwm > 0 {
			u.peak = hwm
		}
		select {
		case <-n.ended:
			state := n.cmd.ProcessState
			u.cpu = state.UserTime() + state.SystemTime()
			if !state.Success() {
				err = fmt.Errorf("twgd ends with %v: %w", state, n.logTail())
			}
			return u, err
		case <-time.After(10 * time.Millisecond):
		case <-limit:
			return u, errors.Join(errors.New("twgd does not end"), n.kill(), n.logTail())
		}
	}
}

// metrics are the values of /metrics by name, summed over labels.
func (n *node) metrics() (map[string]float64, error) {
	resp, err := http.Get(n.url + "/metrics")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return sumMetrics(resp.Body)
}

func sumMetrics(r io.Reader) (map[string]float64, error) {
	out := map[string]float64{}
	s := bufio.NewScanner(r)
	for s.Scan() {
		line := s.Text()
		if line == "" || line[0] == '#' {
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		if at < 0 {
			return nil, fmt.Errorf("%q is no metric", line)
		}
		v, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("%q is no metric: %w", line, err)
		}
		name, _, _ := strings.Cut(line[:at], "{")
		out[name] += v
	}
	return out, s.Err()
}

// await polls until the metric has reached n, more often the nearer it comes, and returns the last metrics and how many times it
// has asked.
func (n *node) await(ctx context.Context, metric string, total float64) (m map[string]float64, asked int, err error) {
	begin, before := time.Now(), 0.0
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	for {
		if m, err = n.metrics(); err != nil {
			return nil, asked, errors.Join(err, n.logTail())
		}
		asked++
		before = 0
		for name := range strings.SplitSeq(metric, "+") {
			before += m[name]
		}
		if before >= total {
			return m, asked, nil
		}
		if err := n.sleep(ctx, nextPoll(time.Since(begin), before, total)); err != nil {
			return nil, asked, fmt.Errorf("%s is %v of %v: %w", metric, before, total, errors.Join(err, n.logTail()))
		}
	}
}

// nextPoll is how long to wait: half of what the rest would take at the rate so far.
func nextPoll(since time.Duration, have, want float64) time.Duration {
	if have <= 0 {
		return 50 * time.Millisecond
	}
	rest := time.Duration(float64(since) * (want - have) / have / 2)
	return min(max(rest, 10*time.Millisecond), 500*time.Millisecond)
}

// reading is when the first partition was read, by the log.
func (n *node) reading() (time.Time, error) {
	b, err := os.ReadFile(n.log)
	if err != nil {
		return time.Time{}, err
	}
	return firstReading(string(b))
}

func firstReading(log string) (time.Time, error) {
	for line := range strings.Lines(log) {
		if strings.Contains(line, `msg="reading a partition"`) {
			at, _, _ := strings.Cut(strings.TrimPrefix(line, "time="), " ")
			return time.Parse(time.RFC3339Nano, at)
		}
	}
	return time.Time{}, errors.New("twgd's log does not say that it reads a partition")
}
