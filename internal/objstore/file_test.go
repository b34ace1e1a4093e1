package objstore

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestFileRaceBetweenProcesses starts several processes that commit the same names: each name has exactly one winner.
func TestFileRaceBetweenProcesses(t *testing.T) {
	const names, procs = 100, 3
	if dir := os.Getenv("OBJSTORE_RACE_DIR"); dir != "" {
		raceChild(t, dir, names)
		return
	}
	dir := t.TempDir()
	var cmds []*exec.Cmd
	var outs [procs]bytes.Buffer
	for i := range procs {
		c := exec.Command(os.Args[0], "-test.run=^TestFileRaceBetweenProcesses$")
		c.Env = append(os.Environ(), "OBJSTORE_RACE_DIR="+dir)
		c.Stdout, c.Stderr = &outs[i], &outs[i]
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		cmds = append(cmds, c)
	}
	wins := 0
	for i, c := range cmds {
		if err := c.Wait(); err != nil {
			t.Fatalf("%v: %s", err, &outs[i])
		}
		wins += strings.Count(outs[i].String(), "WIN")
	}
	if wins != names {
		t.Fatalf("%d wins for %d names", wins, names)
	}
	if left, err := filepath.Glob(filepath.Join(dir, tmpPrefix+"*")); err != nil || len(left) != 0 {
		t.Fatalf("temporary files stayed: %v, %v", left, err)
	}
}

func raceChild(t *testing.T, dir string, names int) {
	s := New(Options{})
	for i := range names {
		url, err := Normalize(filepath.Join(dir, "n", string(rune('a'+i%26)), strings.Repeat("x", 1+i/26)))
		if err != nil {
			t.Fatal(err)
		}
		err = s.Put(context.Background(), url, []byte("x"), CreateOptions{IfAbsent: true})
		if err == nil {
			os.Stdout.WriteString("WIN\n")
		} else if !errors.Is(err, ErrExists) {
			t.Fatal(err)
		}
	}
}

func TestRenameNoReplace(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	for _, p := range []string{a, b} {
		if err := os.WriteFile(p, []byte(p), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	err := renameNoReplace(a, b)
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip("this system has no rename that never replaces: place refuses there")
	}
	if !errors.Is(err, fs.ErrExist) {
		t.Fatalf("rename onto a file = %v", err)
	}
	if err := renameNoReplace(a, filepath.Join(dir, "c")); err != nil {
		t.Fatal(err)
	}
}

func TestFileOddities(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	base, err := Normalize(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := New(Options{})
	put(t, s, Join(base, "in", "a.jsonl"), "{}")
	if _, err := s.Expand(ctx, filepath.Join(dir, "in")); !errors.Is(err, ErrNoMatch) || !strings.Contains(err.Error(), "slash") {
		t.Errorf("a folder without a slash: %v", err)
	}
	if _, err := s.Create(ctx, Join(base, "in", "/"), CreateOptions{}); err == nil {
		t.Error("a folder was created as a file")
	}
	if err := s.Delete(ctx, Join(base, "in")); err == nil {
		t.Error("a folder was deleted")
	}
	if _, err := s.Stat(ctx, Join(base, "in", "a.jsonl", "b")); !errors.Is(err, ErrNotExist) {
		t.Errorf("below a file: %v", err)
	}
	if runtime.GOOS != "windows" {
		if err := os.Symlink(dir, filepath.Join(dir, "in", "loop")); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("a.jsonl", filepath.Join(dir, "in", "link.jsonl")); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("gone", filepath.Join(dir, "in", "dangling.jsonl")); err != nil {
			t.Fatal(err)
		}
		got, err := s.Expand(ctx, Join(base, "**", "*.jsonl"))
		if err != nil || len(got) != 2 {
			t.Errorf("with symbolic links: %v, %v", got, err)
		}
		if _, err := s.Expand(ctx, "/dev/null"); err == nil || !strings.Contains(err.Error(), "regular") {
			t.Errorf("/dev/null: %v", err)
		}
		fi, err := os.Stat(filepath.Join(dir, "in", "a.jsonl"))
		if err != nil || fi.Mode().Perm()&0o400 == 0 || fi.Mode().Perm()&0o111 != 0 {
			t.Errorf("mode %v, %v", fi.Mode(), err)
		}
	}
}
