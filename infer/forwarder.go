package infer

import (
	"context"

	"github.com/batchmill/batchmill/infer/device"
)

// Forwarder is a loaded model as the engine sees it. FromModel makes one from infer/model.
type Forwarder interface {
	Limits() ModelLimits
	// NewCache allocates the KV storage of so many pages.
	NewCache(pages int) (Cache, error)
}

// Cache runs steps over its own KV pages. It is used by one goroutine at a time.
type Cache interface {
	// Forward computes a step: it writes keys and values of all tokens of b and the logits of the rows b.Logits to
	// logits [len(b.Logits)][VocabSize]. After an error the pages of the step's sequences are taken to be spoilt. It
	// looks at ctx between layers and then returns its error.
	Forward(ctx context.Context, b *device.Batch, logits [][]float32) error
	Close() error
}

// ModelLimits are the figures of a model that decide what the engine can take.
type ModelLimits struct {
	VocabSize      int   // token ids are below
	MaxPositions   int   // tokens of one sequence, prompt and completion
	KVBytesPerPage int64 // PageTokens tokens in all layers, keys and values
}

// FromModel adapts a model whose caches have a type of their own, as infer/model's do.
func FromModel[C any](m interface {
	NewCache(pages int) (C, error)
	Forward(ctx context.Context, c C, b *device.Batch, logits [][]float32) error
}, limits ModelLimits) Forwarder {
	return adaptedModel[C]{m, limits}
}

type adaptedModel[C any] struct {
	m interface {
		NewCache(pages int) (C, error)
		Forward(ctx context.Context, c C, b *device.Batch, logits [][]float32) error
	}
	limits ModelLimits
}

func (a adaptedModel[C]) Limits() ModelLimits { return a.limits }

func (a adaptedModel[C]) NewCache(pages int) (Cache, error) {
	c, err := a.m.NewCache(pages)
	if err != nil {
		return nil, err
	}
	return adaptedCache[C]{a, c}, nil
}

type adaptedCache[C any] struct {
	model adaptedModel[C]
	cache C
}

func (c adaptedCache[C]) Forward(ctx context.Context, b *device.Batch, logits [][]float32) error {
	return c.model.m.Forward(ctx, c.cache, b, logits)
}

func (c adaptedCache[C]) Close() error {
	if closer, ok := any(c.cache).(interface{ Close() error }); ok {
		return closer.Close()
	}
	return nil
}
