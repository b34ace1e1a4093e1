package pipeline

import (
	"fmt"
	"math/big"
	"strconv"

	"github.com/batchmill/batchmill/internal/row"
)

// tenant is the key under which a row may share pages and results with others. It decides no result, so nothing here
// fails a row: rows without a value, or with null, are one tenant of their own, and a value that is neither text nor an
// integer is compared with nothing, so its row is a tenant by itself. Text and integers differ even where they look
// alike.
func (p *Preparer) tenant(rec *row.Record) string {
	if p.TenantColumn == "" {
		return ""
	}
	switch v := rec.Fields[p.TenantColumn].(type) {
	case nil:
		return "null"
	case string:
		return "text:" + v
	case []byte:
		return "bytes:" + string(v)
	case int64:
		return "int:" + strconv.FormatInt(v, 10)
	case *big.Int:
		return "int:" + v.String()
	}
	return fmt.Sprintf("row:%d:%s", rec.Row, rec.Source)
}
