package gguf

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/batchmill/batchmill/infer/quant"
	"github.com/batchmill/batchmill/internal/mmap"
)

// Source is one file to read; see quant.Source.
type Source = quant.Source

// File is an open GGUF file, or all parts of a split one. It is safe for concurrent use, apart from Close.
type File struct {
	sources []Source
	keys    []string
	values  map[string]any
	tensors []quant.TensorInfo
	where   map[string]place
}

// place is where a tensor's data lies.
type place struct {
	index  int // in File.tensors
	source int
	off    int64
}

// Open reads the heads of a file, or of all parts of a split file in order. After success the sources belong to the
// File, and Close closes those that can be closed; after an error they stay the caller's.
func Open(ctx context.Context, src ...Source) (*File, error) {
	if len(src) == 0 {
		return nil, errors.New("open a GGUF file: no source given")
	}
	f := &File{sources: src, where: map[string]place{}}
	for i, s := range src {
		h, err := readHead(ctx, s)
		if err != nil {
			return nil, fmt.Errorf("read GGUF file: %w", err)
		}
		if i == 0 {
			f.keys, f.values = h.keys, h.values
		}
		if err := checkPart(h, s.Name(), i, len(src)); err != nil {
			return nil, fmt.Errorf("read GGUF file: %w", err)
		}
		for _, t := range h.tensors {
			if old, ok := f.where[t.Name]; ok {
				return nil, fmt.Errorf("read GGUF file: %w", &quant.FileError{File: s.Name(), Tensor: t.Name, Offset: t.off,
					Err: fmt.Errorf("the name stands also in %s", src[old.source].Name())})
			}
			f.where[t.Name] = place{index: len(f.tensors), source: i, off: t.off}
			f.tensors = append(f.tensors, t.TensorInfo)
		}
	}
	if want, ok := f.Uint("split.tensors.count"); ok && len(src) > 1 && want != uint64(len(f.tensors)) {
		return nil, fmt.Errorf("read GGUF file: %w", &quant.FileError{File: src[0].Name(), Offset: -1,
			Err: fmt.Errorf("the parts hold %d tensors, split.tensors.count says %d", len(f.tensors), want)})
	}
	return f, nil
}

// checkPart checks that a file is part number i (from 0) of n.
func checkPart(h *head, name string, i, n int) error {
	no, hasNo := asUint(h.values["split.no"])
	count, hasCount := asUint(h.values["split.count"])
	if n == 1 && (!hasCount || count <= 1) {
		return nil
	}
	var err error
	switch {
	case !hasNo || !hasCount:
		err = errors.New("no part of a split file: split.no or split.count is missing")
	case count != uint64(n):
		err = fmt.Errorf("it is part %d of %d, but %d were given; all parts must lie side by side", no+1, count, n)
	case no != uint64(i):
		err = fmt.Errorf("it says it is part %d, where part %d is due; was it renamed?", no+1, i+1)
	default:
		return nil
	}
	return &quant.FileError{File: name, Offset: -1, Err: err}
}

// OpenPath opens a local file, mapped into memory where the system can. For a part of a split file it opens all of
// them.
func OpenPath(ctx context.Context, path string) (*File, error) {
	names := []string{path}
	if parts, ok := SplitNames(filepath.Base(path)); ok {
		names = names[:0]
		for _, p := range parts {
			names = append(names, filepath.Join(filepath.Dir(path), p))
		}
	}
	var src []Source
	fail := func(err error) (*File, error) {
		for _, s := range src {
			err = errors.Join(err, s.(io.Closer).Close())
		}
		return nil, err
	}
	for _, name := range names {
		m, err := mmap.Open(name)
		if err != nil {
			return fail(err)
		}
		src = append(src, m)
	}
	f, err := Open(ctx, src...)
	if err != nil {
		return fail(err)
	}
	return f, nil
}

// splitName is how parts of split files are named: "%s-%05d-of-%05d.gguf", counted from 1.
var splitName = regexp.MustCompile(`^(.*)-([0-9]{5})-of-([0-9]{5})\.gguf$`)

// SplitNames gives the names of all parts of the split file that name is a part of, in order; false where the name is
// not that of a part.
func SplitNames(name string) ([]string, bool) {
	m := splitName.FindStringSubmatch(name)
	if m == nil {
		return nil, false
	}
	no, _ := strconv.Atoi(m[2])
	n, _ := strconv.Atoi(m[3])
	if no < 1 || no > n {
		return nil, false
	}
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%05d-of-%05d.gguf", m[1], i+1, n)
	}
	return names, true
}

// Tensors lists all tensors in the file's order.
func (f *File) Tensors() []quant.TensorInfo { return f.tensors }

// Tensor finds a tensor by its name.
func (f *File) Tensor(name string) (quant.TensorInfo, bool) {
	p, ok := f.where[name]
	if !ok {
		return quant.TensorInfo{}, false
	}
	return f.tensors[p.index], true
}

// Data returns a tensor's stored bytes, to be read only: a view of a mapped file (release does nothing, and the bytes
// are valid until Close), or a buffer of its own.
func (f *File) Data(ctx context.Context, name string) (data []byte, release func(), err error) {
	p, ok := f.where[name]
	if !ok {
		return nil, nil, fmt.Errorf("read tensor %q: %s has no such tensor", name, f.sources[0].Name())
	}
	src := f.sources[p.source]
	data, err = quant.ReadRange(ctx, src, p.off, f.tensors[p.index].Bytes)
	if err != nil {
		if ctx.Err() != nil {
			return nil, nil, err
		}
		return nil, nil, &quant.FileError{File: src.Name(), Tensor: name, Offset: p.off, Err: err}
	}
	return data, func() {}, nil
}

// Close closes the sources.
func (f *File) Close() error {
	var errs []error
	for _, s := range f.sources {
		if c, ok := s.(io.Closer); ok {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}
