package jobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/batchmill/batchmill/internal/hub"
	"github.com/batchmill/batchmill/internal/objstore"
)

// hubStore lets package hub fetch models from object storage.
type hubStore struct{ store *objstore.Store }

// Stat implements hub.Store.
func (h hubStore) Stat(ctx context.Context, url string) (hub.ObjectInfo, error) {
	info, err := h.store.Stat(ctx, url)
	if errors.Is(err, objstore.ErrNotExist) {
		return hub.ObjectInfo{}, fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return objectInfo(info), err
}

// List implements hub.Store.
func (h hubStore) List(ctx context.Context, prefix string) ([]hub.ObjectInfo, error) {
	infos, err := h.store.List(ctx, prefix)
	out := make([]hub.ObjectInfo, len(infos))
	for i, info := range infos {
		out[i] = objectInfo(info)
	}
	return out, err
}

// Open implements hub.Store.
func (h hubStore) Open(ctx context.Context, info hub.ObjectInfo, off int64) (io.ReadCloser, error) {
	obj, err := h.store.Open(ctx, objstore.Info{URL: info.URL, Size: info.Size, ETag: info.ETag})
	if err != nil {
		return nil, err
	}
	return obj.NewReader(ctx, off, info.Size-off), nil
}

func objectInfo(info objstore.Info) hub.ObjectInfo {
	return hub.ObjectInfo{URL: info.URL, Size: info.Size, ETag: info.ETag}
}
