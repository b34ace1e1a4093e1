package writers

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"math"
	"math/big"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/apache/arrow/go/v17/arrow/float16"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/format"
)

// leafText says how the values of one leaf column are written as JSON. Integers are numbers, decimals strings with all
// their digits, timestamps RFC 3339 (without a zone where the column has none), dates and times of day ISO 8601, UUIDs
// in their usual form, JSON columns the JSON itself, floats that are not finite null, and bytes base64.
type leafText struct {
	append func(dst []byte, v parquet.Value) []byte
	binary bool // values are bytes that JSON cannot hold as they are
}

func leafTextOf(n *node) leafText {
	kind := n.field.Type().Kind()
	switch lt := n.logical.(type) {
	case *format.StringType, *format.EnumType:
		return leafText{append: appendTextValue}
	case *format.JsonType:
		return leafText{append: appendJSONValue}
	case *format.IntType:
		if !lt.IsSigned {
			return leafText{append: appendUnsigned}
		}
	case *format.DecimalType:
		scale := int(lt.Scale)
		return leafText{append: func(dst []byte, v parquet.Value) []byte { return appendDecimal(dst, v, scale) }}
	case *format.DateType:
		return leafText{append: appendDate}
	case *format.TimeType:
		unit := unitOf(lt.Unit)
		return leafText{append: func(dst []byte, v parquet.Value) []byte { return appendTimeOfDay(dst, v, unit) }}
	case *format.TimestampType:
		unit, zone := unitOf(lt.Unit), lt.IsAdjustedToUTC
		return leafText{append: func(dst []byte, v parquet.Value) []byte {
			return appendTimestamp(dst, v.Int64(), unit, zone)
		}}
	case *format.UUIDType:
		return leafText{append: appendUUID}
	case *format.Float16Type:
		return leafText{append: appendFloat16}
	}
	switch kind {
	case parquet.Boolean:
		return leafText{append: func(dst []byte, v parquet.Value) []byte { return strconv.AppendBool(dst, v.Boolean()) }}
	case parquet.Int32:
		return leafText{append: func(dst []byte, v parquet.Value) []byte { return strconv.AppendInt(dst, int64(v.Int32()), 10) }}
	case parquet.Int64:
		return leafText{append: func(dst []byte, v parquet.Value) []byte { return strconv.AppendInt(dst, v.Int64(), 10) }}
	case parquet.Int96:
		return leafText{append: appendInt96}
	case parquet.Float:
		return leafText{append: func(dst []byte, v parquet.Value) []byte { return appendFloat(dst, float64(v.Float()), 32) }}
	case parquet.Double:
		return leafText{append: func(dst []byte, v parquet.Value) []byte { return appendFloat(dst, v.Double(), 64) }}
	case parquet.ByteArray, parquet.FixedLenByteArray:
		if n.converted != nil && *n.converted == deprecated.UTF8 {
			return leafText{append: appendTextValue}
		}
		return leafText{append: appendBase64, binary: true}
	}
	return leafText{append: func(dst []byte, _ parquet.Value) []byte { return append(dst, "null"...) }} // the null type
}

func unitOf(u format.TimeUnit) time.Duration {
	switch u.Value.(type) {
	case *format.MilliSeconds:
		return time.Millisecond
	case *format.MicroSeconds:
		return time.Microsecond
	}
	return time.Nanosecond
}

func appendTextValue(dst []byte, v parquet.Value) []byte { return appendString(dst, v.ByteArray()) }

func appendUnsigned(dst []byte, v parquet.Value) []byte {
	if v.Kind() == parquet.Int32 {
		return strconv.AppendUint(dst, uint64(v.Uint32()), 10)
	}
	return strconv.AppendUint(dst, v.Uint64(), 10)
}

// appendJSONValue writes the text of a JSON column as it is, but on one line; what is not JSON becomes a string.
func appendJSONValue(dst []byte, v parquet.Value) []byte {
	text := v.ByteArray()
	if !jsontext.Value(text).IsValid(jsontext.AllowDuplicateNames(true)) {
		return appendString(dst, text)
	}
	text = bytes.Trim(text, " \t\r\n")
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		switch r {
		case '\n', '\r':
			dst = append(dst, ' ')
		case 0x85:
			dst = append(dst, `\u0085`...)
		case 0x2028, 0x2029:
			dst = append(append(dst, `\u202`...), hexDigits[r&15])
		default:
			dst = append(dst, text[i:i+size]...)
		}
		i += size
	}
	return dst
}

// appendDecimal writes a decimal as a string: unscaled value, big-endian two's complement where it is bytes, with scale
// digits behind the point.
func appendDecimal(dst []byte, v parquet.Value, scale int) []byte {
	var n *big.Int
	switch v.Kind() {
	case parquet.Int32:
		n = big.NewInt(int64(v.Int32()))
	case parquet.Int64:
		n = big.NewInt(v.Int64())
	default:
		b := v.ByteArray()
		n = new(big.Int).SetBytes(b)
		if len(b) > 0 && b[0]&0x80 != 0 {
			n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
		}
	}
	dst = append(dst, '"')
	if n.Sign() < 0 {
		dst = append(dst, '-')
		n.Neg(n)
	}
	digits := n.Append(nil, 10)
	if scale <= 0 || scale > math.MaxUint16 { // no type has more digits: a scale beyond is nonsense of the file
		return append(append(dst, digits...), '"')
	}
	if len(digits) <= scale {
		digits = append(bytes.Repeat([]byte{'0'}, scale+1-len(digits)), digits...)
	}
	point := len(digits) - scale
	dst = append(append(dst, digits[:point]...), '.')
	return append(append(dst, digits[point:]...), '"')
}

func appendDate(dst []byte, v parquet.Value) []byte {
	day := time.Unix(int64(v.Int32())*24*60*60, 0).UTC()
	return append(appendDay(append(dst, '"'), day), '"')
}

// appendDay writes the date. Years of more than four digits take a sign, as ISO 8601 has it.
func appendDay(dst []byte, t time.Time) []byte {
	if y := t.Year(); y > 9999 {
		dst = append(dst, '+')
	}
	return t.AppendFormat(dst, "2006-01-02")
}

func appendTimeOfDay(dst []byte, v parquet.Value, unit time.Duration) []byte {
	n := v.Int64()
	if v.Kind() == parquet.Int32 {
		n = int64(v.Int32())
	}
	if n < 0 || n >= int64(24*time.Hour/unit) {
		return strconv.AppendInt(dst, n, 10)
	}
	t := time.Unix(0, n*int64(unit)).UTC()
	return append(t.AppendFormat(append(dst, '"'), "15:04:05.999999999"), '"')
}

func appendTimestamp(dst []byte, n int64, unit time.Duration, zone bool) []byte {
	perSecond := int64(time.Second / unit)
	seconds, rest := n/perSecond, n%perSecond
	if rest < 0 {
		seconds, rest = seconds-1, rest+perSecond
	}
	return appendInstant(dst, time.Unix(seconds, rest*int64(unit)).UTC(), zone)
}

func appendInstant(dst []byte, t time.Time, zone bool) []byte {
	dst = appendDay(append(dst, '"'), t)
	dst = t.AppendFormat(dst, "T15:04:05.999999999")
	if zone {
		dst = append(dst, 'Z')
	}
	return append(dst, '"')
}

// appendInt96 writes the timestamp that Impala and Spark store so: nanoseconds of the day, then the Julian day.
func appendInt96(dst []byte, v parquet.Value) []byte {
	n := v.Int96()
	const julianUnixEpoch = 2440588
	nanos := int64(n[0]) | int64(n[1])<<32
	days := int64(int32(n[2])) - julianUnixEpoch
	return appendInstant(dst, time.Unix(days*24*60*60, nanos).UTC(), false)
}

func appendUUID(dst []byte, v parquet.Value) []byte {
	b := v.ByteArray()
	if len(b) != 16 {
		return appendBase64(dst, v)
	}
	dst = append(dst, '"')
	for i, n := range []int{4, 2, 2, 2, 6} {
		if i > 0 {
			dst = append(dst, '-')
		}
		dst = hex.AppendEncode(dst, b[:n])
		b = b[n:]
	}
	return append(dst, '"')
}

func appendFloat16(dst []byte, v parquet.Value) []byte {
	b := v.ByteArray()
	if len(b) != 2 {
		return appendBase64(dst, v)
	}
	f := float16.FromBits(binary.LittleEndian.Uint16(b)).Float32()
	return appendFloat(dst, float64(f), 32)
}

func appendBase64(dst []byte, v parquet.Value) []byte {
	dst = append(dst, '"')
	dst = base64.StdEncoding.AppendEncode(dst, v.ByteArray())
	return append(dst, '"')
}
