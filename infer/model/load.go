package model

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/batchmill/batchmill/infer/device"
	"github.com/batchmill/batchmill/infer/quant"
)

// Options say how to load.
type Options struct {
	// WeightMemory bounds the bytes of weights in the device's own form; 0 is no bound. Weights that do not fit are kept as
	// they are in the file and unpacked at every use: slower, with the same results.
	WeightMemory int64
}

// Memory is what a model takes.
type Memory struct {
	Unpacked int64 // all weights in the device's own form
	File     int64 // all weights as they are stored
}

// MemoryError says that a model does not fit.
type MemoryError struct{ Needed, Available int64 }

func (e *MemoryError) Error() string {
	return fmt.Sprintf("not enough memory for the weights: %d bytes are needed, %d are available", e.Needed, e.Available)
}

// TensorError says what is wrong with one tensor of a model.
type TensorError struct {
	Name string
	Err  error
}

func (e *TensorError) Error() string { return fmt.Sprintf("tensor %s: %v", e.Name, e.Err) }
func (e *TensorError) Unwrap() error { return e.Err }

// ErrMissingTensor is what a TensorError wraps when a tensor is not in the files.
var ErrMissingTensor = errors.New("it is missing from the weight files")

// matrixPlan is a weight that will be loaded.
type matrixPlan struct {
	dst      *device.Matrix
	info     quant.TensorInfo
	out, in  int
	rows     []int32
	packed   int64
	streamed bool
}

// loader collects the tensors of a model, checks them against the description, and loads them.
type loader struct {
	src      Source
	h        *hparams
	dev      device.Device
	used     map[string]bool
	plans    []*matrixPlan
	releases []func()
	err      error
}

func (l *loader) fail(name string, err error) {
	if l.err == nil {
		l.err = &TensorError{Name: name, Err: err}
	}
}

// find looks a tensor up and checks its shape. The first thing that is wrong stays in l.err.
func (l *loader) find(r role, layer int, kind string, shape ...int) (quant.TensorInfo, bool) {
	name := tensorName(l.h.gguf, r, layer, kind)
	t, ok := l.src.Weights.Tensor(name)
	if !ok {
		l.fail(name, ErrMissingTensor)
		return t, false
	}
	l.used[name] = true
	if !slices.Equal(t.Shape, shape) {
		l.fail(name, fmt.Errorf("its shape is %v, want %v", t.Shape, shape))
		return t, false
	}
	return t, l.err == nil
}

func (l *loader) has(r role, layer int, kind string) bool {
	_, ok := l.src.Weights.Tensor(tensorName(l.h.gguf, r, layer, kind))
	return ok
}

// wants tells whether a layer has an optional tensor.
func (l *loader) wants(p presence, r role, layer int) bool {
	switch {
	case p == never:
		return false
	case p == always:
		return true
	case l.h.gguf:
		return l.has(r, layer, "bias")
	case p == byAttention:
		return l.h.attentionBias
	default:
		return l.h.mlpBias
	}
}

// matrix plans a weight for dst. rows, if not nil, is the order in which its rows are taken.
func (l *loader) matrix(dst *device.Matrix, r role, layer, out, in int, rows []int32) {
	t, ok := l.find(r, layer, "weight", out, in)
	if ok {
		l.plans = append(l.plans, &matrixPlan{dst: dst, info: t, out: out, in: in, rows: rows, packed: l.dev.MatrixBytes(t.Type, out, in)})
	}
}

// values reads a small tensor as float32.
func (l *loader) values(ctx context.Context, r role, layer int, kind string, n int) []float32 {
	t, ok := l.find(r, layer, kind, n)
	if !ok {
		return nil
	}
	data, release, err := l.src.Weights.Data(ctx, t.Name)
	if err != nil {
		l.fail(t.Name, err)
		return nil
	}
	defer release()
	size, err := t.Type.RowBytes(n)
	if err != nil || len(data) != size {
		l.fail(t.Name, fmt.Errorf("it has %d bytes, want %d values of %v", len(data), n, t.Type))
		return nil
	}
	v := make([]float32, n)
	quant.Dequantize(t.Type, v, data)
	return v
}

// vector loads a small tensor; order, if not nil, is the order in which its values are taken.
func (l *loader) vector(ctx context.Context, r role, layer int, kind string, n int, order []int32) device.Vector {
	v := l.values(ctx, r, layer, kind, n)
	if v == nil {
		return nil
	}
	if order != nil {
		sorted := make([]float32, n)
		for i, o := range order {
			sorted[i] = v[o]
		}
		v = sorted
	}
	d, err := l.dev.Vector(v)
	if err != nil {
		l.fail(tensorName(l.h.gguf, r, layer, kind), err)
		return nil
	}
	return d
}

// bias loads a bias if the layer has one, else gives nil.
func (l *loader) bias(ctx context.Context, p presence, r role, layer, n int, order []int32) device.Vector {
	if !l.wants(p, r, layer) {
		return nil
	}
	return l.vector(ctx, r, layer, "bias", n, order)
}

func (l *loader) norm(ctx context.Context, r role, layer, n int) device.Norm {
	return device.Norm{Weight: l.vector(ctx, r, layer, "weight", n, nil), Eps: float32(l.h.eps)}
}

// loadAll hands the planned weights to the device. It returns those that were loaded, after an error too.
func (l *loader) loadAll(ctx context.Context) (loaded []device.Matrix) {
	for _, p := range l.plans {
		if l.err != nil {
			return loaded
		}
		data, release, err := l.src.Weights.Data(ctx, p.info.Name)
		if err != nil {
			l.fail(p.info.Name, err)
			return loaded
		}
		src := device.MatrixSource{Name: p.info.Name, Type: p.info.Type, Out: p.out, In: p.in, Data: data, Rows: p.rows, Streamed: p.streamed}
		m, err := l.dev.Matrix(ctx, src)
		if p.streamed {
			l.releases = append(l.releases, release)
		} else {
			release()
		}
		if err != nil {
			l.fail(p.info.Name, err)
			return loaded
		}
		*p.dst = m
		loaded = append(loaded, m)
	}
	return loaded
}

// budget decides which weights are unpacked: as many as fit, in the order of the plans.
func (l *loader) budget(limit int64) error {
	mem := l.memory()
	if limit <= 0 || mem.Unpacked <= limit {
		return nil
	}
	if mem.File > limit {
		return &MemoryError{Needed: mem.File, Available: limit}
	}
	left := limit
	for _, p := range l.plans {
		p.streamed = p.packed > left
		if !p.streamed {
			left -= p.packed
		}
	}
	return nil
}

// memory adds the plans up.
func (l *loader) memory() Memory {
	var m Memory
	for _, t := range l.src.Weights.Tensors() {
		if l.used[t.Name] {
			m.File += t.Bytes
		}
	}
	for _, p := range l.plans {
		m.Unpacked += p.packed
	}
	return m
}

// unused refuses tensors that nothing reads: the file is then of another architecture than it says.
func (l *loader) unused() error {
	var names []string
	for _, t := range l.src.Weights.Tensors() {
		if !l.used[t.Name] && !derived(t.Name) {
			names = append(names, t.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	const shown = 3
	more := ""
	if len(names) > shown {
		more = fmt.Sprintf(" and %d more", len(names)-shown)
		names = names[:shown]
	}
	return fmt.Errorf("architecture %s has no use for tensors %s%s of the weight files", l.h.arch.name, strings.Join(names, ", "), more)
}

// pairOrder is where the rows of interleaved queries or keys come from: row i of a head's first half and its partner lie
// side by side in the file.
func pairOrder(heads, headDim, ropeDim int) []int32 {
	order := make([]int32, 0, heads*headDim)
	for h := range heads {
		for i := range headDim {
			from := i
			switch half := ropeDim / 2; {
			case i < half:
				from = 2 * i
			case i < ropeDim:
				from = 2*(i-half) + 1
			}
			order = append(order, int32(h*headDim+from))
		}
	}
	return order
}
