package readers

import (
	"fmt"
	"math"
	"math/big"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/batchmill/batchmill/internal/ordered"
	"github.com/batchmill/batchmill/internal/row"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/format"
)

// assembler turns one row's leaf values into nested values (Dremel's record assembly, by definition and repetition
// levels). cur holds, per leaf, what is not yet consumed.
type assembler struct{ cur [][]parquet.Value }

// value builds what n holds in the row, given the row's values of its leaves.
func (a *assembler) value(n *node) (any, *row.Error) {
	if n.repeated {
		return a.list(n, n, n)
	}
	return a.single(n)
}

// head is the next entry of a node: the first leaf's level tells how much of it is there.
func (a *assembler) head(n *node) (parquet.Value, bool) {
	if c := a.cur[n.lo]; len(c) > 0 {
		return c[0], true
	}
	return parquet.Value{}, false
}

// absent consumes the one entry that each leaf has for something that is null or empty.
func (a *assembler) absent(n *node) {
	for i := n.lo; i < n.hi; i++ {
		if len(a.cur[i]) > 0 {
			a.cur[i] = a.cur[i][1:]
		}
	}
}

func (a *assembler) single(n *node) (any, *row.Error) {
	h, ok := a.head(n)
	if !ok || h.DefinitionLevel() < n.def {
		a.absent(n)
		return nil, nil
	}
	if n.leaf != nil {
		a.cur[n.lo] = a.cur[n.lo][1:]
		return convert(n.leaf, h)
	}
	if e := n.listElement(); e != nil {
		return a.list(n, n.children[0], e)
	}
	if e := n.mapEntry(); e != nil {
		return a.mapping(n, e)
	}
	return a.group(n)
}

func (a *assembler) group(n *node) (any, *row.Error) {
	m := &ordered.Map{}
	for _, c := range n.children {
		v, err := a.value(c)
		if err != nil {
			return nil, err
		}
		m.Set(c.name, v)
	}
	return m, nil
}

// list builds the elements of the repeated node r, which is n itself or its only child; each is e, which is r or r's
// only child.
func (a *assembler) list(n, r, e *node) (any, *row.Error) {
	out := []any{}
	err := a.repeat(n, r, func() *row.Error {
		var v any
		var err *row.Error
		switch {
		case e != r:
			v, err = a.value(e)
		case r.leaf != nil:
			h, _ := a.head(r)
			a.cur[r.lo] = a.cur[r.lo][1:]
			v, err = convert(r.leaf, h)
		default:
			v, err = a.group(r)
		}
		out = append(out, v)
		return err
	})
	return out, err
}

// repeat calls element for each entry of the repeated node r.
func (a *assembler) repeat(n, r *node, element func() *row.Error) *row.Error {
	h, ok := a.head(r)
	if !ok || h.DefinitionLevel() < r.def {
		a.absent(n)
		return nil
	}
	for {
		before := len(a.cur[r.lo])
		if err := element(); err != nil {
			return err
		}
		h, ok := a.head(r)
		if !ok || h.RepetitionLevel() != r.rep || len(a.cur[r.lo]) == before {
			return nil
		}
	}
}

// mapping builds an object where the keys are strings, else a list of {key, value}.
func (a *assembler) mapping(n, entry *node) (any, *row.Error) {
	k, v := entry.children[0], entry.children[1]
	m, pairs, strs := &ordered.Map{}, []any{}, k.leaf != nil && k.leaf.kind() == kindString
	err := a.repeat(n, entry, func() *row.Error {
		key, err := a.value(k)
		if err != nil {
			return err
		}
		val, err := a.value(v)
		if err != nil {
			return err
		}
		if s, ok := key.(string); ok && strs {
			m.Set(s, val)
		} else {
			pairs = append(pairs, ordered.MapOf("key", key, "value", val))
		}
		return nil
	})
	if strs {
		return m, err
	}
	return pairs, err
}

// kind is how a leaf's values are shown.
type kind uint8

const (
	kindPlain kind = iota // as the physical type says
	kindString
	kindUint
	kindDecimal
	kindDate
	kindTime
	kindTimestamp
	kindUUID
	kindFloat16
)

func (l *leaf) kind() kind {
	if v := l.element.LogicalType.Value; v != nil {
		switch t := v.(type) {
		case *format.StringType, *format.EnumType, *format.JsonType:
			return kindString
		case *format.UUIDType:
			return kindUUID
		case *format.DecimalType:
			return kindDecimal
		case *format.DateType:
			return kindDate
		case *format.TimeType:
			return kindTime
		case *format.TimestampType:
			return kindTimestamp
		case *format.Float16Type:
			return kindFloat16
		case *format.IntType:
			if !t.IsSigned {
				return kindUint
			}
		}
		return kindPlain
	}
	if l.physical == format.Int96 {
		return kindTimestamp
	}
	c, ok := l.element.ConvertedType.Get()
	if !ok {
		return kindPlain
	}
	switch c {
	case deprecated.UTF8, deprecated.Enum, deprecated.Json:
		return kindString
	case deprecated.Decimal:
		return kindDecimal
	case deprecated.Date:
		return kindDate
	case deprecated.TimeMillis, deprecated.TimeMicros:
		return kindTime
	case deprecated.TimestampMillis, deprecated.TimestampMicros:
		return kindTimestamp
	case deprecated.Uint8, deprecated.Uint16, deprecated.Uint32, deprecated.Uint64:
		return kindUint
	}
	return kindPlain
}

func leafTypeName(l *leaf) string {
	switch l.kind() {
	case kindString:
		return "string"
	case kindUint:
		return "u" + strings.ToLower(l.physical.String())
	case kindDecimal:
		return fmt.Sprintf("decimal(scale %d)", l.scale())
	case kindDate:
		return "date"
	case kindTime:
		return "time"
	case kindTimestamp:
		return "timestamp"
	case kindUUID:
		return "uuid"
	case kindFloat16:
		return "float16"
	}
	return strings.ToLower(l.physical.String())
}

func (l *leaf) scale() int32 {
	if d, ok := l.element.LogicalType.Value.(*format.DecimalType); ok {
		return d.Scale
	}
	s, _ := l.element.Scale.Get()
	return s
}

// unit is the length of a time's or timestamp's tick, and whether it is an instant (UTC) or a local reading.
func (l *leaf) unit() (tick time.Duration, utc bool) {
	switch t := l.element.LogicalType.Value.(type) {
	case *format.TimeType:
		if t.Unit.Value != nil {
			return t.Unit.Value.Duration(), t.IsAdjustedToUTC
		}
	case *format.TimestampType:
		if t.Unit.Value != nil {
			return t.Unit.Value.Duration(), t.IsAdjustedToUTC
		}
	}
	switch c, _ := l.element.ConvertedType.Get(); c {
	case deprecated.TimeMillis, deprecated.TimestampMillis:
		return time.Millisecond, true
	case deprecated.TimeMicros, deprecated.TimestampMicros:
		return time.Microsecond, true
	}
	return time.Nanosecond, true
}

// convert gives a leaf's value in the types of row.Record.Fields.
func convert(l *leaf, v parquet.Value) (any, *row.Error) {
	if v.IsNull() {
		return nil, nil
	}
	switch l.kind() {
	case kindString:
		if b := v.ByteArray(); !utf8.Valid(b) {
			return nil, row.Errorf(row.InvalidUTF8, "column %s: byte %d of the value is not valid UTF-8", l.path, invalidUTF8At(b))
		}
		return string(v.ByteArray()), nil
	case kindUint:
		if l.physical == format.Int32 {
			return int64(uint32(v.Int32())), nil
		}
		if u := uint64(v.Int64()); l.physical == format.Int64 && u > math.MaxInt64 {
			return new(big.Int).SetUint64(u), nil
		}
	case kindDecimal:
		return decimal(unscaled(l, v), int(l.scale())), nil
	case kindDate:
		if l.physical == format.Int32 {
			return time.Unix(int64(v.Int32())*86400, 0).UTC().Format(time.DateOnly), nil
		}
	case kindTime:
		return clock(l, integer(l, v)), nil
	case kindTimestamp:
		return timestamp(l, v), nil
	case kindUUID:
		if b := v.ByteArray(); len(b) == 16 {
			return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:]), nil
		}
	case kindFloat16:
		if b := v.ByteArray(); len(b) == 2 {
			return half(uint16(b[0]) | uint16(b[1])<<8), nil
		}
	}
	switch l.physical {
	case format.Boolean:
		return v.Boolean(), nil
	case format.Int32, format.Int64:
		return integer(l, v), nil
	case format.Float:
		return float64(v.Float()), nil
	case format.Double:
		return v.Double(), nil
	}
	return append([]byte{}, v.ByteArray()...), nil
}

func integer(l *leaf, v parquet.Value) int64 {
	if l.physical == format.Int32 {
		return int64(v.Int32())
	}
	return v.Int64()
}

// unscaled is a decimal's integer; byte arrays are big-endian two's complement.
func unscaled(l *leaf, v parquet.Value) *big.Int {
	if l.physical == format.Int32 || l.physical == format.Int64 {
		return big.NewInt(integer(l, v))
	}
	b := v.ByteArray()
	n := new(big.Int).SetBytes(b)
	if len(b) > 0 && b[0] >= 0x80 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
	}
	return n
}

// maxScale is far above any real decimal's 76 digits; a hostile one could ask for gigabytes of zeros.
const maxScale = 1000

// decimal writes n * 10^-scale with exactly scale digits behind the point.
func decimal(n *big.Int, scale int) string {
	if scale <= 0 || scale > maxScale {
		return n.String()
	}
	digits := new(big.Int).Abs(n).String()
	if len(digits) <= scale {
		digits = strings.Repeat("0", scale-len(digits)+1) + digits
	}
	sign := ""
	if n.Sign() < 0 {
		sign = "-"
	}
	return sign + digits[:len(digits)-scale] + "." + digits[len(digits)-scale:]
}

func clock(l *leaf, n int64) string {
	tick, _ := l.unit()
	perSecond := int64(time.Second / tick)
	t := time.Unix(floorDiv(n, perSecond), floorMod(n, perSecond)*int64(tick)).UTC()
	return t.Format("15:04:05.999999999")
}

// timestamp is RFC 3339; without a zone where the column holds local readings.
func timestamp(l *leaf, v parquet.Value) string {
	tick, utc := l.unit()
	var t time.Time
	if l.physical == format.Int96 { // nanoseconds of the day, and a Julian day
		w := v.Int96()
		t = time.Unix((int64(w[2])-julianUnixEpoch)*86400, int64(uint64(w[1])<<32|uint64(w[0]))).UTC()
	} else {
		n, perSecond := integer(l, v), int64(time.Second/tick)
		t = time.Unix(floorDiv(n, perSecond), floorMod(n, perSecond)*int64(tick)).UTC()
	}
	if utc {
		return t.Format(time.RFC3339Nano)
	}
	return t.Format("2006-01-02T15:04:05.999999999")
}

const julianUnixEpoch = 2440588 // the Julian day of 1970-01-01

func floorDiv(a, b int64) int64 { return (a - floorMod(a, b)) / b }

func floorMod(a, b int64) int64 { return ((a % b) + b) % b }

// half converts IEEE 754 binary16.
func half(h uint16) float64 {
	sign, exp, frac := 1.0, int(h>>10&0x1f), float64(h&0x3ff)
	if h&0x8000 != 0 {
		sign = -1
	}
	switch exp {
	case 0:
		return sign * math.Ldexp(frac, -24)
	case 31:
		if frac != 0 {
			return math.NaN()
		}
		return math.Inf(int(sign))
	}
	return sign * math.Ldexp(1+frac/1024, exp-15)
}
