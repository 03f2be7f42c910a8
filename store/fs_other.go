//go:build unix && !linux

package store

// Datasync syncs everything: only on Linux is fdatasync known to cover the size.
func (f osFile) Datasync() error { return f.Sync() }
