package model

import (
	"context"
	"fmt"
	"slices"

	"github.com/batchmill/batchmill/infer/device"
)

// Config describes a loaded model.
type Config struct {
	Architecture  string
	Device        string
	VocabSize     int
	MaxPositions  int
	Layers        int
	Hidden        int
	Intermediate  int
	Heads         int
	KVHeads       int
	HeadDim       int
	SlidingWindow int     // tokens that windowed layers see; 0: all layers see everything
	BOS           int32   // -1: none
	EOS           []int32 // every token that ends a text, as config and generation_config or GGUF metadata say

	KVBytesPerPage int64 // of device.PageTokens tokens
	WeightBytes    int64 // weights held in the device's memory
	WeightFile     int64 // the same weights as they are stored
	Streamed       int   // weights that are unpacked at every use
}

// layer is one transformer layer.
type layer struct {
	attentionNorm device.Norm
	qkv           device.QKV
	attention     device.Attention
	output        device.Linear
	mlpNorm       device.Norm
	gate, up      device.Linear
	down          device.Linear
}

// Model is a loaded model with the activations of one step. One goroutine at a time may call Forward.
type Model struct {
	config Config
	dev    device.Device
	runner device.Runner

	embedding device.Matrix
	layers    []layer
	norm      device.Norm
	head      device.Linear
	ropes     []*device.Rope

	weights  []device.Matrix // all of the above, to be closed
	releases []func()
}

// Load checks a model's description and tensors and hands its weights to the device. Errors: *UnsupportedError,
// *TensorError (missing, of another shape, unreadable), *MemoryError, or what is wrong with the description. The source must
// stay open as long as the model.
func Load(ctx context.Context, src Source, dev device.Device, o Options) (*Model, error) {
	m, l, err := build(ctx, src, dev)
	if err != nil {
		return nil, err
	}
	if err := l.budget(o.WeightMemory); err != nil {
		return nil, err
	}
	m.weights = l.loadAll(ctx)
	m.loadEmbedding(ctx, l)
	m.releases = l.releases
	if l.err != nil {
		m.Close()
		return nil, l.err
	}
	h := l.h
	m.runner, err = dev.Runner(device.Shape{
		Hidden: h.hidden, Intermediate: h.intermediate, Heads: h.heads, KVHeads: h.kvHeads, HeadDim: h.headDim, Vocab: h.vocab,
		Ropes: m.ropes,
	})
	if err != nil {
		m.Close()
		return nil, err
	}
	m.describe(l)
	return m, nil
}

// Estimate reads the description of a model and the sizes of its tensors, and loads nothing but norms and biases.
func Estimate(ctx context.Context, src Source, dev device.Device) (Memory, error) {
	_, l, err := build(ctx, src, dev)
	if err != nil {
		return Memory{}, err
	}
	return l.memory(), nil
}

// loadEmbedding takes the table of token embeddings; its rows stay as they are stored.
func (m *Model) loadEmbedding(ctx context.Context, l *loader) {
	if l.err != nil {
		return
	}
	name := tensorName(l.h.gguf, embedding, 0, "weight")
	t, _ := l.src.Weights.Tensor(name)
	data, release, err := l.src.Weights.Data(ctx, name)
	if err != nil {
		l.fail(name, err)
		return
	}
	l.releases = append(l.releases, release)
	m.embedding, err = m.dev.Table(ctx, device.MatrixSource{Name: name, Type: t.Type, Out: t.Shape[0], In: t.Shape[1], Data: data})
	if err != nil {
		l.fail(name, err)
	}
}

func (m *Model) describe(l *loader) {
	h := l.h
	m.config = Config{
		Architecture: h.arch.name, Device: m.dev.Name(), VocabSize: h.vocab, MaxPositions: h.positions, Layers: h.layers, Hidden: h.hidden,
		Intermediate: h.intermediate, Heads: h.heads, KVHeads: h.kvHeads, HeadDim: h.headDim, SlidingWindow: h.window, BOS: h.bos, EOS: h.eos,
		KVBytesPerPage: m.dev.CacheBytes(device.CacheShape{Layers: h.layers, KVHeads: h.kvHeads, HeadDim: h.headDim, Pages: 1}),
		WeightFile:     l.memory().File,
	}
	for _, p := range l.plans {
		m.config.WeightBytes += (*p.dst).Bytes()
		if p.streamed {
			m.config.Streamed++
		}
	}
}

// Config describes the model; its slices are copies.
func (m *Model) Config() Config {
	c := m.config
	c.EOS = slices.Clone(c.EOS)
	return c
}

// Cache is the KV storage of pages on the device.
type Cache struct{ c device.Cache }

// Pages is the number of pages; Bytes the memory they take.
func (c *Cache) Pages() int   { return c.c.Pages() }
func (c *Cache) Bytes() int64 { return c.c.Bytes() }

// Close gives the memory back.
func (c *Cache) Close() error { return c.c.Close() }

// NewCache makes a cache of so many pages of device.PageTokens tokens.
func (m *Model) NewCache(pages int) (*Cache, error) {
	c, err := m.dev.Cache(device.CacheShape{Layers: m.config.Layers, KVHeads: m.config.KVHeads, HeadDim: m.config.HeadDim, Pages: pages})
	if err != nil {
		return nil, err
	}
	return &Cache{c: c}, nil
}

// CopyPage copies the first tokens of page src to page dst, in all layers.
func (m *Model) CopyPage(c *Cache, dst, src int32, tokens int) { c.c.CopyPage(dst, src, tokens) }

// Forward computes one step: keys and values of all tokens of b go to the cache's pages, and logits[i] gets the
// VocabSize logits of row b.Logits[i]. Between layers it looks at ctx; a step given up that way can be run again as it
// was. A row's logits depend on its own sequence alone; see NonFinite for rows that went wrong.
func (m *Model) Forward(ctx context.Context, c *Cache, b *device.Batch, logits [][]float32) error {
	if err := b.Validate(device.Limits{Vocab: m.config.VocabSize, Positions: m.config.MaxPositions, Pages: c.c.Pages()}); err != nil {
		return err
	}
	if len(logits) != len(b.Logits) {
		return fmt.Errorf("run a step: %d rows for %d logits", len(logits), len(b.Logits))
	}
	for i, row := range logits {
		if len(row) < m.config.VocabSize {
			return fmt.Errorf("run a step: row %d has room for %d logits, want %d", i, len(row), m.config.VocabSize)
		}
	}
	if len(b.Tokens) == 0 {
		return nil
	}
	r := m.runner
	if err := r.Begin(c.c, b); err != nil {
		return err
	}
	r.Embed(m.embedding)
	for i := range m.layers {
		if err := ctx.Err(); err != nil {
			return err
		}
		l := &m.layers[i]
		r.Norm(l.attentionNorm)
		r.QKV(i, &l.qkv)
		if i == len(m.layers)-1 {
			r.Narrow()
		}
		r.Attend(i, &l.attention)
		r.Output(l.output)
		r.Norm(l.mlpNorm)
		r.GateUp(l.gate, l.up)
		r.Down(l.down)
	}
	return r.Head(m.norm, m.head, logits)
}

// Close lets go of the weights. The device stays open.
func (m *Model) Close() error {
	for _, w := range m.weights {
		w.Close()
	}
	for _, release := range m.releases {
		release()
	}
	m.weights, m.releases, m.layers, m.runner = nil, nil, nil, nil
	return nil
}

// NonFinite tells whether a row of logits holds a NaN or an infinity: then its sequence has failed.
func NonFinite(row []float32) bool {
	// x-x is 0 for finite x and NaN otherwise, and NaN stays in a sum.
	var sum float32
	for _, x := range row {
		sum += x - x
	}
	return sum != 0
}
