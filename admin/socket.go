package admin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// socketName is the socket's name in the data directory.
const socketName = "twgd.sock"

// longest is what a path of a unix socket may have: 108 bytes with the zero at its end.
const longest = 107

// socketPath is where the socket of a data directory lies.
func socketPath(dataDir string) (string, error) {
	path := filepath.Join(dataDir, socketName)
	if len(path) > longest {
		return "", fmt.Errorf("the path %s has %d bytes, and that of a unix socket at most %d: use a shorter data_dir, or a symbolic link to it", path, len(path), longest)
	}
	return path, nil
}

// listenSocket makes the socket, in place of one that a dead process left. The caller holds the lock of the data directory, so
// that no other process does the same at this moment.
func listenSocket(dataDir string) (net.Listener, error) {
	path, err := socketPath(dataDir)
	if err != nil {
		return nil, err
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	l, err := (&net.ListenConfig{Control: ownerOnly}).Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, fmt.Errorf("making the socket: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil { // where ownerOnly does nothing
		return nil, errors.Join(fmt.Errorf("making the socket private: %w", err), l.Close())
	}
	return l, nil
}

// ownerOnly sets the mode before the file exists: on Linux the file gets the mode of the descriptor, so that there is no moment
// at which others could connect. Elsewhere it is refused, and the mode is set right after.
func ownerOnly(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) { _ = syscall.Fchmod(int(fd), 0o600) })
}

// removeStale removes a socket that nobody listens on. It touches nothing else: neither a socket that answers, nor a file that
// is no socket.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("looking for a socket: %w", err)
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s is in the way, and is no socket", path)
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		return errors.Join(fmt.Errorf("another process listens on %s", path), conn.Close())
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("asking who listens on the socket: %w", err)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("removing the socket of a process that is gone: %w", err)
	}
	return nil
}
