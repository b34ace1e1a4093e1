package readers

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/format"
)

// The decoders of page values. They are our own, and stream: parquet-go's allocate what a page claims, read RLE booleans
// wrongly (v0.32), and hand claimed bit widths to assembly. Source of all formats:
// github.com/apache/parquet-format/blob/master/Encodings.md

// values yields a page's non-null values one by one; slices alias the page.
type values interface {
	next() (parquet.Value, error)
}

// hybrid decodes the RLE / bit-packing hybrid of levels, dictionary indexes and booleans.
type hybrid struct {
	data  []byte
	width uint
	run   uint64 // values left in the current run
	value uint32 // of a repeated run
	packs []byte // of a bit-packed run; nil in a repeated one
	bit   uint64 // next bit of packs
}

func (h *hybrid) next() (uint32, error) {
	for h.run == 0 {
		if err := h.header(); err != nil {
			return 0, err
		}
	}
	h.run--
	if h.packs == nil {
		return h.value, nil
	}
	v, err := bitsAt(h.packs, h.bit, h.width)
	h.bit += uint64(h.width)
	return uint32(v), err
}

func (h *hybrid) header() error {
	u, n := binary.Uvarint(h.data)
	if n <= 0 {
		return fmt.Errorf("RLE run: %w", io.ErrUnexpectedEOF)
	}
	h.data = h.data[n:]
	if u&1 == 0 {
		size := int(h.width+7) / 8
		if len(h.data) < size {
			return fmt.Errorf("RLE value: %w", io.ErrUnexpectedEOF)
		}
		h.run, h.value, h.packs = u>>1, 0, nil
		for i := range size {
			h.value |= uint32(h.data[i]) << (8 * i)
		}
		h.data = h.data[size:]
		if h.width < 32 && h.value>>h.width != 0 {
			return fmt.Errorf("RLE value %d has more than %d bits", h.value, h.width)
		}
		return nil
	}
	groups := u >> 1
	size := uint64(len(h.data)) // the last run of a page may be cut short
	if h.width > 0 && groups <= size/uint64(h.width) {
		size = groups * uint64(h.width)
	}
	if h.width == 0 {
		size = 0
	}
	if groups > math.MaxUint64/8 {
		return fmt.Errorf("a bit-packed run of %d groups", groups)
	}
	h.run, h.packs, h.bit = groups*8, h.data[:size:size], 0
	h.data = h.data[size:]
	return nil
}

// bitsAt reads width (at most 64) bits, least significant first.
func bitsAt(b []byte, bit uint64, width uint) (uint64, error) {
	if width == 0 {
		return 0, nil
	}
	from, end := bit/8, (bit+uint64(width)+7)/8
	if end > uint64(len(b)) {
		return 0, fmt.Errorf("bit-packed values: %w", io.ErrUnexpectedEOF)
	}
	var v uint64
	shift := uint(bit % 8)
	if end-from <= 8 {
		for i := end; i > from; i-- {
			v = v<<8 | uint64(b[i-1])
		}
		v >>= shift
	} else { // nine bytes
		v = binary.LittleEndian.Uint64(b[from:])>>shift | uint64(b[from+8])<<(64-shift)
	}
	if width < 64 {
		v &= 1<<width - 1
	}
	return v, nil
}

// plainFixed decodes PLAIN values of a fixed width.
type plainFixed struct {
	data  []byte
	width int
	wrap  func([]byte) parquet.Value
}

func (p *plainFixed) next() (parquet.Value, error) {
	if len(p.data) < p.width {
		return parquet.Value{}, fmt.Errorf("plain values: %w", io.ErrUnexpectedEOF)
	}
	v := p.wrap(p.data[:p.width:p.width])
	p.data = p.data[p.width:]
	return v, nil
}

// plainBytes decodes PLAIN byte arrays: a length of four bytes, then the bytes.
type plainBytes struct{ data []byte }

func (p *plainBytes) next() (parquet.Value, error) {
	if len(p.data) < 4 {
		return parquet.Value{}, fmt.Errorf("byte array: %w", io.ErrUnexpectedEOF)
	}
	n := uint64(leUint32(p.data))
	if n > uint64(len(p.data)-4) {
		return parquet.Value{}, fmt.Errorf("byte array of %d bytes: %w", n, io.ErrUnexpectedEOF)
	}
	v := parquet.ByteArrayValue(p.data[4 : 4+n : 4+n])
	p.data = p.data[4+n:]
	return v, nil
}

type plainBools struct {
	data []byte
	bit  uint64
}

func (p *plainBools) next() (parquet.Value, error) {
	v, err := bitsAt(p.data, p.bit, 1)
	p.bit++
	return parquet.BooleanValue(v == 1), err
}

type rleBools struct{ h hybrid }

func (r *rleBools) next() (parquet.Value, error) {
	v, err := r.h.next()
	return parquet.BooleanValue(v == 1), err
}

// indexed looks values up in the chunk's dictionary.
type indexed struct {
	h    hybrid
	dict []parquet.Value
}

func (d *indexed) next() (parquet.Value, error) {
	i, err := d.h.next()
	if err != nil {
		return parquet.Value{}, err
	}
	if uint64(i) >= uint64(len(d.dict)) {
		return parquet.Value{}, fmt.Errorf("index %d into a dictionary of %d values", i, len(d.dict))
	}
	return d.dict[i], nil
}

type deltaInts struct {
	d    *delta
	is32 bool
}

func (v *deltaInts) next() (parquet.Value, error) {
	n, err := v.d.next()
	if v.is32 {
		return parquet.Int32Value(int32(n)), err
	}
	return parquet.Int64Value(n), err
}

// streamSplit decodes BYTE_STREAM_SPLIT: all first bytes, all second bytes, ...
type streamSplit struct {
	data     []byte
	width, n int
	i        int
	wrap     func([]byte) parquet.Value
}

func (s *streamSplit) next() (parquet.Value, error) {
	if s.i >= s.n {
		return parquet.Value{}, fmt.Errorf("split values: %w", io.ErrUnexpectedEOF)
	}
	b := make([]byte, s.width)
	for j := range b {
		b[j] = s.data[j*s.n+s.i]
	}
	s.i++
	return s.wrap(b), nil
}

// fixedType tells the width of a physical type's values and how they are made; width 0 for other types.
func fixedType(t format.Type, length int) (width int, wrap func([]byte) parquet.Value) {
	switch t {
	case format.Int32:
		return 4, func(b []byte) parquet.Value { return parquet.Int32Value(int32(leUint32(b))) }
	case format.Int64:
		return 8, func(b []byte) parquet.Value { return parquet.Int64Value(int64(binary.LittleEndian.Uint64(b))) }
	case format.Int96:
		return 12, func(b []byte) parquet.Value {
			return parquet.Int96Value(deprecated.Int96{leUint32(b), leUint32(b[4:]), leUint32(b[8:])})
		}
	case format.Float:
		return 4, func(b []byte) parquet.Value { return parquet.FloatValue(math.Float32frombits(leUint32(b))) }
	case format.Double:
		return 8, func(b []byte) parquet.Value {
			return parquet.DoubleValue(math.Float64frombits(binary.LittleEndian.Uint64(b)))
		}
	case format.FixedLenByteArray:
		return length, parquet.FixedLenByteArrayValue
	}
	return 0, nil
}

// newValues opens a page's values.
func newValues(enc int64, l *leaf, data []byte, dict []parquet.Value) (values, error) {
	width, wrap := fixedType(l.physical, l.length)
	no := func() (values, error) {
		return nil, fmt.Errorf("encoding %s of %s values is not supported", format.Encoding(enc), l.physical)
	}
	switch enc {
	case encPlain:
		switch {
		case l.physical == format.Boolean:
			return &plainBools{data: data}, nil
		case l.physical == format.ByteArray:
			return &plainBytes{data}, nil
		case width > 0:
			return &plainFixed{data, width, wrap}, nil
		}
	case encPlainDictionary, encRLEDictionary:
		if dict == nil {
			return nil, fmt.Errorf("the page needs a dictionary, and there is none")
		}
		if len(data) == 0 { // a page of nulls
			return &indexed{dict: dict}, nil
		}
		if data[0] > 32 {
			return nil, fmt.Errorf("dictionary indexes of %d bits", data[0])
		}
		return &indexed{hybrid{data: data[1:], width: uint(data[0])}, dict}, nil
	case encRLE:
		if l.physical != format.Boolean {
			return no()
		}
		if len(data) == 0 {
			return &rleBools{}, nil
		}
		if len(data) < 4 || uint64(leUint32(data)) > uint64(len(data)-4) {
			return nil, fmt.Errorf("RLE booleans: %w", io.ErrUnexpectedEOF)
		}
		return &rleBools{hybrid{data: data[4 : 4+leUint32(data)], width: 1}}, nil
	case encDeltaBinary:
		if l.physical != format.Int32 && l.physical != format.Int64 {
			return no()
		}
		if len(data) == 0 {
			return &deltaInts{d: &delta{}}, nil
		}
		d, err := newDelta(data)
		return &deltaInts{d, l.physical == format.Int32}, err
	case encDeltaLength:
		if l.physical != format.ByteArray {
			return no()
		}
		if len(data) == 0 {
			return &plainBytes{}, nil
		}
		return newDeltaLengths(data)
	case encDeltaBytes:
		if l.physical != format.ByteArray && l.physical != format.FixedLenByteArray {
			return no()
		}
		if len(data) == 0 {
			return &plainBytes{}, nil
		}
		w := 0
		if l.physical == format.FixedLenByteArray {
			w = l.length
		}
		return newDeltaBytes(data, w)
	case encByteStreamSplit:
		if width == 0 {
			return no()
		}
		return &streamSplit{data: data, width: width, n: len(data) / width, wrap: wrap}, nil
	}
	return no()
}
