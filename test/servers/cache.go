package servers

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// CacheDir is the folder that keeps what was downloaded or built between runs: ${TWGD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}}/twgd-test.
func CacheDir() (string, error) {
	if dir := os.Getenv("TWGD_CACHE"); dir != "" {
		abs, err := filepath.Abs(dir)
		return filepath.Join(abs, "twgd-test"), err
	}
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no cache folder, set TWGD_CACHE: %w", err)
	}
	return filepath.Join(base, "twgd-test"), nil
}

// marker is written last: a folder without it is an installation that was interrupted, and is made anew.
const marker = ".complete"

// installed returns the folder of that name in the cache, and fills it by install if it is not there. Processes that need it at the same
// time wait for the first one.
func installed(ctx context.Context, name string, install func(ctx context.Context, dir string) error) (string, error) {
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, name)
	if complete(dir) {
		return dir, nil
	}
	unlock, err := lockFile(ctx, dir+".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if complete(dir) {
		return dir, nil
	}
	return dir, fill(ctx, dir, install)
}

func complete(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, marker))
	return err == nil
}

func fill(ctx context.Context, dir string, install func(ctx context.Context, dir string) error) error {
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("clear an interrupted installation: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the cache folder: %w", err)
	}
	fmt.Fprintf(os.Stderr, "servers: installing %s (once)\n", filepath.Base(dir))
	if err := install(ctx, dir); err != nil {
		return fmt.Errorf("install %s: %w", filepath.Base(dir), err)
	}
	return os.WriteFile(filepath.Join(dir, marker), nil, 0o644)
}

// lockFile takes an exclusive flock, which ends with the process, and returns what gives it back.
func lockFile(ctx context.Context, path string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make the cache folder: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the lock: %w", err)
	}
	err = poll(ctx, 200*time.Millisecond, func(context.Context) error {
		return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	})
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("wait for another installation (%s): %w", path, err)
	}
	return func() { f.Close() }, nil
}

// runTool runs a command to its end; its error carries the end of what it printed, on one line. The command gets a process group of its own,
// so that when ctx ends its helpers (Maven's Java, the compilers of a build) end with it.
func runTool(ctx context.Context, env []string, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	out, err := combined(cmd)
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", filepath.Base(name), strings.Join(args, " "), err, lastLine(out))
	}
	return nil
}

func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], " | ")
}

// poll calls try at once and then every interval until it succeeds. When ctx ends first, the error tells both.
func poll(ctx context.Context, interval time.Duration, try func(context.Context) error) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-tick.C:
		}
	}
}

// tail is the end of a log file, for error messages.
func tail(path string, bytes int) string {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "(no log)"
	}
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-bytes):])
}
