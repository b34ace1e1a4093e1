package objstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

const newFolderMode = 0o777 // less the umask, as any tool that makes folders

func (b *fileBackend) create(ctx context.Context, key string, o CreateOptions) (sink, error) {
	final := local(key)
	if key == "" || strings.HasSuffix(key, "/") {
		return nil, fmt.Errorf("%s names a folder, not a file", final)
	}
	dir := b.tmpDir
	if dir == "" {
		dir = filepath.Dir(final)
	}
	for _, d := range []string{filepath.Dir(final), dir} {
		if err := makeFolders(d); err != nil {
			return nil, noFolder(key, d, err)
		}
	}
	if b.tmpDir != "" {
		b.swept.Do(func() { sweep(b.tmpDir) })
	}
	f, err := newTemp(func() string { return filepath.Join(dir, tmpPrefix+rand.Text()+tmpSuffix) })
	if err != nil {
		return nil, err
	}
	return &fileSink{ctx: ctx, f: f, final: final, ifAbsent: o.IfAbsent}, nil
}

// makeFolders is MkdirAll that makes the new entries durable.
func makeFolders(dir string) error {
	var created []string
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Stat(d); err == nil || !errors.Is(err, fs.ErrNotExist) || d == filepath.Dir(d) {
			break
		}
		created = append(created, filepath.Dir(d))
	}
	if err := os.MkdirAll(dir, newFolderMode); err != nil {
		return err
	}
	for _, d := range created {
		if err := syncFolder(d); err != nil {
			return err
		}
	}
	return nil
}

// noFolder words why a folder cannot be made, where the path itself is at fault: the cause alone would read as if the file
// were missing that is to be written.
func noFolder(key, dir string, err error) error {
	if !isNotDir(err) && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	e := &Error{Op: "create", URL: Location{Scheme: "file", Key: key}.String(), Err: fmt.Errorf("its folder cannot be made: %w", err)}
	for d := dir; ; d = filepath.Dir(d) {
		if fi, serr := os.Stat(d); serr == nil && !fi.IsDir() {
			e.Hint = d + " is a file, not a folder"
			return e
		} else if serr == nil || d == filepath.Dir(d) {
			return e
		}
	}
}

// fileSink writes a temporary file and links it into place.
type fileSink struct {
	ctx      context.Context
	f        *os.File
	final    string
	ifAbsent bool
}

func (k *fileSink) Write(p []byte) (int, error) {
	if err := k.ctx.Err(); err != nil {
		return 0, err
	}
	return k.f.Write(p)
}

func (k *fileSink) abort() {
	_ = k.f.Close() // the bytes are dropped anyway
	_ = os.Remove(k.f.Name())
}

func (k *fileSink) commit() error {
	tmp := k.f.Name()
	err := k.f.Sync()
	if closeBeforePlacing || err != nil {
		err = errors.Join(err, k.f.Close())
	} else {
		defer k.f.Close() // it is synced, and was locked until it had its name
	}
	if err == nil {
		err = k.ctx.Err()
	}
	if err == nil && k.ifAbsent {
		err = place(tmp, k.final)
	} else if err == nil {
		err = os.Rename(tmp, k.final)
	}
	_ = os.Remove(tmp) // gone after a rename; one that stays costs space and nothing else
	if err != nil {
		return err
	}
	return syncFolder(filepath.Dir(k.final))
}

// place gives the file at tmp the name final, or fails with ErrExists; there is no moment at which it could replace
// another file.
func place(tmp, final string) error {
	err := os.Link(tmp, final)
	if err == nil || sameFile(tmp, final) { // a network file system may lose the answer of a link that was made
		return nil
	}
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%w: %s", ErrExists, final)
	}
	if !linkUnsupported(err) {
		return err
	}
	err = renameNoReplace(tmp, final)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%w: %s", ErrExists, final)
	}
	if errors.Is(err, errors.ErrUnsupported) || linkUnsupported(err) {
		return fmt.Errorf("%w: the file system of %s has neither hard links nor a rename that never replaces, so output cannot be committed exactly once there", ErrUnsupported, final)
	}
	return err
}

func sameFile(a, b string) bool {
	x, err := os.Lstat(a)
	if err != nil {
		return false
	}
	y, err := os.Lstat(b)
	return err == nil && os.SameFile(x, y)
}

// syncFolder makes a folder's entries durable, where the system has that notion.
func syncFolder(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if isInvalid(err) { // some network file systems cannot sync a folder
		err = nil
	}
	return errors.Join(err, d.Close())
}
