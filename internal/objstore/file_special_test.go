//go:build unix

package objstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestSpecialFiles: what is no regular file is refused at once and by its kind, and nobody waits for it.
func TestSpecialFiles(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "pipe.jsonl")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	s := New(Options{RetryFor: time.Hour})
	for path, want := range map[string]string{fifo: "named pipe", "/dev/null": "device"} {
		url, err := Normalize(path)
		if err != nil {
			t.Fatal(err)
		}
		_, serr := s.Stat(ctx, url)
		_, xerr := s.Expand(ctx, path)
		_, oerr := s.Open(ctx, Info{URL: url})
		_, _, rerr := s.ReadAll(ctx, url, 10)
		for i, err := range []error{serr, xerr, oerr, rerr} {
			if !errors.Is(err, ErrUnsupported) || errors.Is(err, ErrTemporary) || errors.Is(err, ErrNotExist) || !strings.Contains(err.Error(), want) {
				t.Errorf("%d %s: %v", i, path, err)
			}
		}
	}
	if _, err := s.Expand(ctx, dir); !errors.Is(err, ErrNotExist) || errors.Is(err, ErrTemporary) {
		t.Errorf("a folder: %v", err)
	}
	if got, err := s.Expand(ctx, dir+"/"); !errors.Is(err, ErrNoMatch) {
		t.Errorf("a folder with a pipe alone: %v, %v", got, err)
	}
}

// TestBadOutputPaths: a path that cannot be is an error for good, said at once.
func TestBadOutputPaths(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	s := New(Options{RetryFor: time.Hour})
	for path, want := range map[string]string{
		filepath.Join(file, "x"):                          file + " is a file, not a folder",
		filepath.Join(file, "a", "b", "x"):                file + " is a file, not a folder",
		"/dev/null/x":                                     "/dev/null is a file",
		filepath.Join(dir, strings.Repeat("n", 300), "x"): "name too long",
	} {
		url, err := Normalize(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Put(ctx, url, nil, CreateOptions{IfAbsent: true}); err == nil || errors.Is(err, ErrTemporary) || errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v", path, err)
		}
	}
	if _, err := os.Stat("/proc/self"); err == nil { // a file system that takes no new folders
		if err := s.Put(ctx, "file:///proc/nope/x", nil, CreateOptions{}); err == nil || errors.Is(err, ErrTemporary) || errors.Is(err, ErrNotExist) || !strings.Contains(err.Error(), "/proc/nope") {
			t.Errorf("/proc/nope: %v", err)
		}
	}
}

// TestErrnoKinds: an error number has the methods of a network error, and is one only from a connection.
func TestErrnoKinds(t *testing.T) {
	for errno, want := range map[syscall.Errno]bool{
		syscall.ENOTDIR: false, syscall.EISDIR: false, syscall.EROFS: false, syscall.ENOSPC: false, syscall.ENAMETOOLONG: false, syscall.ELOOP: false,
		syscall.EIO: false, syscall.EINVAL: false, syscall.ESTALE: true, syscall.EINTR: true, syscall.ETIMEDOUT: true, syscall.EBUSY: true, syscall.EMFILE: true,
	} {
		err := wrap("create", "file:///x", &fs.PathError{Op: "open", Path: "/x", Err: errno})
		if errors.Is(err, ErrTemporary) != want {
			t.Errorf("%v: temporary is %t", err, !want)
		}
	}
	err := wrap("read", "s3://b/k", fmt.Errorf("get: %w", &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.EADDRNOTAVAIL)}))
	if !errors.Is(err, ErrTemporary) {
		t.Errorf("a connection's: %v", err)
	}
}
