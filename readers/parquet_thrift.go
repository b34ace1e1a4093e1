package readers

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Thrift's compact protocol, as far as Parquet's footers and page headers need it: a walk over the fields that allocates
// nothing, whatever lengths and counts the bytes claim.
// Source: github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md

const (
	thriftStop   = 0
	thriftTrue   = 1
	thriftFalse  = 2
	thriftI8     = 3
	thriftI16    = 4
	thriftI32    = 5
	thriftI64    = 6
	thriftDouble = 7
	thriftBinary = 8
	thriftList   = 9
	thriftSet    = 10
	thriftMap    = 11
	thriftStruct = 12
	thriftUUID   = 13
)

// thriftMaxDepth is twice what Parquet's own structures nest.
const thriftMaxDepth = 32

var errThrift = errors.New("malformed thrift")

// thriftWalk reads compact thrift from r. left counts down the bytes that it may still read.
type thriftWalk struct {
	r     *bufio.Reader
	left  int64
	items int64 // struct elements of lists met so far
}

func (t *thriftWalk) byte() (byte, error) {
	if t.left <= 0 {
		return 0, io.ErrUnexpectedEOF
	}
	b, err := t.r.ReadByte()
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	t.left--
	return b, err
}

func (t *thriftWalk) uvarint() (uint64, error) {
	var v uint64
	for shift := 0; shift < 64; shift += 7 {
		b, err := t.byte()
		if err != nil {
			return 0, err
		}
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return v, nil
		}
	}
	return 0, errThrift
}

func (t *thriftWalk) varint() (int64, error) {
	u, err := t.uvarint()
	return int64(u>>1) ^ -int64(u&1), err
}

func (t *thriftWalk) discard(n uint64) error {
	if n > uint64(max(t.left, 0)) {
		return io.ErrUnexpectedEOF
	}
	t.left -= int64(n)
	for n > 0 {
		k, err := t.r.Discard(int(min(n, 1<<30)))
		n -= uint64(k)
		if err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
	}
	return nil
}

// fields walks a struct: visit is called for each field and must consume its value (by skip, or the readers above), unless
// the type is thriftTrue or thriftFalse, which are values themselves.
func (t *thriftWalk) fields(depth int, visit func(id int16, typ byte) error) (n int, err error) {
	if depth > thriftMaxDepth {
		return 0, fmt.Errorf("%w: nested deeper than %d", errThrift, thriftMaxDepth)
	}
	id := int16(0)
	for {
		b, err := t.byte()
		if err != nil {
			return n, err
		}
		if b == thriftStop {
			return n, nil
		}
		if delta := b >> 4; delta != 0 {
			id += int16(delta)
		} else {
			v, err := t.varint()
			if err != nil {
				return n, err
			}
			id = int16(v)
		}
		if err := visit(id, b&0x0f); err != nil {
			return n, err
		}
		n++
	}
}

// skip passes over a value.
func (t *thriftWalk) skip(typ byte, depth int) error {
	switch typ {
	case thriftTrue, thriftFalse:
		return nil
	case thriftI8:
		_, err := t.byte()
		return err
	case thriftI16, thriftI32, thriftI64:
		_, err := t.uvarint()
		return err
	case thriftDouble:
		return t.discard(8)
	case thriftUUID:
		return t.discard(16)
	case thriftBinary:
		n, err := t.uvarint()
		if err != nil {
			return err
		}
		return t.discard(n)
	case thriftList, thriftSet:
		return t.list(depth)
	case thriftMap:
		return t.mapping(depth)
	case thriftStruct:
		_, err := t.fields(depth+1, func(_ int16, typ byte) error { return t.skip(typ, depth+1) })
		return err
	}
	return fmt.Errorf("%w: type %d", errThrift, typ)
}

func (t *thriftWalk) list(depth int) error {
	b, err := t.byte()
	if err != nil {
		return err
	}
	n, typ := uint64(b>>4), b&0x0f
	if n == 15 {
		if n, err = t.uvarint(); err != nil {
			return err
		}
	}
	if n > uint64(max(t.left, 0)) { // each element has at least one byte
		return fmt.Errorf("%w: a list of %d elements in %d bytes", errThrift, n, t.left)
	}
	if depth > thriftMaxDepth {
		return fmt.Errorf("%w: nested deeper than %d", errThrift, thriftMaxDepth)
	}
	for range n {
		switch typ {
		case thriftTrue, thriftFalse: // one byte each inside a list
			_, err = t.byte()
		case thriftStruct:
			t.items++
			fallthrough
		default:
			err = t.skip(typ, depth+1)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *thriftWalk) mapping(depth int) error {
	n, err := t.uvarint()
	if err != nil || n == 0 {
		return err
	}
	if n > uint64(max(t.left, 0)) || depth > thriftMaxDepth {
		return fmt.Errorf("%w: a map of %d entries in %d bytes", errThrift, n, t.left)
	}
	kinds, err := t.byte()
	if err != nil {
		return err
	}
	for range n {
		for _, typ := range []byte{kinds >> 4, kinds & 0x0f} {
			if typ == thriftTrue || typ == thriftFalse {
				_, err = t.byte()
			} else {
				err = t.skip(typ, depth+1)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// Page types and encodings of the Parquet format.
// Source: github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift
const (
	pageData       = 0
	pageIndex      = 1
	pageDictionary = 2
	pageDataV2     = 3

	encPlain           = 0
	encPlainDictionary = 2
	encRLE             = 3
	encBitPacked       = 4
	encDeltaBinary     = 5
	encDeltaLength     = 6
	encDeltaBytes      = 7
	encRLEDictionary   = 8
	encByteStreamSplit = 9
)

// pageHeader is what a page's header says. Nothing of it is trusted.
type pageHeader struct {
	typ                      int64
	uncompressed, compressed int64
	crc                      int64
	hasCRC                   bool
	values, nulls            int64
	encoding                 int64
	repEncoding, defEncoding int64
	repBytes, defBytes       int64 // data page v2
	plain                    bool  // data page v2 that is not compressed
}

// readPageHeader reads one header from r, of at most left bytes, and tells how many it took.
func readPageHeader(r *bufio.Reader, left int64) (h pageHeader, n int64, err error) {
	t := &thriftWalk{r: r, left: left}
	seen := map[int16]bool{}
	_, err = t.fields(0, func(id int16, typ byte) error {
		seen[id] = true
		into := map[int16]*int64{1: &h.typ, 2: &h.uncompressed, 3: &h.compressed, 4: &h.crc}[id]
		switch {
		case into != nil && typ == thriftI32:
			v, err := t.varint()
			*into = v
			h.hasCRC = h.hasCRC || id == 4
			return err
		case id == 5 && typ == thriftStruct:
			return t.ints(map[int16]*int64{1: &h.values, 2: &h.encoding, 3: &h.defEncoding, 4: &h.repEncoding}, nil)
		case id == 7 && typ == thriftStruct:
			return t.ints(map[int16]*int64{1: &h.values, 2: &h.encoding}, nil)
		case id == 8 && typ == thriftStruct:
			return t.ints(map[int16]*int64{1: &h.values, 2: &h.nulls, 4: &h.encoding, 5: &h.defBytes, 6: &h.repBytes}, map[int16]*bool{7: &h.plain})
		}
		return t.skip(typ, 0)
	})
	if err != nil {
		return h, left - t.left, fmt.Errorf("page header: %w", err)
	}
	for _, id := range []int16{1, 2, 3} {
		if !seen[id] {
			return h, left - t.left, fmt.Errorf("page header: field %d is missing", id)
		}
	}
	return h, left - t.left, nil
}

// ints reads a struct's integer fields into place; of booleans it notes which are false.
func (t *thriftWalk) ints(into map[int16]*int64, falses map[int16]*bool) error {
	_, err := t.fields(1, func(id int16, typ byte) error {
		if p := into[id]; p != nil && typ == thriftI32 {
			v, err := t.varint()
			*p = v
			return err
		}
		if p := falses[id]; p != nil && typ == thriftFalse {
			*p = true
		}
		return t.skip(typ, 1)
	})
	return err
}

func leUint32(b []byte) uint32 { return binary.LittleEndian.Uint32(b) }
