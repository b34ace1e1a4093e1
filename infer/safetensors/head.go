package safetensors

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/big"
	"sort"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/batchmill/batchmill/infer/quant"
	"github.com/batchmill/batchmill/internal/ordered"
)

const (
	// maxHead bounds the head, which is parsed into memory as a whole. A tensor takes about 100 bytes of it, so that the
	// largest published files stay under 2 MiB; the format's own library accepts 100 MB.
	maxHead = 32 << 20
	// maxDims is far above what any model uses.
	maxDims = 16
)

// dtypes maps the format's names of types to ours. The others of the format (integers, booleans, float8, float64) are
// not used as weights by the supported models.
var dtypes = map[string]quant.Type{"F32": quant.F32, "F16": quant.F16, "BF16": quant.BF16}

// errTruncated says that the file is shorter than it says.
var errTruncated = errors.New("the file is truncated or damaged; fetch it again")

// tensor is a tensor of one file.
type tensor struct {
	quant.TensorInfo
	off int64 // of its data, from the start of the file
}

// head is what stands before the data of one file.
type head struct {
	metadata map[string]string
	tensors  []tensor // in the head's order
}

// readHead reads and checks the head of one file: its length as u64, then a JSON object
// {name: {dtype, shape, data_offsets: [begin, end]}, "__metadata__": {key: value}}.
func readHead(ctx context.Context, src quant.Source) (*head, error) {
	fail := func(tensor string, off int64, format string, args ...any) error {
		return &quant.FileError{File: src.Name(), Tensor: tensor, Offset: off, Err: fmt.Errorf(format, args...)}
	}
	size := src.Size()
	if size < 8 {
		return nil, fail("", 0, "the head needs 8 bytes, the file has %d: %w", size, errTruncated)
	}
	b, err := quant.ReadRange(ctx, src, 0, 8)
	if err != nil {
		return nil, fail("", 0, "read the head's length: %w", err)
	}
	n := binary.LittleEndian.Uint64(b)
	if n > maxHead {
		return nil, fail("", 0, "the head is said to have %d bytes, at most %d are accepted: not a safetensors file, or damaged", n, maxHead)
	}
	if n > uint64(size-8) {
		return nil, fail("", 8, "the head needs %d bytes, %d are left: %w", n, size-8, errTruncated)
	}
	b, err = quant.ReadRange(ctx, src, 8, int64(n))
	if err != nil {
		return nil, fail("", 8, "read the head: %w", err)
	}
	object, err := decodeObject(b)
	if err != nil {
		return nil, fail("", 8, "parse the head: %w", err)
	}

	start := int64(n) + 8
	h := &head{metadata: map[string]string{}}
	for _, name := range object.Keys() {
		entry, _ := object.Get(name)
		if name == "__metadata__" {
			if h.metadata, err = metadata(entry); err != nil {
				return nil, fail("", 8, "%w", err)
			}
			continue
		}
		t, unsupported, err := readTensor(name, entry, size-start)
		if err != nil {
			return nil, &quant.FileError{File: src.Name(), Tensor: name, Offset: start + t.off, Unsupported: unsupported, Err: err}
		}
		t.off += start
		h.tensors = append(h.tensors, t)
	}
	return h, h.checkCover(src.Name(), start, size)
}

// decodeObject decodes a JSON object. Unlike ordered.DecodeJSON it refuses a key that stands there twice: of two entries
// for one tensor, another program may take the other.
func decodeObject(b []byte) (*ordered.Map, error) {
	if err := jsontext.NewDecoder(bytes.NewReader(b)).SkipValue(); err != nil {
		return nil, err
	}
	v, err := ordered.DecodeJSON(b)
	if err != nil {
		return nil, err
	}
	object, ok := v.(*ordered.Map)
	if !ok {
		return nil, errors.New("it is not a JSON object")
	}
	return object, nil
}

// readTensor checks one entry; off of the result is relative to the data, which has dataSize bytes.
func readTensor(name string, entry any, dataSize int64) (t tensor, unsupported bool, err error) {
	t.Name = name
	m, ok := entry.(*ordered.Map)
	if !ok {
		return t, false, errors.New("its entry is not a JSON object")
	}
	for _, key := range m.Keys() {
		if key != "dtype" && key != "shape" && key != "data_offsets" {
			return t, false, fmt.Errorf("its entry has the unknown key %q", key)
		}
	}
	offsets, ok := ints(m, "data_offsets")
	if !ok || len(offsets) != 2 {
		return t, false, errors.New("its data_offsets are not two integers from 0")
	}
	begin, end := int64(offsets[0]), int64(offsets[1])
	if begin <= dataSize {
		t.off = begin
	}
	if begin > end {
		return t, false, fmt.Errorf("its data begins at %d and ends before, at %d", begin, end)
	}
	dtype, _ := m.Get("dtype")
	typeName, ok := dtype.(string)
	if !ok {
		return t, false, errors.New("its dtype is not a string")
	}
	if t.Type, ok = dtypes[typeName]; !ok {
		return t, true, fmt.Errorf("tensor type %s is not supported; supported are F32, F16 and BF16", typeName)
	}
	if t.Shape, ok = ints(m, "shape"); !ok || len(t.Shape) > maxDims {
		return t, false, fmt.Errorf("its shape is not a list of at most %d integers from 0", maxDims)
	}
	if t.Bytes, err = quant.Size(t.Type, t.Shape); err != nil {
		return t, false, err
	}
	if end-begin != t.Bytes {
		return t, false, fmt.Errorf("%s of shape %v has %d bytes, but its offsets [%d, %d] span %d", typeName, t.Shape, t.Bytes, begin, end, end-begin)
	}
	if end > dataSize {
		return t, false, fmt.Errorf("its data ends at %d of %d bytes of data: %w", end, dataSize, errTruncated)
	}
	return t, false, nil
}

// ints reads a list of integers that are not negative.
func ints(m *ordered.Map, key string) ([]int, bool) {
	v, _ := m.Get(key)
	list, ok := v.([]any)
	if !ok {
		return nil, false
	}
	out := make([]int, len(list))
	for i, e := range list {
		n, ok := e.(int64)
		if !ok || n < 0 || n > math.MaxInt {
			return nil, false
		}
		out[i] = int(n)
	}
	return out, true
}

func metadata(v any) (map[string]string, error) {
	m, ok := v.(*ordered.Map)
	if !ok {
		return nil, errors.New("__metadata__ is not a JSON object")
	}
	out := map[string]string{}
	for _, key := range m.Keys() {
		e, _ := m.Get(key)
		switch e := e.(type) {
		case string:
			out[key] = e
		case nil, bool, int64, *big.Int, float64: // the format wants strings, some writers do not know
			out[key] = fmt.Sprint(e)
		default:
			return nil, fmt.Errorf("__metadata__ %q is not a string", key)
		}
	}
	return out, nil
}

// checkCover checks that the tensors fill the data section without overlap, gap or rest, as the format demands: a file
// that says otherwise was not written to its end, or not by a right program.
func (h *head) checkCover(name string, start, size int64) error {
	order := make([]*tensor, len(h.tensors))
	for i := range h.tensors {
		order[i] = &h.tensors[i]
	}
	sort.SliceStable(order, func(a, b int) bool {
		if order[a].off != order[b].off {
			return order[a].off < order[b].off
		}
		return order[a].Bytes < order[b].Bytes // empty ones first
	})
	end, prev := start, ""
	for _, t := range order {
		if t.off < end {
			return &quant.FileError{File: name, Tensor: t.Name, Offset: t.off, Err: fmt.Errorf("its data overlaps tensor %q, which ends at %d", prev, end)}
		}
		if t.off > end {
			return &quant.FileError{File: name, Tensor: t.Name, Offset: end, Err: fmt.Errorf("%d bytes before its data belong to no tensor", t.off-end)}
		}
		end, prev = t.off+t.Bytes, t.Name
	}
	if end < size {
		return &quant.FileError{File: name, Offset: end, Err: fmt.Errorf("%d bytes behind the last tensor belong to none", size-end)}
	}
	return nil
}
