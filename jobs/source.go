package jobs

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/batchmill/batchmill/internal/objstore"
	"github.com/batchmill/batchmill/internal/row"
	"github.com/batchmill/batchmill/readers"
)

// segmentReader reads the records of one shard, segment after segment. A source that breaks off in the middle ends with
// one record whose error is source_truncated, so that both readings of a shard, for prompts and for carried columns, see
// the same records.
type segmentReader struct {
	ctx   context.Context
	store *objstore.Store
	plan  *Plan
	segs  Segments
	opts  readers.Options

	cur   readers.Reader
	seg   Segment // being read
	name  string  // its source, as rows name it
	taken int64   // records of it
	next  int64   // row index that would follow
}

func newSegmentReader(ctx context.Context, store *objstore.Store, plan *Plan, shard int, opts readers.Options) *segmentReader {
	return &segmentReader{ctx: ctx, store: store, plan: plan, segs: plan.Shards[shard], opts: opts}
}

// Read returns the next record; io.EOF ends the shard. Any other error ends the shard without a part.
func (s *segmentReader) Read() (*row.Record, error) {
	for {
		if s.cur == nil {
			if len(s.segs) == 0 {
				return nil, io.EOF
			}
			if err := s.open(); err != nil {
				return nil, err
			}
		}
		if s.seg.Limit > 0 && s.taken >= s.seg.Limit {
			s.Close()
			continue
		}
		rec, err := s.cur.Read()
		if err == nil {
			s.taken++
			s.next = rec.Row + 1
			rec.Source = s.name
			return rec, nil
		}
		s.Close()
		var fe *readers.FileError
		switch {
		case errors.Is(err, io.EOF):
			continue
		case errors.As(err, &fe) && fe.Truncated:
			return &row.Record{
				Source: s.name, Row: s.next, Offset: -1,
				Err: row.Errorf(row.SourceTruncated, "%s: %v; the rows before are whole. Bring the complete file and run it to a new output", s.name, fe),
			}, nil
		}
		return nil, classify(err)
	}
}

func (s *segmentReader) open() error {
	s.seg, s.segs = s.segs[0], s.segs[1:]
	s.taken, s.next = 0, s.seg.Cut.FirstRow
	in := s.plan.Inputs[s.seg.Input]
	s.name = sourceName(in.URL)
	obj, err := s.store.Open(s.ctx, objstore.Info{URL: in.URL, Size: in.Size, ETag: in.ETag})
	if err != nil {
		return classify(fmt.Errorf("open %s: %w", in.URL, err))
	}
	opts := s.opts
	opts.Format = in.Format
	s.cur, err = readers.Open(s.ctx, obj, s.seg.Cut, opts)
	if err != nil {
		return classify(fmt.Errorf("read %s: %w", in.URL, err))
	}
	return nil
}

// sourceName is the identity of a source in rows: its URL without connection settings, which are how it was reached.
func sourceName(url string) string {
	loc, err := objstore.Parse(url)
	if err != nil {
		return url
	}
	loc.Query = ""
	return loc.String()
}

// Close ends the reading of the present segment.
func (s *segmentReader) Close() {
	if s.cur != nil {
		s.cur.Close()
		s.cur = nil
	}
}

// classify gives errors of readers and stores their kind.
func classify(err error) error {
	var known *Error
	var fe *readers.FileError
	switch {
	case err == nil, errors.As(err, &known), errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &fe):
		return Errorf(BadInput, "", "%w", err)
	case errors.Is(err, objstore.ErrChanged):
		return Errorf(BadInput, "bring the planned version back, or write to another --output", "%w", err)
	case errors.Is(err, objstore.ErrUnsupported):
		return Errorf(BadInput, "", "%w", err)
	case errors.Is(err, objstore.ErrNotExist), errors.Is(err, objstore.ErrNoMatch):
		return Errorf(NoInput, "", "%w", err)
	}
	return Errorf(StorageIO, "", "%w", err)
}

// classifyPut is classify for writes: a store that cannot do what a commit needs is a matter of configuration.
func classifyPut(err error) error {
	if errors.Is(err, objstore.ErrUnsupported) {
		return Errorf(Config, "write to another file system or store", "%w", err)
	}
	return classify(err)
}
