package objstore

import (
	"context"
	"io"
)

// Request is one request to a store.
type Request struct {
	Op, URL string
	Do      func() error // makes it; at most once
	Drop    func()       // gives back what one holds that will never be made
}

// Around is called in place of every request to a store; what it returns is the request's outcome. It may make the request
// and report a failure, fail without making it, or make it later. Tests use it to lose answers, to order what races, and to
// end attempts between two requests. Whose a request is, its context says.
type Around func(ctx context.Context, r Request) error

// aroundBackend calls a function around each request of another backend. The bytes of an object are not part of a request:
// writes are buffered until the commit, and a body is read as it comes.
type aroundBackend struct {
	backend
	loc    Location // scheme and bucket
	around Around
}

func (b *aroundBackend) call(ctx context.Context, op, key string, do func() error) error {
	loc := b.loc
	loc.Key = key
	return b.around(ctx, Request{Op: op, URL: loc.String(), Do: do, Drop: func() {}})
}

func (b *aroundBackend) stat(ctx context.Context, key string) (e entry, err error) {
	err = b.call(ctx, "stat", key, func() (err error) { e, err = b.backend.stat(ctx, key); return err })
	return e, err
}

func (b *aroundBackend) metadata(ctx context.Context, key string) (m map[string]string, err error) {
	err = b.call(ctx, "metadata", key, func() (err error) { m, err = b.backend.metadata(ctx, key); return err })
	return m, err
}

func (b *aroundBackend) list(ctx context.Context, prefix string, deep bool, yield func(entry) error) error {
	return b.call(ctx, "list", prefix, func() error { return b.backend.list(ctx, prefix, deep, yield) })
}

func (b *aroundBackend) openRange(ctx context.Context, key string, off, n int64, etag string) (r io.ReadCloser, err error) {
	err = b.call(ctx, "read", key, func() (err error) { r, err = b.backend.openRange(ctx, key, off, n, etag); return err })
	if err != nil && r != nil { // made, but its answer is lost
		_ = r.Close()
		r = nil
	}
	return r, err
}

func (b *aroundBackend) create(ctx context.Context, key string, o CreateOptions) (sink, error) {
	k, err := b.backend.create(ctx, key, o)
	if err != nil {
		return nil, err
	}
	loc := b.loc
	loc.Key = key
	return &aroundSink{sink: k, ctx: ctx, url: loc.String(), around: b.around}, nil
}

func (b *aroundBackend) delete(ctx context.Context, key string) error {
	return b.call(ctx, "delete", key, func() error { return b.backend.delete(ctx, key) })
}

func (b *aroundBackend) abortUploads(ctx context.Context, key string) error {
	a, ok := b.backend.(interface {
		abortUploads(ctx context.Context, key string) error
	})
	if !ok {
		return nil
	}
	return b.call(ctx, "abort uploads of", key, func() error { return a.abortUploads(ctx, key) })
}

type aroundSink struct {
	sink
	ctx    context.Context
	url    string
	around Around
}

func (k *aroundSink) commit() error {
	return k.around(k.ctx, Request{Op: "commit", URL: k.url, Do: k.sink.commit, Drop: k.sink.abort})
}
