package gguf

import (
	"context"
	"errors"
	"fmt"
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
	quant.Set
	keys   []string
	values map[string]any
}

// Open reads the heads of a file, or of all parts of a split file in order. After success the sources belong to the
// File, and Close closes those that can be closed; after an error they stay the caller's.
func Open(ctx context.Context, src ...Source) (*File, error) {
	if len(src) == 0 {
		return nil, errors.New("open a GGUF file: no source given")
	}
	f := &File{Set: quant.NewSet(src)}
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
			if err := f.Add(t.TensorInfo, i, t.off); err != nil {
				return nil, fmt.Errorf("read GGUF file: %w", err)
			}
		}
	}
	if want, ok := f.Uint("split.tensors.count"); ok && len(src) > 1 && want != uint64(len(f.Tensors())) {
		return nil, fmt.Errorf("read GGUF file: %w", &quant.FileError{File: src[0].Name(), Offset: -1,
			Err: fmt.Errorf("the parts hold %d tensors, split.tensors.count says %d", len(f.Tensors()), want)})
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
		return nil, errors.Join(err, quant.CloseAll(src))
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
