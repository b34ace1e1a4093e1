package safetensors

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/batchmill/batchmill/infer/quant"
	"github.com/batchmill/batchmill/internal/mmap"
	"github.com/batchmill/batchmill/internal/ordered"
)

// Source is one file to read; see quant.Source.
type Source = quant.Source

// File is an open safetensors file, or all shards of a model. It is safe for concurrent use, apart from Close.
type File struct {
	quant.Set
	metadata map[string]string
}

// Open reads the heads of a file, or of all shards of a model. After success the sources belong to the File, and Close
// closes those that can be closed; after an error they stay the caller's.
func Open(ctx context.Context, src ...Source) (*File, error) {
	if len(src) == 0 {
		return nil, errors.New("open a safetensors file: no source given")
	}
	f := &File{Set: quant.NewSet(src), metadata: map[string]string{}}
	for i, s := range src {
		h, err := readHead(ctx, s)
		if err != nil {
			return nil, fmt.Errorf("read safetensors file: %w", err)
		}
		if i == 0 {
			f.metadata = h.metadata
		}
		for _, t := range h.tensors {
			if err := f.Add(t.TensorInfo, i, t.off); err != nil {
				return nil, fmt.Errorf("read safetensors file: %w", err)
			}
		}
	}
	return f, nil
}

// maxIndex bounds an index file: like the head of one file, for all shards together.
const maxIndex = maxHead

// ParseIndex reads a model.safetensors.index.json: which shard holds each tensor. Shards are plain file names beside the
// index; anything with a path in it is refused. name is for messages.
func ParseIndex(name string, data []byte) (map[string]string, error) {
	fail := func(tensor, format string, args ...any) (map[string]string, error) {
		return nil, fmt.Errorf("read safetensors index: %w", &quant.FileError{File: name, Tensor: tensor, Offset: -1, Err: fmt.Errorf(format, args...)})
	}
	if len(data) > maxIndex {
		return fail("", "it has %d bytes, at most %d are accepted", len(data), maxIndex)
	}
	object, err := decodeObject(data)
	if err != nil {
		return fail("", "%w", err)
	}
	v, _ := object.Get("weight_map")
	m, ok := v.(*ordered.Map)
	if !ok || m.Len() == 0 {
		return fail("", "it has no weight_map")
	}
	weights := make(map[string]string, m.Len())
	for _, tensor := range m.Keys() {
		v, _ := m.Get(tensor)
		shard, ok := v.(string)
		if !ok || shard == "" || shard == "." || shard == ".." || strings.ContainsAny(shard, `/\:`) {
			return fail(tensor, "its shard is %q, not the name of a file beside the index", fmt.Sprint(v))
		}
		weights[tensor] = shard
	}
	return weights, nil
}

// Shards lists the files that an index names, sorted.
func Shards(weights map[string]string) []string {
	return slices.Compact(slices.Sorted(maps.Values(weights)))
}

// OpenIndex opens the shards that an index names, each once, in lexical order. After an error those opened are closed
// again. name is the index's own, for messages.
func OpenIndex(ctx context.Context, name string, index []byte, open func(shard string) (Source, error)) (*File, error) {
	weights, err := ParseIndex(name, index)
	if err != nil {
		return nil, err
	}
	shards := Shards(weights)
	src := make([]Source, 0, len(shards))
	fail := func(err error) (*File, error) {
		return nil, errors.Join(err, quant.CloseAll(src))
	}
	for _, shard := range shards {
		s, err := open(shard)
		if err != nil {
			return fail(err)
		}
		src = append(src, s)
	}
	f, err := Open(ctx, src...)
	if err != nil {
		return fail(err)
	}
	for _, tensor := range slices.Sorted(maps.Keys(weights)) {
		source, ok := f.SourceOf(tensor)
		if !ok || shards[source] != weights[tensor] {
			return fail(fmt.Errorf("read safetensors index: %w", &quant.FileError{File: name, Tensor: tensor, Offset: -1,
				Err: fmt.Errorf("it is not in %s, where the index has it", weights[tensor])}))
		}
	}
	return f, nil
}

// OpenPath opens a local file, or the shards of a local index (a name that ends in .json), mapped into memory where the
// system can.
func OpenPath(ctx context.Context, path string) (*File, error) {
	if strings.HasSuffix(path, ".json") {
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		if info.Size() > maxIndex {
			return nil, fmt.Errorf("read safetensors index %s: it has %d bytes, at most %d are accepted", path, info.Size(), maxIndex)
		}
		index, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		return OpenIndex(ctx, path, index, func(shard string) (Source, error) {
			return mmap.Open(filepath.Join(filepath.Dir(path), shard))
		})
	}
	m, err := mmap.Open(path)
	if err != nil {
		return nil, err
	}
	f, err := Open(ctx, m)
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return f, nil
}

// Metadata gives the __metadata__ of the first file.
func (f *File) Metadata() map[string]string { return maps.Clone(f.metadata) }
