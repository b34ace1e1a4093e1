package model

import (
	"context"
	"encoding/binary"
	"math"
	"path/filepath"
	"testing"

	"github.com/batchmill/batchmill/infer/cpu"
	"github.com/batchmill/batchmill/infer/device"
	"github.com/batchmill/batchmill/infer/quant"
)

// floatWeights is a device that gets all weights in float32, so that attention alone is in integers.
type floatWeights struct{ *cpu.Device }

func (d floatWeights) Matrix(ctx context.Context, src device.MatrixSource) (device.Matrix, error) {
	rowBytes, err := src.Type.RowBytes(src.In)
	if err != nil {
		return nil, err
	}
	values := make([]float32, src.In)
	var data []byte
	for off := 0; off < len(src.Data); off += rowBytes {
		quant.Dequantize(src.Type, values, src.Data[off:off+rowBytes])
		for _, v := range values {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
		}
	}
	src.Type, src.Data = quant.F32, data
	return d.Device.Matrix(ctx, src)
}

// TestSmolLM2CodesPerplexity: rounding queries, keys, values and probabilities to 8 bits, and nothing else, costs less than 0.3 %.
func TestSmolLM2CodesPerplexity(t *testing.T) {
	m := load(t, smollm2(t), floatWeights{newDevice(t, cpu.Config{Activations: cpu.ActivationsInt8})}, Options{})
	var g struct {
		IDs        []int32 `json:"ids"`
		Perplexity float64 `json:"perplexity"`
	}
	readJSON(t, filepath.Join("testdata", "smollm2", "perplexity.json"), &g)
	s := newSequence(t, m, len(g.IDs))
	const chunk = 500
	sum := 0.0
	for from := 0; from < len(g.IDs); from += chunk {
		for i, row := range s.step(g.IDs[from:min(from+chunk, len(g.IDs))], true) {
			if i += from; i+1 < len(g.IDs) {
				sum += logSumExp(row) - float64(row[g.IDs[i+1]])
			}
		}
	}
	perplexity := math.Exp(sum / float64(len(g.IDs)-1))
	t.Logf("perplexity %.5f, %+.3f %% of %.5f", perplexity, 100*(perplexity/g.Perplexity-1), g.Perplexity)
	if math.Abs(perplexity/g.Perplexity-1) > 0.003 {
		t.Errorf("perplexity is %.5f, want %.5f", perplexity, g.Perplexity)
	}
}
