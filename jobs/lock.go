package jobs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/batchmill/batchmill/internal/objstore"
)

// errLocked says that another process holds a lock; errNoLocks that this system, or file system, has none.
var (
	errLocked  = errors.New("the lock is held")
	errNoLocks = errors.New("files cannot be locked here")
)

// maxPID bounds what is read of a lock file.
const maxPID = 32

// lock takes the lock of this process's shards in a local output, so that a second run on this machine learns who is at
// work instead of doing the same. The kernel frees it when the process ends, however it ends. Nothing depends on it: where
// there is none, two runs come to the same parts.
func (r *runState) lock() (release func(), err error) {
	none := func() {}
	j := r.job
	url := j.layout.lock(j.spec.Shard)
	path, local := objstore.LocalPath(url)
	if !j.spec.Lock || !local {
		return none, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil { // less the umask, as all folders of an output
		return nil, Errorf(StorageIO, "", "lock %s: %w", path, err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, Errorf(StorageIO, "", "lock %s: %w", path, err)
	}
	switch err := lockFile(f); {
	case errors.Is(err, errLocked):
		held, _ := io.ReadAll(io.LimitReader(f, maxPID))
		f.Close()
		e := Errorf(Interrupted, "wait for it, or stop it; --no-lock runs beside it", "process %s is at work on these shards of %s", holder(held), j.layout.shown())
		e.Exit = j.spec.SkipExit
		return nil, e
	case errors.Is(err, errNoLocks):
		f.Close()
		return none, nil
	case err != nil:
		f.Close()
		return nil, Errorf(StorageIO, "--no-lock does without", "lock %s: %w", path, err)
	}
	// The file stays when the lock is freed: removing it would let two processes lock two files of that name.
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0) // only a message needs it
	}
	return func() { f.Close() }, nil
}

// holder is the process id in a lock file.
func holder(text []byte) string {
	if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
		return strconv.Itoa(pid)
	}
	return "(unknown)"
}

// lock is the URL of the lock of a shard set.
func (l layout) lock(s Shard) string {
	name := "all"
	if s.Count > 1 {
		name = fmt.Sprintf("%05d-of-%05d", s.Index, s.Count)
	}
	return objstore.Join(l.base, "_run", "lock", name)
}
