package pipeline

import (
	"fmt"
	"math"
	"math/big"
	"strconv"

	"github.com/batchmill/batchmill/internal/row"
)

// tenant is the key under which a row may share pages and results with others. It decides no result, so nothing here
// fails a row. Rows without a value, or with null, are one tenant of their own. Numbers are compared by their value, so 1
// and 1.0 are one tenant; text, bytes, numbers and booleans differ even where they look alike. A list or an object is
// compared with nothing: its row is a tenant by itself, of which Warn is told once.
func (p *Preparer) tenant(rec *row.Record) string {
	if p.TenantColumn == "" {
		return ""
	}
	v := rec.Fields[p.TenantColumn]
	switch v := v.(type) {
	case nil:
		return "null"
	case string:
		return "text:" + v
	case []byte:
		return "bytes:" + string(v)
	case bool:
		return "bool:" + strconv.FormatBool(v)
	case int64:
		return "number:" + strconv.FormatInt(v, 10)
	case *big.Int:
		return "number:" + v.String()
	case float64:
		return "number:" + canonical(v)
	}
	if p.Warn != nil {
		p.strange.Do(func() {
			p.Warn(fmt.Sprintf("%s: column %q, which --tenant-column names, holds %s; rows with lists or objects in it share nothing with any other",
				Place(rec), p.TenantColumn, kindOf(v)))
		})
	}
	return fmt.Sprintf("row:%d:%s", rec.Row, rec.Source)
}

// canonical is the text of a number: that of an integer where it is one, whatever its size, else the shortest that reads
// back as the same number.
func canonical(f float64) string {
	if f != math.Trunc(f) || math.IsInf(f, 0) { // NaN is not equal to itself
		return strconv.FormatFloat(f, 'g', -1, 64)
	}
	n, _ := big.NewFloat(f).Int(nil)
	return n.String()
}
