// Package device is the contract between the one forward pass (infer/model) and the machines that compute it
// (infer/cpu, cuda): the ragged batch, weights, the paged KV cache, and about a dozen fused operations.
//
// # Contract
//
// A Device holds weights and makes caches and runners. A Runner owns the activations of one step: the operations read
// and write the registers named in their comments (residual, input, attention output, hidden) and follow one another in
// the order of a transformer layer. Operations may be queued; Head waits for them and reports what went wrong.
//
// Arithmetic: results of a row depend on that row's sequence alone, never on its neighbours in the batch, on the way a
// prompt was cut into chunks, or on the number of threads; see package cpu for the rules its instruction sets share.
//
// A Runner and the caches it works on belong to one goroutine at a time; everything else is safe for concurrent use.
package device

import (
	"context"

	"github.com/batchmill/batchmill/infer/quant"
)

// Device is a machine that can run a model.
type Device interface {
	// Name says what computes, for reports: "cpu (avx512, 8 threads)".
	Name() string
	// MatrixBytes is what Matrix will hold in the device's memory for a weight of that shape and type.
	MatrixBytes(t quant.Type, out, in int) int64
	// Matrix takes the weight of a linear layer. src.Data may be used until the matrix is closed.
	Matrix(ctx context.Context, src MatrixSource) (Matrix, error)
	// Table takes a matrix whose rows are looked up, such as the token embedding.
	Table(ctx context.Context, src MatrixSource) (Matrix, error)
	// Vector takes a small weight: a norm's or a bias.
	Vector(v []float32) (Vector, error)
	// CacheBytes is the memory that a cache of that shape takes.
	CacheBytes(shape CacheShape) int64
	// Cache makes a KV cache.
	Cache(shape CacheShape) (Cache, error)
	// Runner makes the activations for batches of a model of that shape. They grow with the largest batch seen.
	Runner(shape Shape) (Runner, error)
	Close() error
}

// MatrixSource is a weight [Out][In] as stored in a file.
type MatrixSource struct {
	Name    string
	Type    quant.Type
	Out, In int
	Data    []byte  // at least as many rows as Rows names, each Type.RowBytes(In)
	Rows    []int32 // row Rows[o] of Data is output o; nil: row o
	// Streamed asks the device to keep Data as it is and to unpack it at every use: slower, but without the memory of
	// MatrixBytes. The results are the same bits.
	Streamed bool
}

// Matrix is a weight that a device has taken.
type Matrix interface {
	Shape() (out, in int)
	Bytes() int64 // memory held, without what the source's file maps
	Close() error // gives the memory back
}

// Vector is a small weight that a device has taken.
type Vector interface{ Len() int }

// Linear is a linear layer: y = W x + b. Bias is nil where there is none.
type Linear struct {
	Weight Matrix
	Bias   Vector
}

// Norm is an RMS norm: x / sqrt(mean(x^2) + Eps) * Weight.
type Norm struct {
	Weight Vector
	Eps    float32
}

// Rope is a rotary position embedding over pairs (i, i+Dim/2) of the first Dim values of a head. The angle of pair i at
// position p is p*InvFreq[i]; Scale multiplies cosine and sine (YaRN's attention factor, else 1).
type Rope struct {
	InvFreq []float64 // [Dim/2]
	Scale   float64
}

// Shape is the size of a model's activations.
type Shape struct {
	Hidden, Intermediate    int
	Heads, KVHeads, HeadDim int
	Vocab                   int
	Ropes                   []*Rope // all that layers may name
}

// CacheShape is the size of a KV cache.
type CacheShape struct {
	Layers, KVHeads, HeadDim, Pages int
}

// Cache is the KV storage of pages, for all layers.
type Cache interface {
	Pages() int
	Bytes() int64
	// CopyPage copies the first tokens of page src to page dst in all layers; what dst held before is gone.
	CopyPage(dst, src int32, tokens int)
	Close() error
}

// QKV are the projections in front of attention. QNorm and KNorm, per head, come before the rotation; both may be nil.
// A nil Rope rotates nothing.
type QKV struct {
	Q, K, V      Linear
	QNorm, KNorm *Norm
	Rope         *Rope
}

// Attention says how queries weigh keys: softmax(Scale * q.k). With Window w > 0 a token sees itself and the w-1 before
// it.
type Attention struct {
	Scale  float32
	Window int
}

// Runner computes steps. The batch given to Begin has been validated and stays unchanged until Head returns.
type Runner interface {
	// Begin starts a step on a cache.
	Begin(c Cache, b *Batch) error
	// Embed: residual = table[token].
	Embed(table Matrix)
	// Norm: input = norm(residual).
	Norm(n Norm)
	// QKV: queries, keys and values of input; keys and values go to the cache's pages of that layer.
	QKV(layer int, p *QKV)
	// Attend: attention output = the queries against the layer's pages, heads concatenated.
	Attend(layer int, p *Attention)
	// Output: residual += W attention + b.
	Output(l Linear)
	// GateUp: hidden = silu(gate input) * (up input).
	GateUp(gate, up Linear)
	// Down: residual += W hidden + b.
	Down(l Linear)
	// Narrow: from here on only the rows of b.Logits are computed, in that order. It comes once, in the last layer after
	// QKV: the keys and values of all tokens are in the cache then, and nothing needs the other rows any more.
	Narrow()
	// Head: logits[i][:Vocab] = W norm(residual of row b.Logits[i]) + b. It waits until the step is done.
	Head(n Norm, l Linear, logits [][]float32) error
}
