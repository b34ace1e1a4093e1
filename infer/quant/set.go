package quant

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// Set is the tensors of one or several weight files of any format, found by name and read from the source that holds
// them. A reader of a format fills it with Add and embeds it.
type Set struct {
	sources []Source
	tensors []TensorInfo
	where   map[string]place
}

// place is where a tensor's data lies.
type place struct {
	index  int // in Set.tensors
	source int
	off    int64
}

// NewSet makes a Set over sources, at least one, without tensors.
func NewSet(sources []Source) Set { return Set{sources: sources, where: map[string]place{}} }

// Add puts a tensor whose data lies at off in source number source. A name that is there already is a *FileError.
func (s *Set) Add(t TensorInfo, source int, off int64) error {
	if old, ok := s.where[t.Name]; ok {
		return &FileError{File: s.sources[source].Name(), Tensor: t.Name, Offset: off,
			Err: fmt.Errorf("the name stands also in %s", s.sources[old.source].Name())}
	}
	s.where[t.Name] = place{index: len(s.tensors), source: source, off: off}
	s.tensors = append(s.tensors, t)
	return nil
}

// Tensors lists all tensors, in the order of files and of their heads.
func (s *Set) Tensors() []TensorInfo { return s.tensors }

// Tensor finds a tensor by its name.
func (s *Set) Tensor(name string) (TensorInfo, bool) {
	p, ok := s.where[name]
	if !ok {
		return TensorInfo{}, false
	}
	return s.tensors[p.index], true
}

// SourceOf tells the number of the source that holds a tensor.
func (s *Set) SourceOf(name string) (source int, ok bool) {
	p, ok := s.where[name]
	return p.source, ok
}

// Data returns a tensor's stored bytes, to be read only: a view of a mapped file (release does nothing, and the bytes
// are valid until Close), or a buffer of its own.
func (s *Set) Data(ctx context.Context, name string) (data []byte, release func(), err error) {
	p, ok := s.where[name]
	if !ok {
		return nil, nil, fmt.Errorf("read tensor %q: %s has no such tensor", name, s.sources[0].Name())
	}
	src := s.sources[p.source]
	data, err = ReadRange(ctx, src, p.off, s.tensors[p.index].Bytes)
	if err != nil {
		if ctx.Err() != nil {
			return nil, nil, err
		}
		return nil, nil, &FileError{File: src.Name(), Tensor: name, Offset: p.off, Err: err}
	}
	return data, func() {}, nil
}

// Close closes the sources.
func (s *Set) Close() error { return CloseAll(s.sources) }

// CloseAll closes those sources that can be closed.
func CloseAll(sources []Source) error {
	var errs []error
	for _, s := range sources {
		if c, ok := s.(io.Closer); ok {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}
