package quant

import (
	"context"
	"fmt"
	"io"
)

// Source is a weight file, local or remote, that is read by range. ReadAt must be safe for concurrent use.
type Source interface {
	io.ReaderAt
	Size() int64
	Name() string // path or URL, for messages
}

// Slicer is a Source whose bytes lie in memory already, such as a mapped file. Slice returns false where it cannot
// give that range without reading; the caller must not write to what it returns.
type Slicer interface {
	Slice(off, n int64) ([]byte, bool)
}

// readChunk bounds one read, so that a cancelled context is noticed while a large tensor comes over the network.
const readChunk = 8 << 20

// ReadRange returns n bytes at off: a view of memory where the source has one, else a fresh buffer. The range must lie
// inside the source; it is checked before anything is allocated.
func ReadRange(ctx context.Context, src Source, off, n int64) ([]byte, error) {
	if off < 0 || n < 0 || n > src.Size()-off {
		return nil, fmt.Errorf("read %d bytes at %d: only %d in the file: %w", n, off, src.Size(), io.ErrUnexpectedEOF)
	}
	if s, ok := src.(Slicer); ok {
		if b, ok := s.Slice(off, n); ok {
			return b, ctx.Err()
		}
	}
	buf := make([]byte, n)
	for done := int64(0); done < n; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		part := buf[done:min(done+readChunk, n)]
		k, err := src.ReadAt(part, off+done)
		if k < len(part) {
			if err == nil || err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return nil, fmt.Errorf("read %d bytes at %d: %w", len(part), off+done, err)
		}
		done += int64(len(part))
	}
	return buf, ctx.Err()
}
