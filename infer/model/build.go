package model

import (
	"context"
	"math"

	"github.com/batchmill/batchmill/infer/device"
)

// build checks the whole model against its files, loads the small tensors and plans the weights.
func build(ctx context.Context, src Source, dev device.Device) (*Model, *loader, error) {
	h, err := src.hparams()
	if err != nil {
		return nil, nil, err
	}
	l := &loader{src: src, h: h, dev: dev, used: map[string]bool{}}
	m := &Model{dev: dev, layers: make([]layer, h.layers)}
	var factors []float32
	if h.gguf && l.has(ropeFactors, 0, "weight") {
		factors = l.values(ctx, ropeFactors, 0, "weight", h.rope.dim/2)
	}
	rope, err := h.rope.table(factors)
	if err != nil {
		return nil, nil, err
	}
	m.ropes = []*device.Rope{rope}
	for i := range m.layers {
		l.layer(ctx, i, &m.layers[i], rope)
		if l.err != nil {
			return nil, nil, l.err
		}
	}
	m.norm = l.norm(ctx, finalNorm, 0, h.hidden)
	l.find(embedding, 0, "weight", h.vocab, h.hidden)
	if h.tied {
		l.matrix(&m.head.Weight, embedding, 0, h.vocab, h.hidden, nil)
		l.used[tensorName(h.gguf, head, 0, "weight")] = true // some files hold a copy
	} else {
		l.matrix(&m.head.Weight, head, 0, h.vocab, h.hidden, nil)
	}
	if l.err == nil {
		l.err = l.unused()
	}
	return m, l, l.err
}

// layer declares the tensors of layer i.
func (l *loader) layer(ctx context.Context, i int, y *layer, rope *device.Rope) {
	h, a := l.h, l.h.arch
	qOut, kvOut := h.heads*h.headDim, h.kvHeads*h.headDim
	var qOrder, kOrder []int32
	if h.gguf && a.interleaved {
		qOrder, kOrder = pairOrder(h.heads, h.headDim, h.rope.dim), pairOrder(h.kvHeads, h.headDim, h.rope.dim)
	}
	y.attentionNorm = l.norm(ctx, attentionNorm, i, h.hidden)
	l.matrix(&y.qkv.Q.Weight, queries, i, qOut, h.hidden, qOrder)
	l.matrix(&y.qkv.K.Weight, keysRole, i, kvOut, h.hidden, kOrder)
	l.matrix(&y.qkv.V.Weight, valuesRole, i, kvOut, h.hidden, nil)
	y.qkv.Q.Bias = l.bias(ctx, a.qkvBias, queries, i, qOut, qOrder)
	y.qkv.K.Bias = l.bias(ctx, a.qkvBias, keysRole, i, kvOut, kOrder)
	y.qkv.V.Bias = l.bias(ctx, a.qkvBias, valuesRole, i, kvOut, nil)
	if a.qkNorm {
		qn, kn := l.norm(ctx, queryNorm, i, h.headDim), l.norm(ctx, keyNorm, i, h.headDim)
		y.qkv.QNorm, y.qkv.KNorm = &qn, &kn
	}
	y.qkv.Rope = rope
	y.attention.Scale = float32(1 / math.Sqrt(float64(h.headDim)))
	if h.window > 0 && h.windowed(i) {
		y.attention.Window = h.window
	}
	l.matrix(&y.output.Weight, output, i, h.hidden, qOut, nil)
	y.output.Bias = l.bias(ctx, a.outBias, output, i, h.hidden, nil)
	y.mlpNorm = l.norm(ctx, mlpNorm, i, h.hidden)
	l.matrix(&y.gate.Weight, gate, i, h.intermediate, h.hidden, nil)
	l.matrix(&y.up.Weight, up, i, h.intermediate, h.hidden, nil)
	l.matrix(&y.down.Weight, down, i, h.hidden, h.intermediate, nil)
	y.gate.Bias = l.bias(ctx, a.mlpBias, gate, i, h.intermediate, nil)
	y.up.Bias = l.bias(ctx, a.mlpBias, up, i, h.intermediate, nil)
	y.down.Bias = l.bias(ctx, a.mlpBias, down, i, h.hidden, nil)
}
