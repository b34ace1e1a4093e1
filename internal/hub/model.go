package hub

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"

	"github.com/batchmill/batchmill/infer/gguf"
	"github.com/batchmill/batchmill/infer/quant"
	"github.com/batchmill/batchmill/infer/safetensors"
	"github.com/batchmill/batchmill/internal/mmap"
)

const (
	// maxConfig bounds the small JSON files and the chat template; real ones are under 1 MiB.
	maxConfig = 16 << 20
	// maxTokenizer bounds tokenizer.json; the largest published are about 35 MiB.
	maxTokenizer = 256 << 20
)

// Weights are the tensors of a model.
type Weights interface {
	Tensors() []quant.TensorInfo
	Tensor(name string) (quant.TensorInfo, bool)
	Data(ctx context.Context, name string) (data []byte, release func(), err error)
	Close() error
}

// Model is an open model. Of the JSON files those that are absent are nil; a GGUF file has them all in its metadata.
type Model struct {
	Name    string // what results say: alias, reference, or base name of a path or URL
	Digest  string // hex SHA-256 over weights, configuration and tokenizer: equal digests give equal results
	Weights Weights
	GGUF    *gguf.File // nil for the Hugging Face layout

	ConfigJSON           []byte
	GenerationConfigJSON []byte
	TokenizerJSON        []byte
	TokenizerConfigJSON  []byte
	ChatTemplateJinja    []byte

	Files    []string // paths
	Bytes    int64    // size of all files
	Revision string   // commit of an HF repository
}

// Close releases the weights.
func (m *Model) Close() error {
	if m.Weights == nil {
		return nil
	}
	return m.Weights.Close()
}

// open opens the files of a snapshot.
func (c *client) open(ctx context.Context, r Ref, s *Snapshot) (*Model, error) {
	m := &Model{Name: r.ModelName(), Files: s.Files, Bytes: s.Bytes, Revision: s.Revision}
	if err := m.read(s); err != nil {
		return nil, err
	}
	if !c.TokenizerOnly || len(s.layout.gguf) > 0 {
		if err := m.openWeights(ctx, s); err != nil {
			return nil, asDamaged(err)
		}
	}
	if !c.TokenizerOnly {
		digest, err := c.digest(ctx, r, s)
		if err != nil {
			return nil, also(err, m.Close())
		}
		m.Digest = digest
	}
	return m, nil
}

// read reads the files beside the weights.
func (m *Model) read(s *Snapshot) error {
	for _, name := range s.layout.sidecars {
		limit := int64(maxConfig)
		var to *[]byte
		switch path.Base(name) {
		case configFile:
			to = &m.ConfigJSON
		case generationFile:
			to = &m.GenerationConfigJSON
		case tokenizerFile:
			to, limit = &m.TokenizerJSON, maxTokenizer
		case tokenizerConfig:
			to = &m.TokenizerConfigJSON
		case chatTemplateFile:
			to = &m.ChatTemplateJinja
		}
		data, err := readLimited(s.path(name), limit)
		if err != nil {
			return failure(Damaged, "", "%w", err)
		}
		*to = data
	}
	return nil
}

func (m *Model) openWeights(ctx context.Context, s *Snapshot) error {
	switch {
	case len(s.layout.gguf) > 0:
		var src []gguf.Source
		for _, name := range s.layout.gguf {
			f, err := mmap.Open(s.path(name))
			if err != nil {
				return also(err, quant.CloseAll(src))
			}
			src = append(src, f)
		}
		f, err := gguf.Open(ctx, src...)
		if err != nil {
			return also(err, quant.CloseAll(src))
		}
		m.GGUF, m.Weights = f, f
	case s.layout.index != "":
		f, err := safetensors.OpenPath(ctx, s.path(s.layout.index))
		if err != nil {
			return err
		}
		m.Weights = f
	default:
		f, err := safetensors.OpenPath(ctx, s.path(s.layout.weights))
		if err != nil {
			return err
		}
		m.Weights = f
	}
	return nil
}

// path is where a file of the layout lies.
func (s *Snapshot) path(name string) string { return filepath.Join(s.Dir, filepath.FromSlash(name)) }

// addShards reads the index, if there is one, and adds its shards to the weights, as far as they are known by name.
func (s *Snapshot) addShards() error {
	if s.layout.index == "" {
		return nil
	}
	data, err := readLimited(s.path(s.layout.index), maxConfig*2)
	if err != nil {
		return failure(Damaged, "", "%w", err)
	}
	weights, err := safetensors.ParseIndex(s.path(s.layout.index), data)
	if err != nil {
		return asDamaged(err)
	}
	for _, shard := range safetensors.Shards(weights) {
		name := path.Join(path.Dir(s.layout.index), shard)
		if _, err := os.Stat(s.path(name)); err != nil {
			return failure(Missing, "all shards that the index names must lie beside it", "shard %s: %w", name, err)
		}
		s.layout.shards = append(s.layout.shards, name)
	}
	return nil
}

// asDamaged gives an error about a file's content its kind.
func asDamaged(err error) error {
	var fe *quant.FileError
	switch {
	case err == nil || KindOf(err) != 0:
		return err
	case errors.As(err, &fe):
		return &Error{Kind: Damaged, Err: err}
	case errors.Is(err, os.ErrNotExist):
		return &Error{Kind: Missing, Err: err}
	}
	return fmt.Errorf("open the model: %w", err)
}
