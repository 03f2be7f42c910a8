package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestValidateTriesTheBackups(t *testing.T) {
	l := newLab(t)
	dir := t.TempDir()
	f := func(backup string, code int, want ...string) {
		t.Helper()
		file := filepath.Join(dir, "twgd.yaml")
		l.must(os.WriteFile(file, []byte("node: {id: n1, data_dir: "+dir+"}\ncluster: {name: prod, size: 1, backup: {"+backup+"}}\n"), 0o600))
		l.wants(code, want, "validate", "-c", file, "--connect")
	}
	f(`every: 1m`, exitDone, "valid")
	f(`to: "file://`+dir+`/backups"`, exitDone, "cluster: backup: ok", "valid")
	f(`to: "file://`+dir+`/backups", identity_file: `+dir+`/none`, exitFailed, "cluster: backup: ", "/none: no such file")
	f(`to: "file:///proc/none/backups"`, exitFailed, "cluster: backup: ")
	f(`to: "file://`+dir+`/backups", encrypt_to: [age1nothing]`, exitUsage, "encrypt_to[0]", "age1")
}
