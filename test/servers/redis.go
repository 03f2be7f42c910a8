package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// RedisServer is a Redis, or a Valkey, that syncs its log before it answers.
type RedisServer struct {
	dir     string
	ports   *ports
	program string
	process *process
}

// Redis starts a server with an append-only file that is synced at each turn of its loop (appendfsync always) and no snapshots. Its files lie
// below dir, so that they are on the disk that something is compared with. Close it.
func Redis(ctx context.Context, dir string) (*RedisServer, error) {
	program, err := installRedis(ctx)
	if err != nil {
		return nil, err
	}
	s := &RedisServer{program: program}
	if s.dir, err = os.MkdirTemp(dir, "redis-"); err != nil {
		return nil, fmt.Errorf("make the folder of Redis: %w", err)
	}
	if s.ports, err = reservePorts(1); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.process = &process{name: "Redis", command: s.command, death: syscall.SIGKILL, log: filepath.Join(s.dir, "redis.log"), ready: s.answers, limit: time.Minute}
	if err := s.process.start(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// command runs the program under the name that makes it a server: Debian packs one program under several.
func (s *RedisServer) command() *exec.Cmd {
	return &exec.Cmd{Path: s.program, Args: []string{"redis-server", "--port", strconv.Itoa(s.ports.numbers[0]), "--bind", "127.0.0.1",
		"--dir", s.dir, "--save", "", "--appendonly", "yes", "--appendfsync", "always"}, Dir: s.dir}
}

func (s *RedisServer) answers(ctx context.Context) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", s.Address())
	if err != nil {
		return err
	}
	return c.Close()
}

// Address is host:port.
func (s *RedisServer) Address() string { return loopback(s.ports.numbers[0]) }

// Close ends the server and removes its files.
func (s *RedisServer) Close() error {
	var errs []error
	if s.process != nil {
		errs = append(errs, s.process.stop(syscall.SIGTERM))
	}
	if s.ports != nil {
		s.ports.release()
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}

// installRedis returns the server's program. Where there is none Debian's is installed, without the package that would start it.
func installRedis(ctx context.Context) (string, error) {
	if program := findRedis(); program != "" {
		return program, nil
	}
	if os.Geteuid() != 0 {
		return "", errors.New("Redis is missing: apt-get install redis-tools")
	}
	if _, err := need("Redis", "apt-get", "install redis-server or valkey-server"); err != nil {
		return "", err
	}
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	unlock, err := lockFile(ctx, filepath.Join(cache, "apt.lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	fmt.Fprintln(os.Stderr, "servers: installing Debian's redis-tools (once)")
	env := []string{"DEBIAN_FRONTEND=noninteractive"}
	for _, args := range [][]string{{"update", "-q"}, {"install", "-q", "-y", "--no-install-recommends", "redis-tools"}} {
		if err := runTool(ctx, env, "apt-get", args...); err != nil {
			return "", fmt.Errorf("install Redis: %w", err)
		}
	}
	if program := findRedis(); program != "" {
		return program, nil
	}
	return "", errors.New("Redis is missing although apt-get has installed redis-tools")
}

func findRedis() string {
	for _, name := range []string{"redis-server", "valkey-server", "redis-check-rdb"} {
		if program, err := exec.LookPath(name); err == nil {
			return program
		}
	}
	return ""
}
