package gguf

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sort"

	"github.com/batchmill/batchmill/infer/quant"
)

const (
	magic = 0x46554747 // "GGUF"
	// maxKeys and maxTensors bound what is kept: real files have some dozens of keys and some thousands of tensors.
	maxKeys    = 1 << 16
	maxTensors = 1 << 20
	// maxDims is ggml's GGML_MAX_DIMS.
	maxDims = 4
	// defaultAlignment holds where general.alignment is absent.
	defaultAlignment = 32
	// maxAlignment is far above any page or sector size.
	maxAlignment = 1 << 24
	// Smallest possible entries, to check counts against the file's size: key length, kind, one byte of value; name
	// length, number of dimensions, one dimension, type, offset.
	minKeyBytes    = 8 + 4 + 1
	minTensorBytes = 8 + 4 + 8 + 4 + 8
)

// tensor is a tensor of one file.
type tensor struct {
	quant.TensorInfo
	off int64 // of its data, from the start of the file
}

// head is what stands before the data of one file.
type head struct {
	version uint32
	keys    []string // in the file's order
	values  map[string]any
	tensors []tensor // in the file's order
}

// readHead reads and checks the head of one file.
func readHead(ctx context.Context, src quant.Source) (*head, error) {
	s := &scanner{ctx: ctx, src: src}
	h := &head{values: map[string]any{}}
	if m := s.u32("the magic"); s.err == nil && m != magic {
		s.fail(0, "not a GGUF file: it starts with %08x", m)
	}
	h.version = s.u32("the version")
	if s.err == nil && h.version != 2 && h.version != 3 {
		reason := fmt.Errorf("GGUF version %d is not supported, only 2 and 3; convert the file anew", h.version)
		if h.version&0xffff == 0 && h.version != 0 {
			reason = errors.New("a big-endian GGUF file, which is not supported; convert it to little-endian")
		}
		return nil, &quant.FileError{File: src.Name(), Offset: 4, Unsupported: true, Err: reason}
	}
	at := s.off
	tensors, keys := s.u64("the number of tensors"), s.u64("the number of keys")
	if s.err == nil && tensors > maxTensors {
		s.fail(at, "%d tensors are more than are accepted (%d): the file is damaged", tensors, maxTensors)
	}
	if s.err == nil && keys > maxKeys {
		s.fail(at+8, "%d metadata keys are more than are accepted (%d): the file is damaged", keys, maxKeys)
	}
	if least := keys*minKeyBytes + tensors*minTensorBytes; s.err == nil && least > uint64(s.left()) {
		s.fail(at, "%d keys and %d tensors need at least %d bytes, %d are left of the file's %d: %w", keys, tensors, least, s.left(), src.Size(), errTruncated)
	}
	for i := uint64(0); i < keys && s.err == nil; i++ {
		h.readKey(s)
	}
	type entry struct {
		tensor
		at  int64
		rel uint64
	}
	var entries []entry
	seen := map[string]bool{}
	for i := uint64(0); i < tensors && s.err == nil; i++ {
		e := entry{at: s.off}
		if e.tensor, e.rel = readTensor(s); s.err != nil {
			break
		}
		if seen[e.Name] {
			return nil, &quant.FileError{File: src.Name(), Tensor: e.Name, Offset: e.at, Err: errors.New("the name stands there twice")}
		}
		seen[e.Name] = true
		entries = append(entries, e)
	}
	if s.err != nil {
		return nil, s.err
	}

	align, err := h.alignment(src.Name())
	if err != nil {
		return nil, err
	}
	start := (s.off + align - 1) / align * align
	for _, e := range entries {
		if e.rel%uint64(align) != 0 {
			return nil, &quant.FileError{File: src.Name(), Tensor: e.Name, Offset: e.at,
				Err: fmt.Errorf("its data offset %d is not a multiple of the alignment %d", e.rel, align)}
		}
		if e.rel > uint64(src.Size()) || start+int64(e.rel) > src.Size()-e.Bytes {
			return nil, &quant.FileError{File: src.Name(), Tensor: e.Name, Offset: start + int64(min(e.rel, math.MaxInt64/2)),
				Err: fmt.Errorf("its %d bytes of data lie beyond the end of the file at %d: %w", e.Bytes, src.Size(), errTruncated)}
		}
		e.off = start + int64(e.rel)
		h.tensors = append(h.tensors, e.tensor)
	}
	return h, h.checkOverlaps(src.Name())
}

func (h *head) readKey(s *scanner) {
	at := s.off
	key := s.str(maxName, "a key")
	if s.err == nil && key == "" {
		s.fail(at, "a metadata key is empty")
	}
	if _, ok := h.values[key]; ok && s.err == nil {
		s.fail(at, "the metadata key %q stands there twice", key)
	}
	what := fmt.Sprintf("the value of key %q", key)
	kind := s.u32("the type of " + what)
	if s.err != nil {
		return
	}
	v := s.value(kind, what)
	if s.err == nil {
		h.keys = append(h.keys, key)
		h.values[key] = v
	}
}

// readTensor reads a tensor's entry; rel is the offset of its data in the data section.
func readTensor(s *scanner) (t tensor, rel uint64) {
	at := s.off
	t.Name = s.str(maxName, "a tensor's name")
	failTensor := func(unsupported bool, err error) {
		if s.err == nil {
			s.err = &quant.FileError{File: s.src.Name(), Tensor: t.Name, Offset: at, Unsupported: unsupported, Err: err}
		}
	}
	if t.Name == "" {
		failTensor(false, errors.New("a tensor has no name"))
	}
	dims := s.u32("the number of dimensions")
	if dims == 0 || dims > maxDims {
		failTensor(false, fmt.Errorf("%d dimensions, where 1 to %d are possible", dims, maxDims))
	}
	if s.err != nil {
		return t, 0
	}
	// The file has the innermost dimension first.
	t.Shape = make([]int, dims)
	for i := range t.Shape {
		d := s.u64("a dimension")
		if d == 0 || d > math.MaxInt {
			failTensor(false, fmt.Errorf("dimension %d is %d", i, d))
		}
		t.Shape[len(t.Shape)-1-i] = int(d)
	}
	id := s.u32("the type")
	rel = s.u64("the data offset")
	if s.err != nil {
		return t, 0
	}
	typ, ok := quant.FromGGML(id)
	if !ok {
		failTensor(true, unsupportedType(id))
		return t, 0
	}
	t.Type = typ
	size, err := quant.Size(typ, t.Shape)
	if err != nil {
		failTensor(false, err)
	}
	t.Bytes = size
	return t, rel
}

func (h *head) alignment(name string) (int64, error) {
	v, ok := h.values["general.alignment"]
	if !ok {
		return defaultAlignment, nil
	}
	a, ok := asUint(v)
	if !ok || a == 0 || a > maxAlignment || a&(a-1) != 0 {
		return 0, &quant.FileError{File: name, Offset: -1, Err: fmt.Errorf("general.alignment is %v, not a power of two up to %d", v, maxAlignment)}
	}
	return int64(a), nil
}

// checkOverlaps refuses tensors that share bytes.
func (h *head) checkOverlaps(name string) error {
	order := make([]*tensor, len(h.tensors))
	for i := range h.tensors {
		order[i] = &h.tensors[i]
	}
	sort.Slice(order, func(a, b int) bool { return order[a].off < order[b].off })
	for i := 1; i < len(order); i++ {
		prev, t := order[i-1], order[i]
		if prev.off+prev.Bytes > t.off {
			return &quant.FileError{File: name, Tensor: t.Name, Offset: t.off,
				Err: fmt.Errorf("its data overlaps tensor %q, which ends at %d", prev.Name, prev.off+prev.Bytes)}
		}
	}
	return nil
}
