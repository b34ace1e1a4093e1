package model

import (
	"fmt"
	"math"
)

// keys reads the metadata of one architecture: "{arch}.name".
type keys struct {
	m    Metadata
	arch string
	err  error
}

// need reads a number that must be there.
func (k *keys) need(name string) int {
	v, ok := k.number(name)
	if !ok && k.err == nil {
		k.err = fmt.Errorf("read GGUF metadata: %s.%s is missing or is not a number", k.arch, name)
	}
	return v
}

// number reads a number that may be missing.
func (k *keys) number(name string) (int, bool) {
	v, ok := k.m.Uint(k.arch + "." + name)
	if !ok || v > math.MaxInt32 {
		return 0, false
	}
	return int(v), true
}

// or reads a number with a default.
func (k *keys) or(name string, value int) int {
	if v, ok := k.number(name); ok {
		return v
	}
	return value
}

func (k *keys) float(name string, value float64) float64 {
	if v, ok := k.m.Float(k.arch + "." + name); ok {
		return v
	}
	return value
}

// fromGGUF reads a GGUF file's metadata. Key names: the GGUF specification, docs/gguf.md of ggml.
func fromGGUF(m Metadata, w Weights) (*hparams, error) {
	name, _ := m.String("general.architecture")
	arch, err := findGGUF(name)
	if err != nil {
		return nil, err
	}
	k := &keys{m: m, arch: name}
	h := &hparams{
		arch: arch, gguf: true, bos: -1,
		hidden: k.need("embedding_length"), intermediate: k.need("feed_forward_length"), layers: k.need("block_count"),
		heads: k.need("attention.head_count"), positions: k.need("context_length"),
		eps: k.float("attention.layer_norm_rms_epsilon", 0),
	}
	if k.err != nil {
		return nil, k.err
	}
	if k.or("expert_count", 0) > 0 {
		return nil, fmt.Errorf("read GGUF metadata: %s with experts is not supported", name)
	}
	h.kvHeads = k.or("attention.head_count_kv", h.heads)
	if h.heads > 0 {
		h.headDim = k.or("attention.key_length", h.hidden/h.heads)
	}
	if v := k.or("attention.value_length", h.headDim); v != h.headDim {
		return nil, fmt.Errorf("read GGUF metadata: keys of %d and values of %d differ, which is not supported", h.headDim, v)
	}
	if t, ok := w.Tensor("token_embd.weight"); ok && len(t.Shape) == 2 {
		h.vocab = t.Shape[0]
	}
	_, head := w.Tensor("output.weight")
	h.tied = !head
	if h.window = k.or("attention.sliding_window", 0); h.window > 0 {
		h.windowed = func(int) bool { return true }
	}
	r := &h.rope
	r.theta = k.float("rope.freq_base", defaultTheta)
	r.dim = k.or("rope.dimension_count", h.headDim)
	r.kind, _ = m.String(name + ".rope.scaling.type")
	r.factor = k.float("rope.scaling.factor", 1)
	if old := k.float("rope.scale_linear", 0); old > 0 && r.kind == "" {
		r.kind, r.factor = "linear", old
	}
	r.original = k.or("rope.scaling.original_context_length", h.positions)
	if v, ok := m.Float(name + ".rope.scaling.attn_factor"); ok {
		r.ggufAttention = v
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	if id, ok := tokenKey(m, "bos"); ok {
		h.bos = id
	}
	for _, end := range []string{"eos", "eot", "eom"} {
		if id, ok := tokenKey(m, end); ok {
			h.addEOS(id)
		}
	}
	return h, h.check()
}

func tokenKey(m Metadata, name string) (int32, bool) {
	v, ok := m.Uint("tokenizer.ggml." + name + "_token_id")
	if !ok || v > math.MaxInt32 {
		return 0, false
	}
	return int32(v), true
}
