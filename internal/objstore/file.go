package objstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// fileBackend is the local file system. Keys are absolute paths without their first slash.
//
// A new file is written under a temporary name, synced, and then linked to its final name: link(2) fails where the name
// exists, also between processes and machines, which no rename and no check-then-write does.
type fileBackend struct {
	tmpDir string    // local path, or "" for the final name's own folder
	swept  sync.Once // of what killed processes left in tmpDir
}

const (
	tmpPrefix = ".batchmill-"
	tmpSuffix = ".tmp"
)

func newFileBackend(o Options) (backend, error) {
	b := &fileBackend{}
	if o.TmpDir != "" {
		u, err := Normalize(o.TmpDir)
		if err != nil {
			return nil, err
		}
		p, ok := LocalPath(u)
		if !ok {
			return nil, fmt.Errorf("the folder for temporary files must be local, not %s", u)
		}
		b.tmpDir = filepath.Clean(p)
	}
	return b, nil
}

func (b *fileBackend) close() error { return nil }

func local(key string) string { return Location{Scheme: "file", Key: key}.Path() }

// fileETag changes whenever a file is written or replaced, as far as the file system's clock can tell.
func fileETag(fi fs.FileInfo) string {
	return fmt.Sprintf(`"%x-%x"`, fi.ModTime().UnixNano(), fi.Size())
}

func fileEntry(key string, fi fs.FileInfo) entry {
	return entry{key: key, size: fi.Size(), etag: fileETag(fi), modTime: fi.ModTime()}
}

func (b *fileBackend) stat(_ context.Context, key string) (entry, error) {
	fi, err := os.Stat(local(key))
	if err != nil {
		return entry{}, missing(err)
	}
	if fi.IsDir() {
		return entry{}, &Error{Op: "stat", URL: Location{Scheme: "file", Key: key}.String(), Kinds: []error{ErrNotExist},
			Hint: "it is a folder: end it with a slash to read the files in it"}
	}
	if !fi.Mode().IsRegular() {
		return entry{}, &Error{Op: "stat", URL: Location{Scheme: "file", Key: key}.String(), Kinds: []error{ErrUnsupported},
			Err: fmt.Errorf("it is %s, and only a regular file can be read by range", special(fi.Mode())), Hint: "copy what it yields into a file"}
	}
	return fileEntry(key, fi), nil
}

// special names what is neither a regular file nor a folder.
func special(m fs.FileMode) string {
	switch {
	case m&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case m&fs.ModeSocket != 0:
		return "a socket"
	case m&fs.ModeDevice != 0:
		return "a device"
	}
	return "a special file (" + m.Type().String() + ")"
}

// missing makes ENOTDIR (a file where a folder should be) what it means to the caller: no such file.
func missing(err error) error {
	if isNotDir(err) {
		return fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return err
}

func (b *fileBackend) metadata(ctx context.Context, key string) (map[string]string, error) {
	_, err := b.stat(ctx, key)
	return nil, err
}

func (b *fileBackend) list(ctx context.Context, prefix string, deep bool, yield func(entry) error) error {
	dir, start := "", prefix
	if i := strings.LastIndexByte(prefix, '/'); i >= 0 {
		dir, start = prefix[:i+1], prefix[i+1:]
	}
	return b.walk(ctx, dir, start, deep, yield)
}

// walk yields what lies in dir (a key ending in a slash, or "") under a name with the given start.
func (b *fileBackend) walk(ctx context.Context, dir, start string, deep bool, yield func(entry) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	items, err := os.ReadDir(local(dir))
	if errors.Is(err, fs.ErrNotExist) || isNotDir(err) {
		return nil // an empty prefix is no error, as in object stores
	}
	if err != nil {
		return err
	}
	for _, it := range items {
		name := it.Name()
		if !strings.HasPrefix(name, start) || strings.HasPrefix(name, tmpPrefix) && strings.HasSuffix(name, tmpSuffix) {
			continue
		}
		fi, err := os.Stat(filepath.Join(local(dir), name)) // through symbolic links
		if errors.Is(err, fs.ErrNotExist) {
			continue // a dangling link, or deleted meanwhile
		}
		if err != nil {
			return err
		}
		switch {
		case fi.IsDir() && !deep:
			err = yield(entry{key: dir + name + "/", dir: true})
		case fi.IsDir() && it.Type()&fs.ModeSymlink != 0: // could lead round in a circle
		case fi.IsDir():
			err = b.walk(ctx, dir+name+"/", "", true, yield)
		case fi.Mode().IsRegular():
			err = yield(fileEntry(dir+name, fi))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *fileBackend) openRange(_ context.Context, key string, off, n int64, etag string) (io.ReadCloser, error) {
	f, err := os.Open(local(key))
	if err != nil {
		return nil, missing(err)
	}
	r := &fileReader{f: f, off: off, left: n, etag: etag}
	if err := r.check(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return r, nil
}

// fileReader reads a range and checks the file's identity after each read, since local files can change in place.
type fileReader struct {
	f         *os.File
	off, left int64
	etag      string
}

func (r *fileReader) check() error {
	fi, err := r.f.Stat()
	if err == nil && r.etag != "" && fileETag(fi) != r.etag {
		err = errChanged
	}
	return err
}

func (r *fileReader) Read(p []byte) (int, error) {
	if r.left <= 0 {
		return 0, io.EOF
	}
	n, err := r.f.ReadAt(p[:min(int64(len(p)), r.left)], r.off)
	if cerr := r.check(); cerr != nil {
		return 0, cerr
	}
	r.off += int64(n)
	r.left -= int64(n)
	if n > 0 {
		err = nil
	}
	return n, err
}

func (r *fileReader) Close() error { return r.f.Close() }

func (b *fileBackend) delete(_ context.Context, key string) error {
	p := local(key)
	if fi, err := os.Lstat(p); err == nil && fi.IsDir() {
		return fmt.Errorf("%s is a folder", p)
	}
	return missing(os.Remove(p))
}
