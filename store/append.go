package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// AppendFile is a file that grows by one block at a time, each durable when Append returns. It has one owner, whom a
// [FileLock] beside it keeps alone; it is not safe for concurrent use. Readers need no lock: they read the file and
// ignore what is no valid block at its end.
//
// What a failure leaves behind decides everything here, so, in the order in which it goes wrong:
//
//   - A write that fails half way leaves a torn block. It is cut off; the file ends with an acknowledged block again.
//   - An fsync that fails leaves a block that is whole in the page cache, marked clean, and not on disk. A second fsync
//     would find nothing to write and succeed. So the pages are never synced again: they are cut off, which drops them
//     from the cache, and the block is written anew by the next Append.
//   - A process that dies between the two leaves such a block to its successor, which cannot tell it from a good one.
//     So [OpenAppend] writes the last block once more, over itself, and syncs: then it is on disk because it is written
//     now, whatever became of it before. Only the last block can be in that state, since nothing is ever appended
//     behind a block that is not durable.
//   - Where even the cut fails, the file is broken and its owner rolls to a new one. A valid block that was never
//     acknowledged may stay at the end of the old file: readers take the name of the next file for the truth.
//
// A cut need not be durable itself. If power fails before it is, the torn block is back, behind the acknowledged ones,
// and the next owner cuts it again; if a later Append was acknowledged, its fdatasync has made the size durable too.
type AppendFile struct {
	file File
	path string

	// size is where the last acknowledged block ends. Everything below it is on disk. The file is exactly so long
	// whenever no Append is running and broken is nil.
	size int64

	// broken is why the file takes no more blocks. It never becomes nil again.
	broken error
}

// CreateAppend makes an append file that begins with header, create-only: ErrExists where the name is taken. Its
// directory is made when missing. When it returns nil, the header and the name are durable. A name never leads to half
// a header: the file gets its name when the header is on disk. Fsys nil means the operating system's.
func CreateAppend(fsys FS, path string, header []byte) (*AppendFile, error) {
	fsys = orOS(fsys)
	dir := filepath.Dir(path)
	if err := makePath(fsys, dir); err != nil {
		return nil, refuseMissing("create", path, err)
	}
	t, err := createTemp(fsys, dir)
	if err != nil {
		return nil, refuseMissing("create", path, err)
	}
	if err := t.become(path, header); err != nil {
		t.discard()
		return nil, err
	}
	return &AppendFile{file: t.file, path: path, size: t.size}, nil
}

// become writes the header and makes the temporary file the append file: same descriptor, another name. A name that
// cannot be made durable is taken back, so that nobody goes on to append to it.
func (t *temp) become(path string, header []byte) error {
	if _, err := t.write(header); err != nil {
		return refuseMissing("create", path, err)
	}
	if err := t.sync(); err != nil {
		return refuseMissing("create", path, err)
	}
	err := t.fs.Link(t.path, path)
	if err != nil && surelyNot(err) {
		return fileError("create", path, err)
	}
	if err == nil {
		err = t.fs.SyncDir(filepath.Dir(path))
	}
	t.fs.Remove(t.path)
	if err != nil {
		t.fs.Remove(path)
		return &Error{Op: "create", Key: path, Kind: ErrUnknown, Err: err}
	}
	return nil
}

// OpenAppend opens an append file of which the caller has found the last valid block: valid is where that block ends
// and last is the block itself. What lies behind is cut off, the block is written anew and synced; then everything
// below valid may be trusted. In a file without a block, last is the header. Fsys nil means the operating system's.
func OpenAppend(fsys FS, path string, valid int64, last []byte) (*AppendFile, error) {
	fsys = orOS(fsys)
	if len(last) == 0 || int64(len(last)) > valid {
		return nil, &Error{Op: "open", Key: path, Err: fmt.Errorf("a last block of %d bytes cannot end at %d", len(last), valid)}
	}
	sweep(fsys, filepath.Dir(path))
	file, err := fsys.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, fileError("open", path, err)
	}
	f := &AppendFile{file: file, path: path, size: valid}
	if err := f.restore(last); err != nil {
		file.Close()
		return nil, refuseMissing("open", path, err)
	}
	if err := fsys.SyncDir(filepath.Dir(path)); err != nil {
		file.Close()
		return nil, refuseMissing("open", path, err)
	}
	return f, nil
}

// restore syncs with fsync, not fdatasync: it happens once, and what the last owner left is not known.
func (f *AppendFile) restore(last []byte) error {
	info, err := f.file.Stat()
	if err != nil {
		return err
	}
	if info.Size() < f.size {
		return fmt.Errorf("the file has %d bytes, fewer than the %d that were found valid", info.Size(), f.size)
	}
	if err := f.file.Truncate(f.size); err != nil {
		return err
	}
	if _, err := f.file.WriteAt(last, f.size-int64(len(last))); err != nil {
		return err
	}
	return f.file.Sync()
}

// Append writes a block at the end and returns its offset; when the error is nil the block is durable. After an error
// the block is not in the file and may be appended again, unless errors.Is(err, ErrBroken): then the owner has to go on
// in a new file. One write, one fdatasync, one fstat, no allocation.
//
// fdatasync is enough: what it may leave unwritten is times, never the size or the place of data that was just written,
// since these are needed to read it back.
func (f *AppendFile) Append(block []byte) (int64, error) {
	if f.broken != nil {
		return 0, &Error{Op: "append", Key: f.path, Kind: ErrBroken, Err: f.broken}
	}
	n, err := f.file.WriteAt(block, f.size)
	if err == nil && n < len(block) {
		err = io.ErrShortWrite
	}
	if err == nil {
		err = f.file.Datasync()
	}
	if err == nil {
		err = f.named()
	}
	if err != nil {
		return 0, f.cut(err)
	}
	off := f.size
	f.size += int64(n)
	return off, nil
}

// named makes sure that the file can be found again. One that somebody has removed takes blocks and syncs them as before, and
// nobody will ever read them.
func (f *AppendFile) named() error {
	linked, err := f.file.Linked()
	if err == nil && !linked {
		err = errors.New("somebody has removed the file")
	}
	return err
}

// cut brings the file back to its last acknowledged block.
func (f *AppendFile) cut(cause error) error {
	err := f.file.Truncate(f.size)
	if err == nil {
		return refuseMissing("append", f.path, cause)
	}
	f.broken = errors.Join(cause, fmt.Errorf("and the torn block could not be cut off: %w", err))
	return &Error{Op: "append", Key: f.path, Kind: ErrBroken, Err: f.broken}
}

// Size is where the last acknowledged block ends.
func (f *AppendFile) Size() int64 { return f.size }

// Close closes the file. All acknowledged blocks are durable already.
func (f *AppendFile) Close() error {
	if err := f.file.Close(); err != nil && !errors.Is(err, fs.ErrClosed) {
		return refuseMissing("close", f.path, err)
	}
	return nil
}

func orOS(fsys FS) FS {
	if fsys == nil {
		return OS
	}
	return fsys
}
