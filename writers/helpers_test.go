package writers

import (
	"io"
	"math"

	"github.com/batchmill/batchmill/internal/row"
	"github.com/parquet-go/parquet-go/format"
)

type formatElement = format.SchemaElement

var negInf = math.Inf(-1)

// records gives cells one by one, as a reader does.
func records(cells ...any) func() (*row.Record, error) {
	return func() (*row.Record, error) {
		if len(cells) == 0 {
			return nil, io.EOF
		}
		rec := &row.Record{Cells: cells[0]}
		cells = cells[1:]
		return rec, nil
	}
}
