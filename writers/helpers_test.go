package writers

import (
	"math"

	"github.com/parquet-go/parquet-go/format"
)

type formatElement = format.SchemaElement

var negInf = math.Inf(-1)
