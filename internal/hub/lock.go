package hub

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

const (
	// lockPoll is how often a held lock is tried again.
	lockPoll = 100 * time.Millisecond
	// lockBeat is how often the holder of a lock file touches it, and lockStale how long it may miss that before it is
	// taken for dead: long enough for a machine that was swapped out or paused.
	lockBeat  = 5 * time.Second
	lockStale = time.Minute
)

// errHeld says that another process holds a lock.
var errHeld = errors.New("held by another process")

// lock waits for the lock at path and gives the function that releases it. waiting is called once if it is held.
func lock(ctx context.Context, path string, waiting func()) (func(), error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	for told := false; ; told = true {
		release, err := tryLock(path)
		if !errors.Is(err, errHeld) {
			return release, err
		}
		if !told && waiting != nil {
			waiting()
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for another pull (%s): %w", path, ctx.Err())
		case <-time.After(lockPoll):
		}
	}
}

// tryLockFile locks by the existence of a file that its holder keeps touching; for systems where the kernel's own locks
// are not used. A holder that was killed is found out by the file's age.
func tryLockFile(path string, beat, stale time.Duration) (func(), error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if errors.Is(err, os.ErrExist) {
		info, statErr := os.Stat(path)
		if statErr == nil && time.Since(info.ModTime()) > stale {
			// Only one of several waiters gets to rename it away.
			grave := fmt.Sprintf("%s.stale-%d-%d", path, os.Getpid(), time.Now().UnixNano())
			if os.Rename(path, grave) == nil {
				os.Remove(grave)
			}
		}
		return nil, errHeld
	}
	if err != nil {
		return nil, err
	}
	_, err = fmt.Fprintf(f, "%d\n", os.Getpid())
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, errors.Join(err, os.Remove(path))
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case now := <-time.After(beat):
				_ = os.Chtimes(path, now, now) // if it cannot be touched, it goes stale, which a pull survives
			}
		}
	}()
	return func() {
		close(stop)
		<-done
		os.Remove(path)
	}, nil
}
