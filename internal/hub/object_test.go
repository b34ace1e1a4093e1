package hub

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"testing"
)

// memStore is object storage in memory.
type memStore struct {
	objects map[string][]byte // by URL
	etags   map[string]string
	fail    int // so many opens give half of the object and then fail
	opens   []int64
}

func (s *memStore) info(url string) (ObjectInfo, error) {
	data, ok := s.objects[url]
	if !ok {
		return ObjectInfo{}, fs.ErrNotExist
	}
	etag, ok := s.etags[url]
	if !ok {
		etag = sum256(data)
	}
	return ObjectInfo{URL: url, Size: int64(len(data)), ETag: etag}, nil
}

func (s *memStore) Stat(_ context.Context, url string) (ObjectInfo, error) { return s.info(url) }

func (s *memStore) List(_ context.Context, prefix string) ([]ObjectInfo, error) {
	if !strings.HasSuffix(prefix, "/") {
		return nil, errors.New("no prefix: " + prefix)
	}
	var list []ObjectInfo
	for url := range s.objects {
		if strings.HasPrefix(url, prefix) {
			info, err := s.info(url)
			if err != nil {
				return nil, err
			}
			list = append(list, info)
		}
	}
	return list, nil
}

func (s *memStore) Open(_ context.Context, o ObjectInfo, off int64) (io.ReadCloser, error) {
	now, err := s.info(o.URL)
	if err != nil {
		return nil, err
	}
	if now != o {
		return nil, errors.New("the object changed")
	}
	s.opens = append(s.opens, off)
	data := s.objects[o.URL][off:]
	if s.fail > 0 {
		s.fail--
		return io.NopCloser(io.MultiReader(bytes.NewReader(data[:len(data)/2]), failingReader{})), nil
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}

func TestObjects(t *testing.T) {
	ctx := context.Background()
	model := readFile(t, ggufData+"kinds.gguf")
	s := &memStore{objects: map[string][]byte{"s3://b/x/m.gguf": model, "s3://b/two/a.gguf": model, "s3://b/two/b.gguf": model}}
	for name, data := range modelFiles(t) {
		s.objects["s3://b/folder/"+name] = data
		s.objects["s3://b/folder/deeper/"+name] = data
	}
	for _, part := range []string{"1", "2", "3"} {
		name := "split-0000" + part + "-of-00003.gguf"
		s.objects["s3://b/split/"+name] = readFile(t, ggufData+name)
	}
	o := options(t)
	o.Store = s
	s.fail = 1
	for ref, want := range map[string]struct {
		files, tensors int
		name           string
	}{
		"s3://b/x/m.gguf":                         {1, 6, "m.gguf"},
		"s3://b/folder/":                          {8, 3, "folder"},
		"s3://b/folder":                           {8, 3, "folder"},
		"s3://b/split/split-00001-of-00003.gguf":  {3, 6, "split-00001-of-00003.gguf"},
		"s3://b/x/m.gguf#sha256=" + sum256(model): {1, 6, "m.gguf"},
	} {
		m, err := Resolve(ctx, ref, o)
		if err != nil {
			t.Errorf("%s: %v", ref, err)
			continue
		}
		if len(m.Files) != want.files || len(m.Weights.Tensors()) != want.tensors || m.Name != want.name {
			t.Errorf("%s: %d files, %d tensors, name %s", ref, len(m.Files), len(m.Weights.Tensors()), m.Name)
		}
		m.Close()
	}
	if !slices.ContainsFunc(s.opens, func(off int64) bool { return off > 0 }) {
		t.Errorf("no interrupted read was gone on with: %v", s.opens)
	}

	// Replaced under the same name: what is here stays in use until the next pull.
	old, err := Resolve(ctx, "s3://b/x/m.gguf", o)
	if err != nil {
		t.Fatal(err)
	}
	old.Close()
	s.objects["s3://b/x/m.gguf"] = s.objects["s3://b/split/split-00001-of-00003.gguf"]
	same, err := Resolve(ctx, "s3://b/x/m.gguf", o)
	if err != nil || same.Digest != old.Digest {
		t.Errorf("changed without a pull: %v", err)
	}
	same.Close()
	snap, err := Pull(ctx, "s3://b/x/m.gguf", o)
	if err != nil || snap.Bytes == int64(len(model)) {
		t.Errorf("the pull kept the old one: %+v, %v", snap, err)
	}

	for ref, want := range map[string]struct {
		kind Kind
		says string
	}{
		"s3://b/none.gguf":                        {Missing, "not exist"},
		"s3://b/none/":                            {Missing, "holds no model"},
		"s3://b/two/":                             {Usage, "a.gguf, b.gguf"},
		"s3://b/split/x-00001-of-00002.gguf":      {Missing, "not exist"},
		"s3://b/folder#sha256=" + sum256(nil):     {Usage, "a hash pins one file"},
		"s3://b/two/a.gguf#sha256=" + sum256(nil): {Damaged, "instead of " + sum256(nil)},
	} {
		_, err := Pull(ctx, ref, o)
		wantError(t, err, want.kind, want.says)
	}
	o.Store = nil
	_, err = Pull(ctx, "s3://b/x/m.gguf", o)
	wantError(t, err, Usage, "not available")
}

// TestObjectWithoutETag: without an ETag nothing says that a partial file is of this content, so it is read anew.
func TestObjectWithoutETag(t *testing.T) {
	model := readFile(t, ggufData+"kinds.gguf")
	const url = "mem://b/m.gguf"
	s := &memStore{objects: map[string][]byte{url: model}, etags: map[string]string{url: ""}, fail: 2}
	o := options(t)
	o.Store = s
	m, err := Resolve(context.Background(), url, o)
	if err != nil {
		t.Fatal(err)
	}
	m.Close()
	for _, off := range s.opens {
		if off != 0 {
			t.Errorf("opened %s at %v", path.Base(url), s.opens)
		}
	}
}
