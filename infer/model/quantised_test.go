package model

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"strings"
	"testing"

	"github.com/batchmill/batchmill/infer/cpu"
	"github.com/batchmill/batchmill/infer/quant"
)

// quantised presents the linear layers of a float32 model in block formats, each layer in another one, so that a model of a few
// kilobytes goes through the integer kernels. With some, a few stay float32, which mixes both kinds in one operation.
type quantised struct {
	Weights
	t    testing.TB
	some bool
}

func (q quantised) typeOf(info quant.TensorInfo) quant.Type {
	if len(info.Shape) != 2 || info.Shape[1]%32 != 0 || strings.Contains(info.Name, "norm") || info.Type != quant.F32 {
		return info.Type
	}
	types := []quant.Type{quant.Q8_0, quant.Q4_0, quant.Q4_1, quant.Q5_0, quant.Q5_1}
	if q.some {
		types = append(types, quant.F32, quant.F32, quant.F32)
	}
	h := fnv.New32a()
	fmt.Fprint(h, info.Name)
	return types[h.Sum32()%uint32(len(types))]
}

func (q quantised) Tensors() []quant.TensorInfo {
	all := append([]quant.TensorInfo(nil), q.Weights.Tensors()...)
	for i := range all {
		all[i], _ = q.Tensor(all[i].Name)
	}
	return all
}

func (q quantised) Tensor(name string) (quant.TensorInfo, bool) {
	info, ok := q.Weights.Tensor(name)
	if ok {
		info.Type = q.typeOf(info)
		info.Bytes, _ = quant.Size(info.Type, info.Shape)
	}
	return info, ok
}

func (q quantised) Data(ctx context.Context, name string) ([]byte, func(), error) {
	data, release, err := q.Weights.Data(ctx, name)
	info, _ := q.Tensor(name)
	if err != nil || info.Type == quant.F32 {
		return data, release, err
	}
	defer release()
	values := make([]float32, info.Values())
	quant.Dequantize(quant.F32, values, data)
	var out []byte
	for ; len(values) > 0; values = values[32:] {
		out = append(out, roundBlock(q.t, info.Type, values[:32])...)
	}
	return out, func() {}, nil
}

// roundBlock writes 32 values in a block format, roughly: what matters is that the block is an ordinary one.
func roundBlock(t testing.TB, typ quant.Type, x []float32) []byte {
	low, high := x[0], x[0]
	for _, v := range x {
		low, high = min(low, v), max(high, v)
	}
	_, size := typ.Block()
	block := make([]byte, size)
	f, _ := typ.Form()
	top := float32(int(1) << f.Bits)
	scale, base := max(high, -low)/(top/2-1), float32(0)
	if f.Min {
		scale, base = (high-low)/(top-1), low
	}
	binary.LittleEndian.PutUint16(block, halfOf(t, scale))
	scale = quant.HalfToFloat32(binary.LittleEndian.Uint16(block))
	at := 2
	if f.Min {
		binary.LittleEndian.PutUint16(block[2:], halfOf(t, base))
		base = quant.HalfToFloat32(binary.LittleEndian.Uint16(block[2:]))
		at = 4
	}
	codes := make([]int, len(x))
	for i, v := range x {
		codes[i] = int(math.Round(float64((v-base)/scale))) + f.Bias
		if f.Bits < 8 {
			codes[i] = min(max(codes[i], 0), int(top)-1)
		}
	}
	if f.Bits == 8 {
		for i, c := range codes {
			block[2+i] = byte(int8(c))
		}
		return block
	}
	if f.Bits == 5 {
		bits := uint32(0)
		for i, c := range codes {
			bits |= uint32(c>>4) << i
		}
		binary.LittleEndian.PutUint32(block[at:], bits)
		at += 4
	}
	for i := range 16 {
		block[at+i] = byte(codes[i]&15 | codes[16+i]&15<<4)
	}
	return block
}

// halfOf rounds towards zero to a normal float16.
func halfOf(t testing.TB, x float32) uint16 {
	b := math.Float32bits(x)
	exp := int(b>>23&255) - 127 + 15
	if x == 0 || exp < 1 || exp > 30 {
		t.Fatalf("%g is no normal float16", x)
	}
	return uint16(b>>16&0x8000 | uint32(exp)<<10 | b>>13&0x3ff)
}

// TestQuantisedInvariance: with quantised weights, too, every row's logits are the same bits whatever the batch, the chunks, the
// threads and the instruction set, in all modes of activations, and with weights of both kinds side by side.
func TestQuantisedInvariance(t *testing.T) {
	for _, some := range []bool{false, true} {
		for _, name := range []string{"llama", "llama_bias_linear", "qwen3"} {
			for _, a := range []cpu.Activations{cpu.ActivationsF32, cpu.ActivationsInt16, cpu.ActivationsInt8} {
				t.Run(fmt.Sprintf("%s/%s/some=%v", name, a, some), func(t *testing.T) {
					src := folder(t, name)
					src.Weights = quantised{Weights: src.Weights, t: t, some: some}
					ref := load(t, src, newDevice(t, cpu.Config{Threads: 1, ISA: "portable", Activations: a}), Options{})
					all := prompts(ref.Config().VocabSize)[:7]
					var want [][][]float32
					for _, ids := range all {
						want = append(want, alone(t, ref, ids))
					}
					for _, isa := range cpu.ISAs() {
						if isa == "portable" {
							continue
						}
						m := load(t, src, newDevice(t, cpu.Config{Threads: 2, ISA: isa, Activations: a}), Options{})
						for seed, chunk := range []int{1, 7, 200} {
							got := mixed(t, m, all, uint64(seed), chunk)
							for i := range all {
								for j := range all[i] {
									if got[i][j] != nil {
										sameBits(t, fmt.Sprintf("%s, chunks to %d, sequence %d, token %d", isa, chunk, i, j), got[i][j], want[i][j])
									}
								}
							}
						}
					}
				})
			}
		}
	}
}

// TestActivationsAreClose: rounding activations to 16 bits changes the log-probabilities of a quantised model by next to nothing, to
// 8 bits by little; the modes do differ.
func TestActivationsAreClose(t *testing.T) {
	src := folder(t, "qwen3")
	src.Weights = quantised{Weights: src.Weights, t: t}
	ids := prompts(512)[9]
	logits := map[cpu.Activations][][]float32{}
	for _, a := range []cpu.Activations{cpu.ActivationsF32, cpu.ActivationsInt16, cpu.ActivationsInt8} {
		logits[a] = alone(t, load(t, src, newDevice(t, cpu.Config{Activations: a}), Options{}), ids)
	}
	for a, most := range map[cpu.Activations]float64{cpu.ActivationsInt16: 0.01, cpu.ActivationsInt8: 1} {
		worst := 0.0
		for i, row := range logits[a] {
			for j, v := range row {
				worst = max(worst, math.Abs(float64(v-logits[cpu.ActivationsF32][i][j])))
			}
		}
		t.Logf("%s: largest difference of a logit %g", a, worst)
		if worst > most || worst == 0 {
			t.Errorf("%s: the largest difference of a logit is %g, want above 0 and at most %g", a, worst, most)
		}
	}
}
