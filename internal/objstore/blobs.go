package objstore

import (
	"context"
	"errors"
	"io"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"
)

// writerParts is how many parts of a multipart upload are in flight at once; memory per Writer is about
// (writerParts+1) * PartBytes.
const writerParts = 2

// dialect is what gocloud's portable interface leaves out, per store. Fields may be nil.
type dialect struct {
	// attrETag and listETag give the token that reads are pinned to; "" where it is not told.
	attrETag func(*blob.Attributes) string
	listETag func(*blob.ListObject) string
	// pin makes a read conditional on the token; false: the store cannot, so attributes are compared instead.
	pin func(as func(any) bool, etag string) bool
	// abortUploads drops left-over multipart uploads of a key.
	abortUploads func(ctx context.Context, key string) error
}

// blobBackend is a bucket behind gocloud.dev/blob.
type blobBackend struct {
	b *blob.Bucket
	d dialect
	o Options
}

func (s *blobBackend) close() error { return s.b.Close() }

func (s *blobBackend) etag(a *blob.Attributes) string {
	if s.d.attrETag != nil {
		return s.d.attrETag(a)
	}
	return a.ETag
}

func (s *blobBackend) stat(ctx context.Context, key string) (entry, error) {
	a, err := s.b.Attributes(ctx, key)
	if err != nil {
		return entry{}, err
	}
	return entry{key: key, size: a.Size, etag: s.etag(a), modTime: a.ModTime}, nil
}

func (s *blobBackend) metadata(ctx context.Context, key string) (map[string]string, error) {
	a, err := s.b.Attributes(ctx, key)
	if err != nil {
		return nil, err
	}
	return a.Metadata, nil
}

func (s *blobBackend) list(ctx context.Context, prefix string, deep bool, yield func(entry) error) error {
	o := &blob.ListOptions{Prefix: prefix, Delimiter: "/"}
	if deep {
		o.Delimiter = ""
	}
	it := s.b.List(o)
	for {
		obj, err := it.Next(ctx)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		e := entry{key: obj.Key, dir: obj.IsDir, size: obj.Size, modTime: obj.ModTime}
		if !e.dir && s.d.listETag != nil {
			e.etag = s.d.listETag(obj)
		}
		if !e.dir && e.etag == "" {
			full, err := s.stat(ctx, obj.Key)
			if gcerrors.Code(err) == gcerrors.NotFound {
				continue // deleted meanwhile
			}
			if err != nil {
				return err
			}
			e = full
		}
		if err := yield(e); err != nil {
			return err
		}
	}
}

func (s *blobBackend) openRange(ctx context.Context, key string, off, n int64, etag string) (io.ReadCloser, error) {
	pinned := false
	o := &blob.ReaderOptions{}
	if etag != "" && s.d.pin != nil {
		o.BeforeRead = func(as func(any) bool) error {
			pinned = s.d.pin(as, etag)
			return nil
		}
	}
	r, err := s.b.NewRangeReader(ctx, key, off, n, o)
	if err != nil {
		return nil, err
	}
	if etag != "" && !pinned {
		a, err := s.b.Attributes(ctx, key)
		if err == nil && s.etag(a) != etag {
			err = errChanged
		}
		if err != nil {
			return nil, errors.Join(err, r.Close())
		}
	}
	return r, nil
}

func (s *blobBackend) delete(ctx context.Context, key string) error { return s.b.Delete(ctx, key) }

func (s *blobBackend) abortUploads(ctx context.Context, key string) error {
	if s.d.abortUploads == nil {
		return nil
	}
	return s.d.abortUploads(ctx, key)
}

func (s *blobBackend) create(ctx context.Context, key string, o CreateOptions) (sink, error) {
	ctx, cancel := context.WithCancel(ctx)
	w, err := s.b.NewWriter(ctx, key, &blob.WriterOptions{
		BufferSize: s.o.PartBytes, MaxConcurrency: writerParts,
		ContentType: o.ContentType, Metadata: o.Metadata, IfNotExist: o.IfAbsent,
	})
	if err != nil {
		cancel()
		return nil, err
	}
	return &blobSink{w: w, cancel: cancel}, nil
}

type blobSink struct {
	w      *blob.Writer
	cancel context.CancelFunc
}

func (k *blobSink) Write(p []byte) (int, error) { return k.w.Write(p) }

func (k *blobSink) commit() error {
	defer k.cancel()
	return k.w.Close()
}

// abort cancels first: Close alone publishes what was written so far, on every driver.
func (k *blobSink) abort() {
	k.cancel()
	_ = k.w.Close() // it reports the cancelled context
}
