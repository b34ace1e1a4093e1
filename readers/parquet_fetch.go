package readers

import (
	"bufio"
	"bytes"
	"cmp"
	"context"

	"slices"

	"github.com/parquet-go/parquet-go/format"
)

const (
	// coalesceGap is the most that is read for nothing to save a request: about what a request's latency is worth.
	coalesceGap = 512 << 10
	// coalesceMax bounds the chunks of a row group that are fetched together; larger ones are streamed side by side.
	coalesceMax = 16 << 20
	// streamBuffers is shared by the streams of a row group's columns.
	streamBuffers   = 32 << 20
	minStreamBuffer = 64 << 10
	maxStreamBuffer = 1 << 20
)

// span is a run of column chunks that is read at once.
type span struct {
	from, to int64
	cols     []int // positions in the list of wanted leaves
}

// coalesce joins chunks that lie close together. Chunks that would make a span too large stay alone.
func coalesce(chunks []*format.ColumnMetaData) []span {
	order := make([]int, len(chunks))
	for i := range order {
		order[i] = i
	}
	start := func(i int) int64 { from, _ := chunkRange(chunks[i]); return from }
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(start(a), start(b)) })
	var out []span
	for _, i := range order {
		from, size := chunkRange(chunks[i])
		if n := len(out); n > 0 {
			last := &out[n-1]
			if to := max(last.to, from+size); from-last.to <= coalesceGap && to-last.from <= coalesceMax {
				last.to = to
				last.cols = append(last.cols, i)
				continue
			}
		}
		out = append(out, span{from, from + size, []int{i}})
	}
	return out
}

// openColumns opens the wanted columns of a row group.
func (f *parquetFile) openColumns(ctx context.Context, group int, want []*leaf, c *codecs) (cols []*columnReader, err error) {
	chunks := make([]*format.ColumnMetaData, len(want))
	for i, l := range want {
		chunks[i] = &f.meta.RowGroups[group].Columns[l.index].MetaData
	}
	cols = make([]*columnReader, len(want))
	spans := coalesce(chunks)
	buffer := min(max(streamBuffers/max(len(spans), 1), minStreamBuffer), maxStreamBuffer)
	for _, s := range spans {
		var data []byte
		if len(s.cols) > 1 || s.to-s.from <= int64(buffer) {
			if data, err = fetch(ctx, f.obj, s.from, s.to); err != nil {
				break
			}
		}
		for _, i := range s.cols {
			from, size := chunkRange(chunks[i])
			col := &columnReader{l: want[i], meta: chunks[i], codecs: c, left: size, values: chunks[i].NumValues}
			if data != nil || size == 0 {
				col.src = bufio.NewReader(bytes.NewReader(data[from-s.from:][:size]))
			} else {
				src := &source{r: f.obj.NewReader(ctx, from, size)}
				col.src, col.body = bufio.NewReaderSize(src, buffer), src.r
				col.srcErr = func() error { return src.err }
			}
			cols[i] = col
		}
	}
	if err != nil {
		for _, c := range cols {
			if c != nil {
				_ = c.close() // the fetch's error says it
			}
		}
		return nil, err
	}
	return cols, nil
}
