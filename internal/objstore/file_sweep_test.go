package objstore

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestSweep: a store removes what killed processes left in its folder for temporary files, and nothing that is in use.
func TestSweep(t *testing.T) {
	dir := t.TempDir()
	tmp := filepath.Join(dir, "tmp")
	ctx := context.Background()
	writing, err := New(Options{TmpDir: tmp}).Create(ctx, "file://"+filepath.ToSlash(dir)+"/in-use", CreateOptions{IfAbsent: true})
	if err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(tmp, tmpPrefix+"left"+tmpSuffix)
	other := filepath.Join(tmp, "somebody-else.tmp")
	for _, name := range []string{left, other} {
		if err := os.WriteFile(name, []byte("half a pa"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if f, err := os.Open(left); err != nil {
		t.Fatal(err)
	} else if err := lockFile(f); errors.Is(err, errors.ErrUnsupported) {
		t.Skipf("no file locks here: %v", err)
	} else {
		f.Close()
	}
	second := New(Options{TmpDir: tmp})
	if err := second.Put(ctx, "file://"+filepath.ToSlash(dir)+"/second", []byte("x"), CreateOptions{IfAbsent: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); err == nil {
		t.Error("what was left stays")
	}
	if _, err := os.Stat(other); err != nil {
		t.Errorf("a file that is not ours: %v", err)
	}
	if _, err := writing.Write([]byte("whole")); err != nil {
		t.Fatal(err)
	}
	if err := writing.Commit(); err != nil {
		t.Fatalf("a file in use was swept: %v", err)
	}
	if names, err := filepath.Glob(filepath.Join(tmp, tmpPrefix+"*")); err != nil || len(names) != 0 {
		t.Errorf("left: %v %v", names, err)
	}
}
