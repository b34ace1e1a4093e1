package readers

import (
	"context"
	"errors"
	"github.com/batchmill/batchmill/internal/row"
)

func openParquet(ctx context.Context, obj Object, cut Cut, o Options) (Reader, error) {
	return nil, errors.ErrUnsupported
}
func parquetSchema(ctx context.Context, obj Object) (*row.Schema, error) {
	return nil, errors.ErrUnsupported
}
func parquetCuts(ctx context.Context, obj Object, split int64) ([]Cut, int64, error) {
	return nil, 0, errors.ErrUnsupported
}
