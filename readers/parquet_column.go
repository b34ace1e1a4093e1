package readers

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

// maxRowEntries bounds one row's list entries in one column: runs of empty entries cost nothing in a file, and 24 bytes
// each in memory.
const maxRowEntries = 4 << 20

// columnReader yields one column chunk's values row by row, holding one page at a time.
type columnReader struct {
	l      *leaf
	meta   *format.ColumnMetaData
	codecs *codecs
	src    *bufio.Reader
	body   io.Closer // nil where src reads from memory
	srcErr func() error
	left   int64 // bytes of the chunk not yet read
	values int64 // entries (nulls too) not yet met in a page
	pages  int

	dict       []parquet.Value
	n          int64 // entries left in the page
	reps, defs *hybrid
	vals       values

	peeked bool // rep is the next entry's, already read
	rep    int
}

// appendRow appends the entries of the next row.
func (c *columnReader) appendRow(dst parquet.Row) (parquet.Row, error) {
	if err := c.peek(); err != nil {
		if err == io.EOF {
			err = errors.New("it has fewer rows than the row group")
		}
		return dst, damage{err}
	}
	if c.rep != 0 {
		return dst, damage{errors.New("a row starts in the middle of a list")}
	}
	for n := 0; ; n++ {
		v, err := c.entry()
		if err != nil {
			return dst, err
		}
		if n >= maxRowEntries {
			return dst, damage{fmt.Errorf("a row has more than %d entries", maxRowEntries)}
		}
		dst = append(dst, v)
		if c.l.maxRep == 0 {
			return dst, nil
		}
		switch err := c.peek(); {
		case err == io.EOF:
			return dst, nil
		case err != nil:
			return dst, err
		case c.rep == 0:
			return dst, nil
		}
	}
}

// peek reads the repetition level of the next entry; io.EOF behind the last.
func (c *columnReader) peek() error {
	if c.peeked {
		return nil
	}
	for c.n == 0 {
		if err := c.page(); err != nil {
			return err
		}
	}
	c.rep = 0
	if c.reps != nil {
		r, err := c.reps.next()
		if err == nil && int(r) > c.l.maxRep {
			err = fmt.Errorf("repetition level %d above %d", r, c.l.maxRep)
		}
		if err != nil {
			return damage{err}
		}
		c.rep = int(r)
	}
	c.peeked = true
	return nil
}

// entry reads the entry that peek announced.
func (c *columnReader) entry() (parquet.Value, error) {
	c.peeked = false
	c.n--
	def := c.l.maxDef
	if c.defs != nil {
		d, err := c.defs.next()
		if err == nil && int(d) > c.l.maxDef {
			err = fmt.Errorf("definition level %d above %d", d, c.l.maxDef)
		}
		if err != nil {
			return parquet.Value{}, damage{err}
		}
		def = int(d)
	}
	var v parquet.Value
	if def == c.l.maxDef {
		var err error
		if v, err = c.vals.next(); err != nil {
			return v, damage{err}
		}
	}
	return v.Level(c.rep, def, c.l.index), nil
}

// page moves to the next data page; io.EOF behind the last.
func (c *columnReader) page() error {
	for {
		if c.values == 0 {
			return io.EOF
		}
		h, data, err := c.readPage()
		if err != nil {
			return c.wrap(err)
		}
		switch h.typ {
		case pageDictionary:
			err = c.dictionary(h, data)
		case pageData, pageDataV2:
			if h.values > c.values {
				return damage{fmt.Errorf("page %d has %d values, the chunk %d left", c.pages, h.values, c.values)}
			}
			c.values -= h.values
			c.n = h.values
			if h.typ == pageData {
				err = c.dataV1(h, data)
			} else {
				err = c.dataV2(h, data)
			}
			if err == nil {
				return nil
			}
		case pageIndex:
		default: // unknown kinds are to be skipped
		}
		if err != nil {
			return c.wrap(err)
		}
	}
}

// wrap keeps the store's own errors apart from damage.
func (c *columnReader) wrap(err error) error {
	if c.srcErr != nil {
		if serr := c.srcErr(); serr != nil {
			return serr
		}
	}
	return damage{fmt.Errorf("page %d: %w", c.pages, err)}
}

func (c *columnReader) readPage() (*pageHeader, []byte, error) {
	if c.left <= 0 {
		return nil, nil, fmt.Errorf("the chunk ends with %d values missing: %w", c.values, io.ErrUnexpectedEOF)
	}
	h, n, err := readPageHeader(c.src, c.left)
	if err != nil {
		return nil, nil, err
	}
	c.left -= n
	c.pages++
	if err := checkPage(&h, c.left); err != nil {
		return nil, nil, err
	}
	data := make([]byte, h.compressed) // it lies in the file: checked above
	if _, err := io.ReadFull(c.src, data); err != nil {
		return nil, nil, err
	}
	c.left -= h.compressed
	return &h, data, checkCRC(&h, data)
}

func (c *columnReader) dictionary(h *pageHeader, data []byte) error {
	if c.dict != nil {
		return errors.New("a second dictionary")
	}
	if h.encoding != encPlain && h.encoding != encPlainDictionary {
		return fmt.Errorf("a dictionary of encoding %s is not supported", format.Encoding(h.encoding))
	}
	data, err := c.codecs.decompress(c.meta.Codec, data, h.uncompressed)
	if err != nil {
		return err
	}
	least := int64(4)
	if w, _ := fixedType(c.l.physical, c.l.length); w > 0 {
		least = int64(w)
	} else if c.l.physical == format.Boolean {
		least = 0
	}
	if h.values*least > int64(len(data)) || least == 0 && h.values > 8*int64(len(data)) {
		return fmt.Errorf("a dictionary of %d values in %d bytes", h.values, len(data))
	}
	vals, err := newValues(encPlain, c.l, data, nil)
	if err != nil {
		return err
	}
	c.dict = make([]parquet.Value, h.values)
	for i := range c.dict {
		if c.dict[i], err = vals.next(); err != nil {
			return err
		}
	}
	return nil
}

func (c *columnReader) dataV1(h *pageHeader, data []byte) error {
	data, err := c.codecs.decompress(c.meta.Codec, data, h.uncompressed)
	if err != nil {
		return err
	}
	if c.reps, data, err = levelsV1(data, c.l.maxRep, h.repEncoding); err != nil {
		return err
	}
	if c.defs, data, err = levelsV1(data, c.l.maxDef, h.defEncoding); err != nil {
		return err
	}
	c.vals, err = newValues(h.encoding, c.l, data, c.dict)
	return err
}

// levelsV1 cuts off levels with their length in front; columns without levels have none.
func levelsV1(data []byte, top int, enc int64) (*hybrid, []byte, error) {
	if top == 0 {
		return nil, data, nil
	}
	if enc != encRLE {
		return nil, nil, fmt.Errorf("levels of encoding %s are not supported", format.Encoding(enc))
	}
	if len(data) < 4 || uint64(leUint32(data)) > uint64(len(data)-4) {
		return nil, nil, fmt.Errorf("levels: %w", io.ErrUnexpectedEOF)
	}
	n := 4 + int(leUint32(data))
	return &hybrid{data: data[4:n], width: levelBits(top)}, data[n:], nil
}

func (c *columnReader) dataV2(h *pageHeader, data []byte) error {
	levels := h.repBytes + h.defBytes // never compressed
	reps, defs, body := data[:h.repBytes], data[h.repBytes:levels], data[levels:]
	codec := c.meta.Codec
	if h.plain {
		codec = format.Uncompressed
	}
	body, err := c.codecs.decompress(codec, body, h.uncompressed-levels)
	if err != nil {
		return err
	}
	c.reps, c.defs = nil, nil
	if c.l.maxRep > 0 {
		c.reps = &hybrid{data: reps, width: levelBits(c.l.maxRep)}
	}
	if c.l.maxDef > 0 {
		c.defs = &hybrid{data: defs, width: levelBits(c.l.maxDef)}
	}
	c.vals, err = newValues(h.encoding, c.l, body, c.dict)
	return err
}

// done checks that a row group's rows took all of the column.
func (c *columnReader) done() error {
	if c.n == 0 && c.values == 0 {
		return nil
	}
	return damage{fmt.Errorf("it has %d values more than the row group has rows for", c.n+c.values)}
}

func (c *columnReader) close() error {
	if c.body == nil {
		return nil
	}
	return c.body.Close()
}
