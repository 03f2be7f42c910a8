//go:build linux

package netlab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Disk is a file system in memory of a given size. It is mounted nowhere: processes of this user reach it by Dir while this process lives.
type Disk struct {
	Dir  string
	fd   int
	fill string
}

// NewDisk makes one.
func NewDisk(bytes int64) (*Disk, error) {
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("netlab: make a disk: %w", err)
	}
	defer unix.Close(fs)
	if err := errors.Join(unix.FsconfigSetString(fs, "size", strconv.FormatInt(bytes, 10)), unix.FsconfigCreate(fs)); err != nil {
		return nil, fmt.Errorf("netlab: make a disk of %d bytes: %w", bytes, err)
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("netlab: make a disk: %w", err)
	}
	dir := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd)
	return &Disk{Dir: dir, fd: fd, fill: filepath.Join(dir, "ballast")}, nil
}

// Fill writes until there is no room left but for spare bytes.
func (d *Disk) Fill(spare int64) error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(d.fd, &st); err != nil {
		return fmt.Errorf("netlab: look at the disk: %w", err)
	}
	f, err := os.OpenFile(d.fill, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("netlab: fill the disk: %w", err)
	}
	defer f.Close()
	room := int64(st.Bavail)*st.Bsize - spare
	if _, err := f.Write(make([]byte, max(0, room))); err != nil && !errors.Is(err, unix.ENOSPC) {
		return fmt.Errorf("netlab: fill the disk: %w", err)
	}
	return nil
}

// Free takes away what Fill wrote.
func (d *Disk) Free() error { return os.Remove(d.fill) }

// Close gives the disk up; it ends when no process uses it any more.
func (d *Disk) Close() error { return unix.Close(d.fd) }

// Brake slows what processes write through to the disk that a directory lies on. It is a control group, named after this process.
type Brake struct{ group string }

// brakes is where control groups of version 1 for block devices are.
const brakes = "/sys/fs/cgroup/blkio"

// NewBrake makes a brake of so many bytes and write operations a second. It needs version 1 of control groups, and a directory on a block device.
func NewBrake(dir string, bytes, operations int) (*Brake, error) {
	if _, err := os.Stat(brakes + "/cgroup.procs"); err != nil {
		return nil, fmt.Errorf("netlab: a slow disk needs the blkio controller of cgroups version 1 at %s", brakes)
	}
	device, err := deviceOf(dir)
	if err != nil {
		return nil, err
	}
	sweepBrakes()
	group, err := os.MkdirTemp(brakes, fmt.Sprintf("twgd-lab-%d-", os.Getpid()))
	if err != nil {
		return nil, fmt.Errorf("netlab: make a control group: %w", err)
	}
	b := &Brake{group}
	err = errors.Join(b.write("blkio.throttle.write_bps_device", fmt.Sprintf("%s %d", device, bytes)),
		b.write("blkio.throttle.write_iops_device", fmt.Sprintf("%s %d", device, operations)))
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// deviceOf is the block device below a directory, as major:minor.
func deviceOf(dir string) (string, error) {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return "", fmt.Errorf("netlab: look at %s: %w", dir, err)
	}
	device := fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev))
	if _, err := os.Stat("/sys/dev/block/" + device); err != nil {
		return "", fmt.Errorf("netlab: %s lies on no block device (%s), so it cannot be slowed", dir, device)
	}
	return device, nil
}

// sweepBrakes removes the groups of processes that are gone.
func sweepBrakes() {
	groups, _ := filepath.Glob(brakes + "/twgd-lab-*-*")
	for _, g := range groups {
		pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(g), "twgd-lab-"), "-")
		if _, err := os.Stat("/proc/" + pid); err != nil {
			_ = os.Remove(g) // one that still has processes stays
		}
	}
}

// Take puts a process under the brake.
func (b *Brake) Take(pid int) error { return b.write("cgroup.procs", strconv.Itoa(pid)) }

// Close removes the brake. The processes under it must have ended.
func (b *Brake) Close() error { return os.Remove(b.group) }

func (b *Brake) write(file, text string) error {
	if err := os.WriteFile(filepath.Join(b.group, file), []byte(text), 0o644); err != nil {
		return fmt.Errorf("netlab: slow a disk: %w", err)
	}
	return nil
}
