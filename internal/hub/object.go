package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"strings"

	"github.com/batchmill/batchmill/infer/gguf"
	"github.com/batchmill/batchmill/infer/safetensors"
)

// ObjectInfo is an object in object storage.
type ObjectInfo struct {
	URL  string
	Size int64
	ETag string // identifies the content; "" where the store has none
}

// Store is the object storage that URLs are read from.
type Store interface {
	// Stat gives an object; an error that wraps fs.ErrNotExist where there is none.
	Stat(ctx context.Context, url string) (ObjectInfo, error)
	// List gives all objects below a prefix that ends in a slash.
	List(ctx context.Context, prefix string) ([]ObjectInfo, error)
	// Open reads an object from off to its end, the one that info describes: if it was replaced, an error.
	Open(ctx context.Context, info ObjectInfo, off int64) (io.ReadCloser, error)
}

// pullObject downloads a model from object storage into the cache.
func (c *client) pullObject(ctx context.Context, r Ref) (*Snapshot, error) {
	if c.Store == nil {
		return nil, failure(Usage, "", "object storage is not available here")
	}
	objects, l, err := c.listObjects(ctx, r)
	if err != nil {
		return nil, err
	}
	version := ""
	for _, name := range l.files() {
		o := objects[name]
		version += fmt.Sprintf("%s %d %s\n", name, o.Size, o.ETag)
	}
	if r.SHA256 != "" && len(l.files()) != 1 {
		return nil, failure(Usage, "leave #sha256= out, or give the file", "a hash pins one file, this model has several")
	}
	dir := filepath.Join(c.dir, "object", slug(r.String()+"\n"+version))
	return c.fill(ctx, r, dir, "", func() ([]fileRecord, error) {
		var records []fileRecord
		get := func(name string) error {
			o, ok := objects[name]
			if !ok {
				return failure(Missing, "", "%s is missing", name)
			}
			rec, err := c.fetch(ctx, dir, remote{
				name: path.Base(name), origin: name, size: o.Size, version: fmt.Sprintf("%s %d", o.ETag, o.Size), sha256: r.SHA256,
				open: func(ctx context.Context, off int64) (io.ReadCloser, int64, error) {
					if o.ETag == "" {
						off = 0 // what is there already may be of another content
					}
					body, err := c.Store.Open(ctx, o, off)
					if errors.Is(err, fs.ErrNotExist) {
						err = permanentError{objectError(err)}
					}
					return body, off, err
				},
			})
			if err == nil {
				records = append(records, rec)
			}
			return err
		}
		if l.index != "" {
			if err := get(l.index); err != nil {
				return nil, err
			}
			data, err := readLimited(filepath.Join(dir, path.Base(l.index)), maxListing)
			if err != nil {
				return nil, err
			}
			weights, err := safetensors.ParseIndex(l.index, data)
			if err != nil {
				return nil, asDamaged(err)
			}
			l.shards = safetensors.Shards(weights)
			l.index = ""
		}
		for _, name := range l.files() {
			if err := get(name); err != nil {
				return nil, err
			}
		}
		return records, nil
	})
}

// listObjects finds the model's objects, by base name.
func (c *client) listObjects(ctx context.Context, r Ref) (map[string]ObjectInfo, layout, error) {
	address, query, _ := strings.Cut(r.Path, "?")
	if query != "" {
		query = "?" + query
	}
	var list []ObjectInfo
	want := ""
	if strings.HasSuffix(address, ".gguf") {
		want = path.Base(address)
		names, ok := gguf.SplitNames(want)
		if !ok {
			names = []string{want}
		}
		for _, name := range names {
			o, err := c.Store.Stat(ctx, strings.TrimSuffix(address, want)+name+query)
			if err != nil {
				return nil, layout{}, objectError(err)
			}
			list = append(list, o)
		}
	} else {
		var err error
		if list, err = c.Store.List(ctx, strings.TrimRight(address, "/")+"/"+query); err != nil {
			return nil, layout{}, objectError(err)
		}
	}
	objects := map[string]ObjectInfo{}
	var names []string
	folder := strings.TrimRight(address, "/") + "/"
	if want != "" {
		folder = strings.TrimSuffix(address, want)
	}
	for _, o := range list {
		p, _, _ := strings.Cut(o.URL, "?")
		if name, ok := strings.CutPrefix(p, folder); ok && name != "" {
			objects[name] = o
			names = append(names, name)
		}
	}
	l, err := choose(names, want, false)
	return objects, l, err
}

// objectError gives a store's failure its kind.
func objectError(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return failure(Missing, "", "%w", err)
	}
	return failure(Unavailable, "try again later", "%w", err)
}
