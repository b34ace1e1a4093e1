package objstore

import (
	"bytes"
	"context"
	"errors"
	"io"
	"time"
)

// Writer creates one object. Nothing is visible before Commit. Exactly one of Commit and Abort must be called; Abort
// after Commit does nothing, so that it can be deferred.
type Writer struct {
	ctx  context.Context
	url  string
	sink sink // nil once done
	n    int64
	err  error // the first Write error; Commit returns it and publishes nothing
}

var errDone = errors.New("the writer is committed or aborted already")

// Create starts a new object. The context covers the whole write, Commit included.
func (s *Store) Create(ctx context.Context, url string, o CreateOptions) (*Writer, error) {
	b, loc, err := s.at(ctx, url)
	if err != nil {
		return nil, err
	}
	if o.ContentType == "" {
		o.ContentType = "application/octet-stream"
	}
	k, err := b.create(ctx, loc.Key, o)
	if err != nil {
		return nil, wrap("create", loc.String(), err)
	}
	return &Writer{ctx: ctx, url: loc.String(), sink: k}, nil
}

// Write adds bytes. After an error the object cannot be committed any more.
func (w *Writer) Write(p []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	if w.sink == nil {
		return 0, errDone
	}
	n, err := w.sink.Write(p)
	w.n += int64(n)
	if err != nil {
		w.err = w.classify("write", err)
	}
	return n, w.err
}

// Size is the number of bytes written so far.
func (w *Writer) Size() int64 { return w.n }

// Commit publishes the object. ErrExists: with IfAbsent, an object is there already (it may be our own, if the store
// answered an earlier try too late: compare its content). ErrUnknown: it may be there or not.
func (w *Writer) Commit() error {
	if w.sink == nil {
		return errDone
	}
	if err := w.ctx.Err(); err != nil && w.err == nil {
		w.err = err
	}
	if w.err != nil {
		w.Abort()
		return w.err
	}
	err := w.sink.commit()
	w.sink = nil
	if err != nil {
		return w.classify("commit", err)
	}
	return nil
}

// Abort drops everything that was written.
func (w *Writer) Abort() {
	if w.sink != nil {
		w.sink.abort()
		w.sink = nil
	}
}

func (w *Writer) classify(op string, err error) error {
	out := wrap(op, w.url, err)
	var e *Error
	if op == "commit" && errors.As(out, &e) && (errors.Is(out, ErrTemporary) || w.ctx.Err() != nil || errors.Is(err, context.Canceled)) && !errors.Is(out, ErrUnknown) {
		e.Kinds = append(e.Kinds, ErrUnknown)
	}
	return out
}

// Put creates a small object in one call, with retries. With o.IfAbsent and an object already there it returns
// ErrExists, unless that object is what an earlier try of this very call wrote.
func (s *Store) Put(ctx context.Context, url string, data []byte, o CreateOptions) error {
	deadline := time.Now().Add(s.o.RetryFor)
	unsure := false // an earlier try may have landed
	for n := 0; ; n++ {
		err := s.putOnce(ctx, url, data, o)
		if err == nil || ctx.Err() != nil {
			return err
		}
		if unsure && errors.Is(err, ErrExists) {
			have, _, rerr := s.ReadAll(ctx, url, int64(len(data)))
			if rerr == nil && bytes.Equal(have, data) {
				return nil
			}
			return err
		}
		unsure = unsure || errors.Is(err, ErrUnknown)
		pause := pauseBefore(n)
		if !errors.Is(err, ErrTemporary) && !errors.Is(err, ErrUnknown) || time.Now().Add(pause).After(deadline) {
			return err
		}
		if serr := sleep(ctx, pause); serr != nil {
			return err
		}
	}
}

func (s *Store) putOnce(ctx context.Context, url string, data []byte, o CreateOptions) error {
	w, err := s.Create(ctx, url, o)
	if err != nil {
		return err
	}
	defer w.Abort()
	if _, err := io.Copy(w, bytes.NewReader(data)); err != nil {
		return err
	}
	return w.Commit()
}
