package writers

import (
	"encoding/binary"
	"errors"
)

// Limits on an ARROW:schema. The message is a FlatBuffer: its vectors claim lengths, and its offsets may share tables, so
// that a few bytes can stand for a tree that fills the memory. Parquet allows 65,535 leaf columns, 255 levels deep.
const (
	maxArrowFields  = 1 << 18
	maxArrowDepth   = 256
	maxArrowStrings = 64 << 20 // bytes of names and metadata, counted once for every use
)

var errArrowSchema = errors.New("ARROW:schema is malformed or too large")

// checkSchemaMessage walks what decoding an encapsulated IPC schema message allocates for: fields, children, metadata and
// type ids. Everything else the decoder reads in place.
func checkSchemaMessage(raw []byte) error { return walkSchemaMessage(raw, nil) }

// walkSchemaMessage is checkSchemaMessage that shows the bit widths of decimals on the way: decimal gets the bytes of
// every one that is spelled out, and may change them in raw.
func walkSchemaMessage(raw []byte, decimal func(place decimalPlace, width []byte)) error {
	if len(raw) < 8 {
		return errArrowSchema
	}
	size, body := binary.LittleEndian.Uint32(raw), raw[4:]
	if size == 0xffffffff { // the continuation marker of Arrow 0.15 and later
		size, body = binary.LittleEndian.Uint32(raw[4:]), raw[8:]
	}
	if size < 4 || uint64(size) > uint64(len(body)) {
		return errArrowSchema
	}
	c := flatChecker{buf: body[:size], decimal: decimal}
	message := c.table(uint64(c.u32(0)))
	if at := c.slot(message, 3, 8); at != 0 && c.u64(at) != 0 { // bodyLength
		return errArrowSchema
	}
	schema := c.ref(message, 2)
	if schema == 0 {
		return errArrowSchema
	}
	c.fields(schema, 1, 0)
	c.metadata(schema, 2)
	if c.bad {
		return errArrowSchema
	}
	return nil
}

// flatChecker reads a FlatBuffer with every offset checked. After a bad one all reads give 0. Tables of Message, Schema,
// Field and KeyValue have the slots that Arrow's Message.fbs and Schema.fbs number in order.
type flatChecker struct {
	buf     []byte
	bad     bool
	tables  int
	strings uint64
	decimal func(decimalPlace, []byte)
	place   decimalPlace
}

// decimalPlace names a decimal in a schema: the top-level column that it belongs to, and how many decimals came before it
// there.
type decimalPlace struct{ column, nth int }

func (c *flatChecker) in(at, n uint64) bool {
	if at > uint64(len(c.buf)) || n > uint64(len(c.buf))-at {
		c.bad = true
	}
	return !c.bad
}

func (c *flatChecker) u16(at uint64) uint64 {
	if !c.in(at, 2) {
		return 0
	}
	return uint64(binary.LittleEndian.Uint16(c.buf[at:]))
}

func (c *flatChecker) u32(at uint64) uint32 {
	if !c.in(at, 4) {
		return 0
	}
	return binary.LittleEndian.Uint32(c.buf[at:])
}

func (c *flatChecker) u64(at uint64) uint64 {
	if !c.in(at, 8) {
		return 0
	}
	return binary.LittleEndian.Uint64(c.buf[at:])
}

// table checks that a table with its vtable lies in the buffer; 0 stands for none.
func (c *flatChecker) table(at uint64) uint64 {
	if c.tables++; c.tables > maxArrowFields || at == 0 {
		c.bad = true
	}
	back := int64(int32(c.u32(at)))
	vtable := int64(at) - back
	if vtable < 0 {
		c.bad = true
	}
	if n := c.u16(uint64(max(0, vtable))); n < 4 || !c.in(uint64(max(0, vtable)), n) {
		c.bad = true
	}
	if c.bad {
		return 0
	}
	return at
}

// slot is the position of a table's field of the given size, 0 where it is absent.
func (c *flatChecker) slot(table uint64, n, size uint64) uint64 {
	if c.bad {
		return 0
	}
	vtable := uint64(int64(table) - int64(int32(c.u32(table))))
	if 4+2*n >= c.u16(vtable) { // as the library asks it, also where the vtable's size is odd
		return 0
	}
	offset := c.u16(vtable + 4 + 2*n)
	if offset == 0 || !c.in(table+offset, size) {
		return 0
	}
	return table + offset
}

// ref is the table that a field refers to.
func (c *flatChecker) ref(table, n uint64) uint64 {
	at := c.slot(table, n, 4)
	if at == 0 {
		return 0
	}
	return c.table(at + uint64(c.u32(at)))
}

// vector gives the start and length of a vector of elements of the given size.
func (c *flatChecker) vector(table, n, size uint64) (start, length uint64) {
	at := c.slot(table, n, 4)
	if at == 0 {
		return 0, 0
	}
	at += uint64(c.u32(at))
	length = uint64(c.u32(at))
	if !c.in(at+4, length*size) {
		return 0, 0
	}
	return at + 4, length
}

func (c *flatChecker) text(table, n uint64) {
	_, length := c.vector(table, n, 1)
	if c.strings += length; c.strings > maxArrowStrings {
		c.bad = true
	}
}

func (c *flatChecker) fields(table, n uint64, depth int) {
	if depth > maxArrowDepth {
		c.bad = true
	}
	start, length := c.vector(table, n, 4)
	for i := uint64(0); i < length && !c.bad; i++ {
		if depth == 0 {
			c.place = decimalPlace{column: int(i)}
		}
		at := start + 4*i
		field := c.table(at + uint64(c.u32(at)))
		c.text(field, 0)
		kind := c.ref(field, 3)
		switch c.tag(field) {
		case tagUnion:
			c.vector(kind, 1, 4) // type ids
		case tagDecimal:
			if at := c.slot(kind, 2, 4); at != 0 && c.decimal != nil {
				c.decimal(c.place, c.buf[at:at+4])
			}
			c.place.nth++
		}
		c.fields(field, 5, depth+1)
		c.metadata(field, 6)
	}
}

// Type tags of Schema.fbs.
const (
	tagDecimal = 7
	tagUnion   = 14
)

func (c *flatChecker) tag(field uint64) byte {
	at := c.slot(field, 2, 1)
	if at == 0 {
		return 0
	}
	return c.buf[at]
}

func (c *flatChecker) metadata(table, n uint64) {
	start, length := c.vector(table, n, 4)
	for i := uint64(0); i < length && !c.bad; i++ {
		at := start + 4*i
		pair := c.table(at + uint64(c.u32(at)))
		c.text(pair, 0)
		c.text(pair, 1)
	}
}
