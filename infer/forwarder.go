package infer

import (
	"context"

	"github.com/batchmill/batchmill/infer/device"
	"github.com/batchmill/batchmill/infer/model"
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
	// CopyPage copies keys and values of the first tokens of page src to page dst; what dst held before is gone.
	CopyPage(dst, src int32, tokens int)
	Close() error
}

// ModelLimits are the figures of a model that decide what the engine can take.
type ModelLimits struct {
	VocabSize      int   // token ids are below
	MaxPositions   int   // tokens of one sequence, prompt and completion
	KVBytesPerPage int64 // PageTokens tokens in all layers, keys and values
}

// FromModel adapts a loaded model, which it does not close. The model has the activations of one step only, so one
// engine at a time may use it.
func FromModel(m *model.Model) Forwarder { return adaptedModel{m} }

type adaptedModel struct{ m *model.Model }

func (a adaptedModel) Limits() ModelLimits {
	c := a.m.Config()
	return ModelLimits{VocabSize: c.VocabSize, MaxPositions: c.MaxPositions, KVBytesPerPage: c.KVBytesPerPage}
}

func (a adaptedModel) NewCache(pages int) (Cache, error) {
	c, err := a.m.NewCache(pages)
	if err != nil {
		return nil, err
	}
	return adaptedCache{a.m, c}, nil
}

type adaptedCache struct {
	m     *model.Model
	cache *model.Cache
}

func (c adaptedCache) Forward(ctx context.Context, b *device.Batch, logits [][]float32) error {
	return c.m.Forward(ctx, c.cache, b, logits)
}

func (c adaptedCache) CopyPage(dst, src int32, tokens int) { c.m.CopyPage(c.cache, dst, src, tokens) }

func (c adaptedCache) Close() error { return c.cache.Close() }
