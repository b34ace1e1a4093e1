package mmap

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// TestReadsAlike holds the mapped file to what plain reads give, at every border.
func TestReadsAlike(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789abcdef"), 1000)
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	mapped, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer mapped.Close()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	plain := &File{name: path, f: f, size: int64(len(content))}
	defer plain.Close()

	size := int64(len(content))
	for _, off := range []int64{0, 1, 15, 4095, 4096, size - 16, size - 1, size, size + 1, -1} {
		for _, n := range []int{0, 1, 16, 5000} {
			a, b := make([]byte, n), make([]byte, n)
			na, errA := mapped.ReadAt(a, off)
			nb, errB := plain.ReadAt(b, off)
			if n > 0 && (na != nb || (errA == nil) != (errB == nil) || (errA == io.EOF) != (errB == io.EOF) || !bytes.Equal(a, b)) {
				t.Errorf("read %d at %d: mapped %d, %v; plain %d, %v", n, off, na, errA, nb, errB)
			}
			s, ok := mapped.Slice(off, int64(n))
			if want := mapped.Mapped() && off >= 0 && off+int64(n) <= size; ok != want {
				t.Errorf("slice %d at %d: %v, want %v", n, off, ok, want)
			} else if ok && !bytes.Equal(s, content[off:off+int64(n)]) {
				t.Errorf("slice %d at %d: wrong bytes", n, off)
			}
			if _, ok := plain.Slice(off, int64(n)); ok {
				t.Errorf("slice of a file that is not mapped")
			}
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	if _, err := Open(filepath.Join(t.TempDir(), "none")); !os.IsNotExist(err) {
		t.Errorf("missing file: %v", err)
	}
	if _, err := Open(t.TempDir()); err == nil {
		t.Error("a folder was opened")
	}
}

func TestEmptyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.ReadAt(make([]byte, 1), 0); err != io.EOF {
		t.Errorf("read: %v, want EOF", err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}
