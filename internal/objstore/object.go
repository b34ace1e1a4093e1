package objstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// errStalled ends a read that got no byte for Options.StallTimeout.
var errStalled = errors.New("no data for too long")

// Object is one version of an object, open for reading by range. It is safe for concurrent use and holds no connection
// between calls.
type Object struct {
	ctx  context.Context
	b    backend
	o    Options
	loc  Location
	info Info
}

// Open prepares reading of exactly the version that info describes. An Info without an ETag or size is completed by a
// Stat. The context ends ReadAt calls, which have none of their own.
func (s *Store) Open(ctx context.Context, info Info) (*Object, error) {
	if info.ETag == "" {
		now, err := s.Stat(ctx, info.URL)
		if err != nil {
			return nil, err
		}
		info = now
	}
	b, loc, err := s.at(ctx, info.URL)
	if err != nil {
		return nil, err
	}
	return &Object{ctx: ctx, b: b, o: s.o, loc: loc, info: info}, nil
}

// Size is the object's size in bytes.
func (o *Object) Size() int64 { return o.info.Size }

// Info describes the version that is read.
func (o *Object) Info() Info { return o.info }

// Name is the object's URL.
func (o *Object) Name() string { return o.info.URL }

// ReadAt implements io.ReaderAt. Reads past the end are clamped, so that no store sees a range that it would refuse.
func (o *Object) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("read %s: negative offset %d", o.info.URL, off)
	}
	if off >= o.info.Size {
		return 0, io.EOF
	}
	want := p[:min(int64(len(p)), o.info.Size-off)]
	if len(want) == 0 {
		return 0, nil
	}
	r := o.NewReader(o.ctx, off, int64(len(want)))
	defer r.Close()
	n, err := io.ReadFull(r, want)
	if err == io.ErrUnexpectedEOF {
		err = wrap("read", o.info.URL, errChanged) // shorter than its size said
	}
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}

// NewReader streams n bytes from off; n < 0 is to the end. It is opened on the first Read, and taken up again where it
// broke. It ends with io.EOF after exactly the clamped range.
func (o *Object) NewReader(ctx context.Context, off, n int64) io.ReadCloser {
	off = min(max(off, 0), o.info.Size)
	end := o.info.Size
	if n >= 0 {
		end = min(end, off+min(n, o.info.Size)) // min: off+n could overflow
	}
	return &reader{ctx: ctx, o: o, off: off, end: end}
}

type reader struct {
	ctx      context.Context
	o        *Object
	off, end int64

	body   io.ReadCloser
	cancel context.CancelFunc
	stall  *time.Timer

	failures int       // since the last byte
	deadline time.Time // for the current run of failures
	err      error     // sticky
}

func (r *reader) Read(p []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	if r.off >= r.end {
		return 0, io.EOF
	}
	if len(p) == 0 {
		return 0, nil
	}
	p = p[:min(int64(len(p)), r.end-r.off)]
	for {
		if r.err = r.ctx.Err(); r.err != nil {
			return 0, r.err
		}
		n, err := r.try(p)
		if n > 0 {
			r.off += int64(n)
			r.failures, r.deadline = 0, time.Time{}
			return n, nil // an error beside bytes shows again on the next try
		}
		if r.err = r.again(err); r.err != nil {
			return 0, r.err
		}
	}
}

func (r *reader) try(p []byte) (int, error) {
	if r.body == nil {
		ctx, cancel := context.WithCancelCause(r.ctx)
		r.cancel = func() { cancel(nil) }
		r.stall = time.AfterFunc(r.o.o.StallTimeout, func() { cancel(errStalled) })
		body, err := r.o.b.openRange(ctx, r.o.loc.Key, r.off, r.end-r.off, r.o.info.ETag)
		if err != nil {
			err = orStalled(ctx, err)
			r.drop()
			return 0, err
		}
		r.body = body
	}
	r.stall.Reset(r.o.o.StallTimeout)
	n, err := r.body.Read(p)
	r.stall.Stop()
	if n == 0 && err == nil {
		err = io.ErrNoProgress
	}
	if err != nil {
		if err == io.EOF { // before the end of the range
			err = io.ErrUnexpectedEOF
		}
		r.drop()
	}
	return n, err
}

// orStalled replaces the error of a cancelled context by the reason for which we cancelled it.
func orStalled(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errStalled) {
		return errStalled
	}
	return err
}

// again decides whether a failed try is repeated, and waits; nil means yes.
func (r *reader) again(err error) error {
	if cerr := r.ctx.Err(); cerr != nil {
		return cerr
	}
	if errors.Is(err, context.Canceled) { // ours: the stall timer
		err = errStalled
	}
	err = wrap("read", r.o.info.URL, err)
	if r.deadline.IsZero() {
		r.deadline = time.Now().Add(r.o.o.RetryFor)
	}
	pause := pauseBefore(r.failures)
	r.failures++
	if !errors.Is(err, ErrTemporary) || time.Now().Add(pause).After(r.deadline) {
		return err
	}
	return sleep(r.ctx, pause)
}

func (r *reader) drop() {
	if r.body != nil {
		r.body.Close()
		r.body = nil
	}
	if r.cancel != nil {
		r.stall.Stop()
		r.cancel()
		r.cancel = nil
	}
}

// Close ends the read; the rest is not fetched.
func (r *reader) Close() error {
	r.drop()
	if r.err == nil {
		r.err = errors.New("read of a closed reader")
	}
	return nil
}

// ReadAll reads a whole object of at most max bytes; a larger one is refused before it is fetched.
func (s *Store) ReadAll(ctx context.Context, url string, max int64) ([]byte, Info, error) {
	info, err := s.Stat(ctx, url)
	if err != nil {
		return nil, info, err
	}
	if info.Size > max {
		return nil, info, fmt.Errorf("read %s: it has %d bytes, more than the limit of %d", info.URL, info.Size, max)
	}
	obj, err := s.Open(ctx, info)
	if err != nil {
		return nil, info, err
	}
	r := obj.NewReader(ctx, 0, -1)
	defer r.Close()
	var buf bytes.Buffer
	buf.Grow(int(info.Size) + bytes.MinRead)
	if _, err := buf.ReadFrom(r); err != nil {
		return nil, info, err
	}
	return buf.Bytes(), info, nil
}
