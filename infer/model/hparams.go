package model

import "fmt"

// hparams are the numbers that describe a model, in one vocabulary for config.json and GGUF.
type hparams struct {
	arch *architecture
	gguf bool

	hidden, intermediate   int
	layers, heads, kvHeads int
	headDim                int
	vocab                  int
	positions              int
	eps                    float64
	tied                   bool // the head is the embedding
	attentionBias, mlpBias bool // config.json only: GGUF files show biases by having them
	window                 int  // sliding window in tokens; 0: none
	windowed               func(layer int) bool
	rope                   ropeParams
	bos                    int32 // -1: none
	eos                    []int32
}

// Limits of what a description may ask for. They are far above any known model and keep products within int64.
const (
	maxWidth     = 1 << 20 // hidden, intermediate, heads*headDim
	maxLayers    = 1 << 12
	maxVocab     = 1 << 24
	maxPositions = 1 << 30
	maxTheta     = 1e15
)

// check refuses numbers that no model has, before anything is sized by them.
func (h *hparams) check() error {
	for _, c := range []struct {
		name       string
		value, max int
	}{
		{"hidden size", h.hidden, maxWidth}, {"intermediate size", h.intermediate, maxWidth}, {"layers", h.layers, maxLayers},
		{"attention heads", h.heads, maxWidth}, {"KV heads", h.kvHeads, maxWidth}, {"head dimension", h.headDim, maxWidth},
		{"vocabulary", h.vocab, maxVocab}, {"positions", h.positions, maxPositions},
	} {
		if c.value < 1 || c.value > c.max {
			return fmt.Errorf("read model description: %s is %d, want 1 to %d", c.name, c.value, c.max)
		}
	}
	if h.heads%h.kvHeads != 0 {
		return fmt.Errorf("read model description: %d attention heads do not share %d KV heads evenly", h.heads, h.kvHeads)
	}
	if h.heads > maxWidth/h.headDim {
		return fmt.Errorf("read model description: %d heads of %d are too wide", h.heads, h.headDim)
	}
	if !(h.eps > 0 && h.eps < 1) {
		return fmt.Errorf("read model description: the norm's epsilon is %g", h.eps)
	}
	if h.rope.dim < 2 || h.rope.dim > h.headDim || h.rope.dim%2 != 0 {
		return fmt.Errorf("read model description: rotary embedding of %d values in heads of %d", h.rope.dim, h.headDim)
	}
	if !(h.rope.theta > 1 && h.rope.theta < maxTheta) {
		return fmt.Errorf("read model description: rope theta is %g", h.rope.theta)
	}
	return nil
}

// addEOS adds end tokens to the set.
func (h *hparams) addEOS(ids ...int32) {
next:
	for _, id := range ids {
		for _, have := range h.eos {
			if have == id {
				continue next
			}
		}
		h.eos = append(h.eos, id)
	}
}
