package readers

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go"
)

// delta decodes DELTA_BINARY_PACKED.
type delta struct {
	data           []byte
	block, minis   uint64
	left           uint64 // values not yet returned
	last, minDelta int64
	started        bool
	widths         []byte // of the block's miniblocks not yet begun
	mini           []byte
	width          uint
	inMini         uint64 // values left in the miniblock
	bit            uint64
}

func newDelta(data []byte) (*delta, error) {
	d := &delta{}
	for _, into := range []*uint64{&d.block, &d.minis, &d.left} {
		v, n := binary.Uvarint(data)
		if n <= 0 {
			return nil, fmt.Errorf("delta header: %w", io.ErrUnexpectedEOF)
		}
		*into, data = v, data[n:]
	}
	first, n := binary.Varint(data)
	if n <= 0 {
		return nil, fmt.Errorf("delta header: %w", io.ErrUnexpectedEOF)
	}
	d.last, d.data = first, data[n:]
	if d.block == 0 || d.block%128 != 0 || d.block > 1<<20 || d.minis == 0 || d.minis > d.block || d.block%d.minis != 0 || d.block/d.minis%8 != 0 {
		return nil, fmt.Errorf("delta header: blocks of %d values in %d parts", d.block, d.minis)
	}
	return d, nil
}

func (d *delta) next() (int64, error) {
	if d.left == 0 {
		return 0, fmt.Errorf("delta values: %w", io.ErrUnexpectedEOF)
	}
	d.left--
	if !d.started {
		d.started = true
		return d.last, nil
	}
	if d.inMini == 0 {
		if err := d.miniblock(); err != nil {
			return 0, err
		}
	}
	d.inMini--
	v, err := bitsAt(d.mini, d.bit, d.width)
	d.bit += uint64(d.width)
	d.last += d.minDelta + int64(v) // wraps, as the format says
	return d.last, err
}

func (d *delta) miniblock() error {
	if len(d.widths) == 0 {
		m, n := binary.Varint(d.data)
		if n <= 0 || uint64(len(d.data)-n) < d.minis {
			return fmt.Errorf("delta block: %w", io.ErrUnexpectedEOF)
		}
		d.minDelta = m
		d.widths, d.data = d.data[n:n+int(d.minis)], d.data[n+int(d.minis):]
	}
	d.width, d.widths = uint(d.widths[0]), d.widths[1:]
	if d.width > 64 {
		return fmt.Errorf("delta block: values of %d bits", d.width)
	}
	d.inMini, d.bit = d.block/d.minis, 0
	size := min(d.inMini*uint64(d.width)/8, uint64(len(d.data))) // the last one may be cut short
	d.mini, d.data = d.data[:size:size], d.data[size:]
	return nil
}

// rest is the data behind the last value, found without keeping the values.
func (d *delta) rest() ([]byte, error) {
	w := *d
	for w.left > 0 {
		w.left--
		if !w.started {
			w.started = true
			continue
		}
		if w.inMini == 0 {
			if err := w.miniblock(); err != nil {
				return nil, err
			}
		}
		skip := min(w.inMini-1, w.left)
		w.inMini -= 1 + skip
		w.left -= skip
	}
	return w.data, nil
}

// deltaLengths decodes DELTA_LENGTH_BYTE_ARRAY: all lengths, then all bytes.
type deltaLengths struct {
	lengths *delta
	data    []byte
}

func newDeltaLengths(data []byte) (*deltaLengths, error) {
	d, err := newDelta(data)
	if err != nil {
		return nil, err
	}
	rest, err := d.rest()
	return &deltaLengths{lengths: d, data: rest}, err
}

func (v *deltaLengths) bytes() ([]byte, error) {
	n, err := v.lengths.next()
	if err != nil {
		return nil, err
	}
	if n < 0 || n > int64(len(v.data)) {
		return nil, fmt.Errorf("byte array of %d bytes: %w", n, io.ErrUnexpectedEOF)
	}
	b := v.data[:n:n]
	v.data = v.data[n:]
	return b, nil
}

func (v *deltaLengths) next() (parquet.Value, error) {
	b, err := v.bytes()
	return parquet.ByteArrayValue(b), err
}

// deltaBytes decodes DELTA_BYTE_ARRAY: lengths of the prefixes shared with the value before, then the suffixes.
type deltaBytes struct {
	prefixes *delta
	suffixes *deltaLengths
	last     []byte
	width    int // of fixed-length values; 0 otherwise
}

func newDeltaBytes(data []byte, width int) (*deltaBytes, error) {
	p, err := newDelta(data)
	if err != nil {
		return nil, err
	}
	rest, err := p.rest()
	if err != nil {
		return nil, err
	}
	s, err := newDeltaLengths(rest)
	return &deltaBytes{prefixes: p, suffixes: s, width: width}, err
}

func (v *deltaBytes) next() (parquet.Value, error) {
	n, err := v.prefixes.next()
	if err != nil {
		return parquet.Value{}, err
	}
	if n < 0 || n > int64(len(v.last)) {
		return parquet.Value{}, fmt.Errorf("a prefix of %d bytes of a value of %d", n, len(v.last))
	}
	suffix, err := v.suffixes.bytes()
	if err != nil {
		return parquet.Value{}, err
	}
	b := make([]byte, 0, int(n)+len(suffix))
	v.last = append(append(b, v.last[:n]...), suffix...)
	if v.width == 0 {
		return parquet.ByteArrayValue(v.last), nil
	}
	if len(v.last) != v.width {
		return parquet.Value{}, fmt.Errorf("a value of %d bytes in a column of %d", len(v.last), v.width)
	}
	return parquet.FixedLenByteArrayValue(v.last), nil
}
