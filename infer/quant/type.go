// Package quant names the types in which weight files store tensors and turns their blocks into float32, with the
// exact results of ggml's reference code. Adding a type is one line in the table below, one unpacking function and one
// golden (see testdata/make_goldens.py).
//
// It also holds what the readers of weight files share, TensorInfo and FileError, so that they, the model and the
// devices need not know each other.
package quant

import (
	"fmt"
	"math"
	"strconv"
)

// Type is the storage type of a tensor. The zero Type is invalid.
type Type uint8

// The supported types. Q4_0 to Q6_K are ggml's block formats: so many values share a scale.
const (
	F32 Type = iota + 1
	F16
	BF16
	Q8_0
	Q4_0
	Q4_1
	Q5_0
	Q5_1
	Q4_K
	Q5_K
	Q6_K
	numTypes
)

// format is what there is to know about a type.
type format struct {
	name   string
	ggml   uint32 // number of the type in GGUF files (enum ggml_type)
	values int    // values in a block
	bytes  int    // bytes of a block
	unpack func(dst []float32, src []byte)
}

// formats is indexed by Type. Block layouts: ggml/src/ggml-common.h.
var formats = [numTypes]format{
	F32:  {"F32", 0, 1, 4, unpackF32},
	F16:  {"F16", 1, 1, 2, unpackF16},
	BF16: {"BF16", 30, 1, 2, unpackBF16},
	Q8_0: {"Q8_0", 8, 32, 2 + 32, unpackQ8_0},
	Q4_0: {"Q4_0", 2, 32, 2 + 16, unpackQ4_0},
	Q4_1: {"Q4_1", 3, 32, 2 + 2 + 16, unpackQ4_1},
	Q5_0: {"Q5_0", 6, 32, 2 + 4 + 16, unpackQ5_0},
	Q5_1: {"Q5_1", 7, 32, 2 + 2 + 4 + 16, unpackQ5_1},
	Q4_K: {"Q4_K", 12, 256, 2 + 2 + 12 + 128, unpackQ4_K},
	Q5_K: {"Q5_K", 13, 256, 2 + 2 + 12 + 32 + 128, unpackQ5_K},
	Q6_K: {"Q6_K", 14, 256, 128 + 64 + 16 + 2, unpackQ6_K},
}

// Types lists all supported types in the order of their declaration.
func Types() []Type {
	all := make([]Type, 0, numTypes-1)
	for t := F32; t < numTypes; t++ {
		all = append(all, t)
	}
	return all
}

// Parse finds a type by its name, as String gives it.
func Parse(name string) (Type, bool) {
	for t := F32; t < numTypes; t++ {
		if formats[t].name == name {
			return t, true
		}
	}
	return 0, false
}

// FromGGML finds a type by its number in GGUF files.
func FromGGML(id uint32) (Type, bool) {
	for t := F32; t < numTypes; t++ {
		if formats[t].ggml == id {
			return t, true
		}
	}
	return 0, false
}

// Valid tells whether t is one of the supported types.
func (t Type) Valid() bool { return t >= F32 && t < numTypes }

// GGML is the number of the type in GGUF files.
func (t Type) GGML() uint32 { return formats[t].ggml }

func (t Type) String() string {
	if !t.Valid() {
		return "invalid type " + strconv.Itoa(int(t))
	}
	return formats[t].name
}

// Block gives the number of values and of bytes in one block; 1 value for the types that are no block formats.
func (t Type) Block() (values, bytes int) {
	f := &formats[t]
	return f.values, f.bytes
}

// RowBytes is the number of bytes that n values in a row take. n must be a multiple of the block's values: blocks
// never cross rows.
func (t Type) RowBytes(n int) (int, error) {
	if !t.Valid() {
		return 0, fmt.Errorf("size a row: %v", t)
	}
	f := &formats[t]
	if n < 0 || n%f.values != 0 {
		return 0, fmt.Errorf("size a row of %d values: %s needs a multiple of %d", n, f.name, f.values)
	}
	blocks := n / f.values
	if blocks > math.MaxInt/f.bytes {
		return 0, fmt.Errorf("size a row of %d values: too large", n)
	}
	return blocks * f.bytes, nil
}

// Dequantize turns len(dst) values of type t in src into float32, rounding as ggml's reference code does: each product
// and each sum once, to float32. NaNs keep their bits, apart from the quiet bit. src must hold exactly the blocks of
// len(dst) values; anything else is a mistake of the caller, and panics.
func Dequantize(t Type, dst []float32, src []byte) {
	n, err := t.RowBytes(len(dst))
	if err != nil {
		panic("quant: " + err.Error())
	}
	if n != len(src) {
		panic(fmt.Sprintf("quant: dequantize %d values of %v: have %d bytes, want %d", len(dst), t, len(src), n))
	}
	formats[t].unpack(dst, src)
}
