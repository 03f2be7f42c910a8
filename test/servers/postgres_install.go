package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
)

// installPostgres returns the folder of the newest PostgreSQL's programs; where there is none, Debian's is installed.
func installPostgres(ctx context.Context) (bin string, err error) {
	if bin := newestPostgres(); bin != "" {
		return bin, nil
	}
	if os.Geteuid() != 0 {
		return "", errors.New("PostgreSQL is missing: apt-get install postgresql")
	}
	if _, err := need("PostgreSQL", "apt-get", "install PostgreSQL 15 or newer below /usr/lib/postgresql"); err != nil {
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
	if bin := newestPostgres(); bin != "" {
		return bin, nil
	}
	if err := aptPostgres(ctx); err != nil {
		return "", fmt.Errorf("install PostgreSQL: %w", err)
	}
	if bin := newestPostgres(); bin != "" {
		return bin, nil
	}
	return "", errors.New("PostgreSQL is missing below /usr/lib/postgresql although apt-get has installed it")
}

// aptPostgres installs Debian's package. The package would also make and start a cluster of its own: postgresql-common comes first and is told not to.
func aptPostgres(ctx context.Context) error {
	fmt.Fprintln(os.Stderr, "servers: installing Debian's postgresql (once)")
	env := []string{"DEBIAN_FRONTEND=noninteractive"}
	if err := runTool(ctx, env, "apt-get", "update", "-q"); err != nil {
		return err
	}
	if err := runTool(ctx, env, "apt-get", "install", "-q", "-y", "--no-install-recommends", "postgresql-common"); err != nil {
		return err
	}
	const folder = "/etc/postgresql-common/createcluster.d"
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("switch the package's own cluster off: %w", err)
	}
	if err := os.WriteFile(filepath.Join(folder, "twgd-test.conf"), []byte("create_main_cluster = false\n"), 0o644); err != nil {
		return fmt.Errorf("switch the package's own cluster off: %w", err)
	}
	return runTool(ctx, env, "apt-get", "install", "-q", "-y", "--no-install-recommends", "postgresql")
}

func newestPostgres() string {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if len(found) == 0 {
		return ""
	}
	version := func(path string) int {
		n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
		return n
	}
	slices.SortFunc(found, func(a, b string) int { return version(a) - version(b) })
	return filepath.Dir(found[len(found)-1])
}

// postgresAccount is who runs the server: user postgres where we are root.
func postgresAccount() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("PostgreSQL needs the account postgres, since root may not run it: %w", err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("read the account postgres: %w", err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, err
}

// postgresFolder makes the server's folder, and sees to it that the account reaches it.
func postgresFolder(account *syscall.Credential) (string, error) {
	dir, err := os.MkdirTemp("", "twgd-postgres-")
	if err != nil || account == nil {
		return dir, err
	}
	if err := os.Chown(dir, int(account.Uid), int(account.Gid)); err != nil {
		return dir, fmt.Errorf("give PostgreSQL its folder: %w", err)
	}
	for up := filepath.Dir(dir); up != "/"; up = filepath.Dir(up) {
		info, err := os.Stat(up)
		if err != nil {
			return dir, err
		}
		if info.Mode()&0o001 == 0 {
			return dir, fmt.Errorf("the account postgres cannot enter %s, where temporary files go: chmod o+x it or set TMPDIR", up)
		}
	}
	return dir, nil
}
