package gguf

import (
	"bytes"
	"encoding/binary"
	"math"
)

// builder writes GGUF files for tests, right and wrong ones.
type builder struct {
	version uint32
	keys    [][]byte
	tensors []builtTensor
	align   uint64
	count   func(tensors, keys uint64) (uint64, uint64) // changes the counts in the head
}

type builtTensor struct {
	name string
	dims []uint64 // as in the file: innermost first
	typ  uint32
	off  uint64
	data []byte
}

func str(s string) []byte {
	return append(binary.LittleEndian.AppendUint64(nil, uint64(len(s))), s...)
}

func u32(v uint32) []byte { return binary.LittleEndian.AppendUint32(nil, v) }
func u64(v uint64) []byte { return binary.LittleEndian.AppendUint64(nil, v) }

func (b *builder) key(name string, kind uint32, value ...[]byte) *builder {
	b.keys = append(b.keys, concat(str(name), u32(kind), concat(value...)))
	return b
}

// tensor adds an F32 vector of n values with data at off.
func (b *builder) tensor(name string, n, off uint64) *builder {
	data := make([]byte, 4*n)
	for i := range n {
		binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(float32(i)+float32(off)))
	}
	b.tensors = append(b.tensors, builtTensor{name, []uint64{n}, 0, off, data})
	return b
}

func (b *builder) bytes() []byte {
	version, align := b.version, b.align
	if version == 0 {
		version = 3
	}
	if align == 0 {
		align = defaultAlignment
	}
	nt, nk := uint64(len(b.tensors)), uint64(len(b.keys))
	if b.count != nil {
		nt, nk = b.count(nt, nk)
	}
	out := concat([]byte("GGUF"), u32(version), u64(nt), u64(nk), concat(b.keys...))
	for _, t := range b.tensors {
		out = concat(out, str(t.name), u32(uint32(len(t.dims))))
		for _, d := range t.dims {
			out = append(out, u64(d)...)
		}
		out = concat(out, u32(t.typ), u64(t.off))
	}
	for uint64(len(out))%align != 0 {
		out = append(out, 0)
	}
	start := uint64(len(out))
	for _, t := range b.tensors {
		for uint64(len(out)) < start+t.off+uint64(len(t.data)) {
			out = append(out, 0)
		}
		copy(out[start+t.off:], t.data)
	}
	return out
}

func concat(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// memory is a Source in memory that, unlike a mapped file, has to be read.
type memory struct {
	*bytes.Reader
	name string
}

func (m memory) Name() string { return m.name }

func source(data []byte, name string) Source { return memory{bytes.NewReader(data), name} }
