package hub

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestLockExcludes lets several goroutines take turns with each kind of lock.
func TestLockExcludes(t *testing.T) {
	kinds := map[string]func(string) (func(), error){
		"default": tryLock,
		"file":    func(p string) (func(), error) { return tryLockFile(p, lockBeat, lockStale) },
	}
	for name, try := range kinds {
		path := filepath.Join(t.TempDir(), "x.lock")
		var wg sync.WaitGroup
		var inside, turns atomic.Int32 // a file's lock orders nothing in the eyes of the race detector
		for range 4 {
			wg.Go(func() {
				for range 5 {
					release, err := try(path)
					for errors.Is(err, errHeld) {
						time.Sleep(time.Millisecond)
						release, err = try(path)
					}
					if err != nil {
						t.Error(err)
						return
					}
					if n := inside.Add(1); n != 1 {
						t.Errorf("%s: %d hold it", name, n)
					}
					turns.Add(1)
					time.Sleep(time.Millisecond)
					inside.Add(-1)
					release()
				}
			})
		}
		wg.Wait()
		if n := turns.Load(); n != 20 {
			t.Errorf("%s: %d turns, want 20", name, n)
		}
	}
}

// locker holds a lock until it is killed; see TestMain.
func locker(path string) int {
	if _, err := lock(context.Background(), path, nil); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("locked")
	time.Sleep(time.Minute)
	return 0
}

// TestLockAcrossProcesses: another process holds the lock; killed, it holds it no more.
func TestLockAcrossProcesses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sub", "x.lock")
	cmd := exec.Command(os.Args[0], path)
	cmd.Env = append(os.Environ(), "BATCHMILL_TEST_ROLE=locker")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "locked\n" {
		t.Fatalf("the other process said %q, %v", line, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*lockPoll)
	defer cancel()
	told := 0
	if _, err := lock(ctx, path, func() { told++ }); !errors.Is(err, context.DeadlineExceeded) || told != 1 {
		t.Errorf("the lock of another process: %v, told %d times", err, told)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()                 // "signal: killed"
	if runtime.GOOS != "windows" { // there a lock file outlives its holder until it is stale
		release, err := lock(context.Background(), path, nil)
		if err != nil {
			t.Fatalf("after the holder's death: %v", err)
		}
		release()
	}
}

// TestStaleLockFile: a lock file that nobody touches any more is taken over, by one.
func TestStaleLockFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.lock")
	const beat, stale = 10 * time.Millisecond, 150 * time.Millisecond
	release, err := tryLockFile(path, beat, stale)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * stale)
	if _, err := tryLockFile(path, beat, stale); !errors.Is(err, errHeld) {
		t.Errorf("a lock that its holder keeps touching: %v", err)
	}
	release()
	writeFile(t, path, []byte("12345\n"))
	past := time.Now().Add(-time.Hour)
	if err := os.Chtimes(path, past, past); err != nil {
		t.Fatal(err)
	}
	if _, err := tryLockFile(path, beat, stale); !errors.Is(err, errHeld) {
		t.Errorf("the try that removes it: %v", err)
	}
	release, err = tryLockFile(path, beat, stale)
	if err != nil {
		t.Fatalf("a stale lock: %v", err)
	}
	release()
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after the release: %v", err)
	}
}
