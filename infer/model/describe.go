package model

import "github.com/batchmill/batchmill/infer/device"

// Describe reads what a model is without loading it. WeightBytes and Streamed, which follow from loading, stay 0.
func Describe(src Source, dev device.Device) (Config, error) {
	h, err := src.hparams()
	if err != nil {
		return Config{}, err
	}
	c := Config{
		Architecture: h.arch.name, Device: dev.Name(), VocabSize: h.vocab, MaxPositions: h.positions, Layers: h.layers, Hidden: h.hidden,
		Intermediate: h.intermediate, Heads: h.heads, KVHeads: h.kvHeads, HeadDim: h.headDim, SlidingWindow: h.window, BOS: h.bos, EOS: h.eos,
		KVBytesPerPage: dev.CacheBytes(device.CacheShape{Layers: h.layers, KVHeads: h.kvHeads, HeadDim: h.headDim, Pages: 1}),
	}
	for _, t := range src.Weights.Tensors() {
		c.WeightFile += t.Bytes
	}
	return c, nil
}
