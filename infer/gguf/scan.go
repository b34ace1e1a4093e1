package gguf

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/batchmill/batchmill/infer/quant"
)

const (
	// scanWindow is what one read of the head fetches: a vocabulary's metadata is a few MiB, so a remote head takes a
	// handful of requests.
	scanWindow = 1 << 20
	// maxString bounds one string. The longest real ones are chat templates and precompiled normaliser tables, under 1 MiB.
	maxString = 64 << 20
	// maxName bounds keys and tensor names: the format allows keys of 65,535 bytes and tensor names of 64.
	maxName = 1<<16 - 1
	// maxElements bounds a metadata array. The largest real ones are merges of vocabularies, under 1 million.
	maxElements = 1 << 24
)

// errTruncated says that a length in the file points beyond its end.
var errTruncated = errors.New("the file ends before that: it is truncated or damaged; fetch it again")

// scanner reads the head of one file from front to end. Its first error sticks.
type scanner struct {
	ctx context.Context
	src quant.Source
	off int64  // of the next byte
	buf []byte // bytes read ahead
	err error
}

// fail notes an error at the offset.
func (s *scanner) fail(off int64, format string, args ...any) {
	if s.err == nil {
		s.err = &quant.FileError{File: s.src.Name(), Offset: off, Err: fmt.Errorf(format, args...)}
	}
}

// left is the number of bytes up to the end of the file.
func (s *scanner) left() int64 { return s.src.Size() - s.off }

// need checks that n bytes are left, before they are read or allocated.
func (s *scanner) need(n uint64, what string) bool {
	if s.err != nil {
		return false
	}
	if n > uint64(s.left()) {
		s.fail(s.off, "%s needs %d bytes, %d are left: %w", what, n, s.left(), errTruncated)
		return false
	}
	return true
}

// take returns the next n bytes, valid until the next call; n is at most scanWindow.
func (s *scanner) take(n int, what string) []byte {
	if !s.need(uint64(n), what) {
		return nil
	}
	if len(s.buf) < n {
		if err := s.ctx.Err(); err != nil {
			s.err = err
			return nil
		}
		fresh := make([]byte, min(scanWindow, s.left()))
		if k, err := s.src.ReadAt(fresh, s.off); k < len(fresh) {
			if err == nil || err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			s.fail(s.off, "read %s: %w", what, err)
			return nil
		}
		s.buf = fresh
	}
	b := s.buf[:n]
	s.buf = s.buf[n:]
	s.off += int64(n)
	return b
}

func (s *scanner) u32(what string) uint32 {
	if b := s.take(4, what); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (s *scanner) u64(what string) uint64 {
	if b := s.take(8, what); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// str reads a string: its length as u64, then its bytes.
func (s *scanner) str(limit uint64, what string) string {
	at := s.off
	n := s.u64("the length of " + what)
	if s.err == nil && n > uint64(s.left()) {
		s.fail(at, "%s is said to have %d bytes, %d are left: %w", what, n, s.left(), errTruncated)
	}
	if s.err == nil && n > limit {
		s.fail(at, "%s is said to have %d bytes, at most %d are accepted", what, n, limit)
	}
	if s.err != nil {
		return ""
	}
	if n <= scanWindow {
		return string(s.take(int(n), what))
	}
	out := make([]byte, 0, n)
	for uint64(len(out)) < n && s.err == nil {
		out = append(out, s.take(int(min(scanWindow, n-uint64(len(out)))), what)...)
	}
	return string(out)
}

// The value types of metadata, by their number in the file.
const (
	kindUint8   = 0
	kindInt8    = 1
	kindUint16  = 2
	kindInt16   = 3
	kindUint32  = 4
	kindInt32   = 5
	kindFloat32 = 6
	kindBool    = 7
	kindString  = 8
	kindArray   = 9
	kindUint64  = 10
	kindInt64   = 11
	kindFloat64 = 12
)

// value reads one metadata value of that kind: a Go value of the type the kind is named after, or a slice of them.
func (s *scanner) value(kind uint32, what string) any {
	at := s.off
	switch kind {
	case kindUint8:
		return scalar(s, 1, what, func(b []byte) uint8 { return b[0] })
	case kindInt8:
		return scalar(s, 1, what, func(b []byte) int8 { return int8(b[0]) })
	case kindUint16:
		return scalar(s, 2, what, binary.LittleEndian.Uint16)
	case kindInt16:
		return scalar(s, 2, what, getInt16)
	case kindUint32:
		return scalar(s, 4, what, binary.LittleEndian.Uint32)
	case kindInt32:
		return scalar(s, 4, what, getInt32)
	case kindFloat32:
		return scalar(s, 4, what, getFloat32)
	case kindBool:
		return scalar(s, 1, what, func(b []byte) bool { return s.bool(b[0], at, what) })
	case kindString:
		return s.str(maxString, what)
	case kindArray:
		return s.array(what)
	case kindUint64:
		return scalar(s, 8, what, binary.LittleEndian.Uint64)
	case kindInt64:
		return scalar(s, 8, what, getInt64)
	case kindFloat64:
		return scalar(s, 8, what, getFloat64)
	}
	s.fail(at, "%s has the unknown value type %d", what, kind)
	return nil
}

// array reads an array: the kind of its elements, their number as u64, the elements. Arrays of arrays, which no
// known key uses, are refused: their nesting has no bound.
func (s *scanner) array(what string) any {
	at := s.off
	kind := s.u32("the element type of " + what)
	n := s.u64("the length of " + what)
	if s.err == nil && n > maxElements {
		s.fail(at, "%s is said to have %d elements, at most %d are accepted", what, n, maxElements)
	}
	if s.err != nil {
		return nil
	}
	switch kind {
	case kindUint8:
		return slice(s, n, 1, what, func(b []byte) uint8 { return b[0] })
	case kindInt8:
		return slice(s, n, 1, what, func(b []byte) int8 { return int8(b[0]) })
	case kindUint16:
		return slice(s, n, 2, what, binary.LittleEndian.Uint16)
	case kindInt16:
		return slice(s, n, 2, what, getInt16)
	case kindUint32:
		return slice(s, n, 4, what, binary.LittleEndian.Uint32)
	case kindInt32:
		return slice(s, n, 4, what, getInt32)
	case kindFloat32:
		return slice(s, n, 4, what, getFloat32)
	case kindBool:
		return slice(s, n, 1, what, func(b []byte) bool { return s.bool(b[0], at, what) })
	case kindString:
		if !s.need(8*n, what) { // a string takes at least its length
			return nil
		}
		out := make([]string, 0, n)
		for i := uint64(0); i < n && s.err == nil; i++ {
			out = append(out, s.str(maxString, what))
		}
		return out
	case kindArray:
		s.fail(at, "%s is an array of arrays, which is not supported", what)
		return nil
	case kindUint64:
		return slice(s, n, 8, what, binary.LittleEndian.Uint64)
	case kindInt64:
		return slice(s, n, 8, what, getInt64)
	case kindFloat64:
		return slice(s, n, 8, what, getFloat64)
	}
	s.fail(at, "%s has elements of the unknown type %d", what, kind)
	return nil
}

func (s *scanner) bool(b byte, at int64, what string) bool {
	if b > 1 {
		s.fail(at, "%s holds %d where a boolean is due", what, b)
	}
	return b == 1
}

// scalar reads one value of size bytes.
func scalar[T any](s *scanner, size int, what string, get func([]byte) T) T {
	var zero T
	b := s.take(size, what)
	if b == nil {
		return zero
	}
	return get(b)
}

// slice reads n values of size bytes each.
func slice[T any](s *scanner, n uint64, size int, what string, get func([]byte) T) []T {
	if !s.need(n*uint64(size), what) {
		return nil
	}
	out := make([]T, 0, n)
	for uint64(len(out)) < n {
		count := min(n-uint64(len(out)), uint64(scanWindow/size))
		b := s.take(int(count)*size, what)
		if b == nil {
			return nil
		}
		for ; len(b) > 0; b = b[size:] {
			out = append(out, get(b))
		}
	}
	return out
}

func getInt16(b []byte) int16     { return int16(binary.LittleEndian.Uint16(b)) }
func getInt32(b []byte) int32     { return int32(binary.LittleEndian.Uint32(b)) }
func getInt64(b []byte) int64     { return int64(binary.LittleEndian.Uint64(b)) }
func getFloat32(b []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b)) }
func getFloat64(b []byte) float64 { return math.Float64frombits(binary.LittleEndian.Uint64(b)) }
