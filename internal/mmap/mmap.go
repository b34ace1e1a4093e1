// Package mmap opens local files for reading at any offset, mapped into memory where the system can do it. A mapped
// file costs no memory of its own: the pages belong to the system's cache. Elsewhere the same type reads by range.
//
// A mapped file must not be cut short while it is open: touching what is gone ends the process (SIGBUS).
package mmap

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
)

// File is an open file. It is safe for concurrent use, apart from Close.
type File struct {
	name string
	f    *os.File
	size int64
	data []byte // nil where it is not mapped
}

// Open opens a regular file.
func Open(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("not a regular file")
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	m := &File{name: path, f: f, size: info.Size()}
	if m.size > 0 && m.size <= math.MaxInt {
		m.data = mapFile(f, m.size) // nil where it fails: then it is read
	}
	return m, nil
}

// Name is the path that the file was opened with.
func (m *File) Name() string { return m.name }

// Size is the file's size when it was opened.
func (m *File) Size() int64 { return m.size }

// Mapped tells whether the file lies in memory.
func (m *File) Mapped() bool { return m.data != nil }

// ReadAt implements io.ReaderAt.
func (m *File) ReadAt(p []byte, off int64) (int, error) {
	if m.data == nil {
		return m.f.ReadAt(p, off)
	}
	if off < 0 {
		return 0, fmt.Errorf("read %s: negative offset %d", m.name, off)
	}
	if off >= m.size {
		return 0, io.EOF
	}
	n := copy(p, m.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// Slice returns the bytes [off, off+n) of a mapped file, to be read only and not after Close; false where the file is
// not mapped or the range not in it.
func (m *File) Slice(off, n int64) ([]byte, bool) {
	if m.data == nil || off < 0 || n < 0 || off > m.size || n > m.size-off {
		return nil, false
	}
	return m.data[off : off+n : off+n], true
}

// Close releases the mapping and the file.
func (m *File) Close() error {
	var err error
	if m.data != nil {
		err = unmapFile(m.data)
		m.data = nil
	}
	return errors.Join(err, m.f.Close())
}
