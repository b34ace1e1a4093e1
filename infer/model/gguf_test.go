package model

import (
	"context"
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/batchmill/batchmill/infer/cpu"
	"github.com/batchmill/batchmill/infer/quant"
)

// memory is a set of weights made up by a test.
type memory map[string]memoryTensor

type memoryTensor struct {
	info quant.TensorInfo
	data []byte
}

func (m memory) Tensors() []quant.TensorInfo {
	var all []quant.TensorInfo
	for _, t := range m {
		all = append(all, t.info)
	}
	slices.SortFunc(all, func(a, b quant.TensorInfo) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func (m memory) Tensor(name string) (quant.TensorInfo, bool) {
	t, ok := m[name]
	return t.info, ok
}

func (m memory) Data(_ context.Context, name string) ([]byte, func(), error) {
	return m[name].data, func() {}, nil
}

func (m memory) add(name string, typ quant.Type, shape []int, data []byte) {
	m[name] = memoryTensor{quant.TensorInfo{Name: name, Type: typ, Shape: shape, Bytes: int64(len(data))}, data}
}

// copyOf reads all tensors of a source into memory.
func copyOf(t testing.TB, src Source) memory {
	t.Helper()
	m := memory{}
	for _, info := range src.Weights.Tensors() {
		data, release, err := src.Weights.Data(t.Context(), info.Name)
		if err != nil {
			t.Fatal(err)
		}
		m.add(info.Name, info.Type, info.Shape, slices.Clone(data))
		release()
	}
	return m
}

// metadata are GGUF keys made up by a test.
type metadata map[string]any

func (m metadata) String(k string) (string, bool) { v, ok := m[k].(string); return v, ok }
func (m metadata) Float(k string) (float64, bool) { v, ok := m[k].(float64); return v, ok }
func (m metadata) Bool(k string) (bool, bool)     { v, ok := m[k].(bool); return v, ok }
func (m metadata) Uint(k string) (uint64, bool) {
	v, ok := m[k].(int)
	return uint64(v), ok
}

// toGGUF turns a safetensors model into what a GGUF converter writes: other names, and for the llama family queries and keys
// in the order of llama.cpp's convert_hf_to_gguf, reshape(heads, 2, headDim/2, in).swapaxes(1, 2).
func toGGUF(t *testing.T, src Source) Source {
	t.Helper()
	h, err := src.hparams()
	if err != nil {
		t.Fatal(err)
	}
	arch := h.arch.gguf[0]
	hf, out := copyOf(t, src), memory{}
	for r := range numRoles {
		for layer := range h.layers {
			for _, kind := range []string{"weight", "bias"} {
				from, ok := hf[tensorName(false, r, layer, kind)]
				if !ok {
					continue
				}
				data := from.data
				if h.arch.interleaved && (r == queries || r == keysRole) {
					data = interleave(data, from.info.Shape[0], h.headDim)
				}
				out.add(tensorName(true, r, layer, kind), from.info.Type, from.info.Shape, data)
			}
		}
	}
	m := metadata{
		"general.architecture": arch, arch + ".embedding_length": h.hidden, arch + ".feed_forward_length": h.intermediate,
		arch + ".block_count": h.layers, arch + ".attention.head_count": h.heads, arch + ".attention.head_count_kv": h.kvHeads,
		arch + ".attention.key_length": h.headDim, arch + ".attention.value_length": h.headDim, arch + ".context_length": h.positions,
		arch + ".attention.layer_norm_rms_epsilon": h.eps, arch + ".rope.freq_base": h.rope.theta, arch + ".rope.dimension_count": h.rope.dim,
		"tokenizer.ggml.bos_token_id": int(h.bos), "tokenizer.ggml.eos_token_id": int(h.eos[0]), "tokenizer.ggml.eot_token_id": 7,
	}
	switch h.rope.kind {
	case "linear", "yarn":
		m[arch+".rope.scaling.type"], m[arch+".rope.scaling.factor"] = h.rope.kind, h.rope.factor
		m[arch+".rope.scaling.original_context_length"] = h.rope.original
	case "llama3":
		var factors []byte
		for i := range h.rope.dim / 2 {
			f := math.Pow(h.rope.theta, -2*float64(i)/float64(h.rope.dim))
			factors = binary.LittleEndian.AppendUint32(factors, math.Float32bits(float32(f/h.rope.llama3(f))))
		}
		out.add("rope_freqs.weight", quant.F32, []int{h.rope.dim / 2}, factors)
	}
	return Source{Weights: out, Metadata: m}
}

// interleave puts row j of a head's first half and row j of its second half side by side.
func interleave(data []byte, rows, headDim int) []byte {
	size := len(data) / rows
	out := make([]byte, 0, len(data))
	for head := 0; head < rows; head += headDim {
		for j := range headDim / 2 {
			for p := range 2 {
				from := head + p*headDim/2 + j
				out = append(out, data[from*size:(from+1)*size]...)
			}
		}
	}
	return out
}

// TestGGUFGivesTheSame: the same model as GGUF gives the same bits; with llama3's scaling, whose factors a GGUF file rounds to
// float32, nearly so.
func TestGGUFGivesTheSame(t *testing.T) {
	for _, name := range goldenModels {
		if name == "mistral" {
			continue // its GGUF files are of architecture llama, without the window
		}
		t.Run(name, func(t *testing.T) {
			src, dev := folder(t, name), newDevice(t, cpu.Config{})
			ref, m := load(t, src, dev, Options{}), load(t, toGGUF(t, src), dev, Options{})
			if c := m.Config(); c.BOS != 1 || !slices.Equal(c.EOS, []int32{2, 7}) || c.VocabSize != ref.Config().VocabSize {
				t.Errorf("the description is %+v", c)
			}
			ids := prompts(m.Config().VocabSize)[9]
			got, want := alone(t, m, ids), alone(t, ref, ids)
			for i := range ids {
				if name != "llama_rope_llama3" {
					sameBits(t, "token", got[i], want[i])
					continue
				}
				for j := range got[i] {
					if d := math.Abs(float64(got[i][j] - want[i][j])); d > 1e-4 {
						t.Fatalf("logit %d of token %d is off by %g", j, i, d)
					}
				}
			}
		})
	}
}
