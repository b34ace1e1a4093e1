package writers

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"

	"github.com/parquet-go/parquet-go"
)

// digestVersion starts every canonical form; it changes whenever the form does, so that no two forms compare equal.
const digestVersion = "batchmill result 1"

// digester builds the canonical form of a part (see the package comment), one row at a time, and hashes it.
type digester struct {
	hash hash.Hash
	own  []*Column
	buf  []byte // the row so far
}

func newDigester(family string, own []*Column) *digester {
	d := &digester{hash: sha256.New()}
	for _, c := range own {
		if c.Result {
			d.own = append(d.own, c)
		}
	}
	d.text(digestVersion)
	d.text(family)
	d.number(uint64(len(d.own)))
	for _, c := range d.own {
		d.text(c.Name)
	}
	d.endRow()
	return d
}

func (d *digester) text(s string) {
	d.buf = binary.LittleEndian.AppendUint64(d.buf, uint64(len(s)))
	d.buf = append(d.buf, s...)
}

func (d *digester) bytes(b []byte) {
	d.buf = binary.LittleEndian.AppendUint64(d.buf, uint64(len(b)))
	d.buf = append(d.buf, b...)
}

func (d *digester) number(n uint64) {
	d.buf = binary.LittleEndian.AppendUint64(d.buf, 8)
	d.buf = binary.LittleEndian.AppendUint64(d.buf, n)
}

func (d *digester) null() { d.buf = binary.LittleEndian.AppendUint64(d.buf, 1<<64-1) }

// members adds the carried part of the family json.
func (d *digester) members(text []byte, list []member, name *[]byte) {
	d.number(uint64(len(list)))
	for _, m := range list {
		var n []byte
		n, *name = memberName(text, m, *name)
		d.bytes(n)
		d.bytes(text[m.value:m.end])
	}
}

// leaves adds the carried part of the family parquet: whole columns of one row, in the schema's order.
func (d *digester) leaves(values []parquet.Value) {
	for i := 0; i < len(values); {
		j, column := i+1, values[i].Column()
		for j < len(values) && values[j].Column() == column {
			j++
		}
		d.number(uint64(j - i))
		for _, v := range values[i:j] {
			d.number(uint64(v.RepetitionLevel()) | uint64(v.DefinitionLevel())<<8)
			if v.IsNull() {
				d.null()
				continue
			}
			at := len(d.buf)
			d.buf = v.AppendBytes(append(d.buf, make([]byte, 8)...))
			binary.LittleEndian.PutUint64(d.buf[at:], uint64(len(d.buf)-at-8))
		}
		i = j
	}
}

// cell adds a value of ours, if its column counts.
func (d *digester) cell(c *Column, v cell) {
	switch {
	case !c.Result:
	case v.null:
		d.null()
	case c.Type == String:
		d.text(v.s)
	case c.Type == JSON:
		d.bytes(v.json)
	case c.Type == Int32List:
		d.buf = binary.LittleEndian.AppendUint64(d.buf, uint64(4*len(v.ids)))
		for _, id := range v.ids {
			d.buf = binary.LittleEndian.AppendUint32(d.buf, uint32(id))
		}
	default: // no result column is a double
		d.number(uint64(v.n))
	}
}

func (d *digester) endRow() {
	d.hash.Write(d.buf)
	d.buf = shrink(d.buf)
}

func (d *digester) sum() string { return hex.EncodeToString(d.hash.Sum(nil)) }

// maxScratch is what a writer keeps of its buffers between rows: one huge row must not hold its memory for the rest of
// the part.
const maxScratch = 4 << 20

func shrink(buf []byte) []byte {
	if cap(buf) > maxScratch {
		return nil
	}
	return buf[:0]
}
