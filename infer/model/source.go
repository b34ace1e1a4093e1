package model

import (
	"context"

	"github.com/batchmill/batchmill/infer/quant"
)

// Weights are the tensors of a model; gguf.File and safetensors.File are.
type Weights interface {
	Tensors() []quant.TensorInfo
	Tensor(name string) (quant.TensorInfo, bool)
	// Data returns a tensor's stored bytes, valid until release is called and never written to.
	Data(ctx context.Context, name string) (data []byte, release func(), err error)
}

// Metadata are the keys of a GGUF file.
type Metadata interface {
	String(key string) (string, bool)
	Uint(key string) (uint64, bool)
	Float(key string) (float64, bool)
	Bool(key string) (value, ok bool)
}

// Source is a model as it was found: weights, and what describes them.
type Source struct {
	Weights Weights
	// ConfigJSON is config.json of a safetensors folder; GenerationConfigJSON may be nil.
	ConfigJSON, GenerationConfigJSON []byte
	// Metadata is set instead of ConfigJSON for a GGUF file.
	Metadata Metadata
}

// hparams reads the description, whichever it is.
func (s Source) hparams() (*hparams, error) {
	if s.Metadata != nil {
		return fromGGUF(s.Metadata, s.Weights)
	}
	return fromHF(s.ConfigJSON, s.GenerationConfigJSON)
}
