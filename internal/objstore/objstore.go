// Package objstore is the project's only door to storage: local files and object stores behind one set of URLs.
//
// URLs are file:///abs/path, s3://bucket/key, gs://bucket/key, azblob://container/key and mem://name/key (tests). Keys
// are taken byte for byte: nothing is percent-decoded. Connection settings may stand behind the key as a query
// (s3://b/k?endpoint=http://host:9000&region=eu-1); everything else after a "?" belongs to the key.
//
// What callers can rely on:
//   - Reads are pinned: an Object read after its ETag changed fails with ErrChanged, never with mixed bytes.
//   - Create with IfAbsent is exact, also between processes, on every store; a store that cannot do it is refused.
//   - A Writer publishes nothing before Commit, and Abort publishes nothing at all.
//   - Reads, lists and Put are retried with jitter until Options.RetryFor is over; a Writer's bytes are not kept, so it
//     is not retried: an error that Is ErrUnknown means that the object may exist, and the caller reads back.
//   - Errors say what, where and what to do; the sentinels in errors.go say which kind.
package objstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// Options configure a Store; the zero value is usable.
type Options struct {
	// RetryFor bounds the time that one operation may spend on temporary failures without any progress; 0 is 2 minutes.
	RetryFor time.Duration
	// StallTimeout is how long a read may go without a byte before it is taken up anew; 0 is 60 seconds.
	StallTimeout time.Duration
	// PartBytes is the size of a multipart upload's parts; 0 is 8 MiB. A Writer holds up to writerParts+1 of them.
	PartBytes int
	// TmpDir is the folder (path or file URL) where files are written before they are linked into place; it must lie
	// on the same file system. Empty: beside the final name, under a name that starts with a dot.
	TmpDir string
	// Known are the name endings that a prefix pattern ("folder/") selects; nil is KnownExtensions.
	Known []string
	// Around, if set, is called in place of every single request; for tests.
	Around Around
}

// KnownExtensions are the name endings of files that a prefix pattern selects, each also with a compression ending.
var KnownExtensions = []string{".jsonl", ".ndjson", ".parquet"}

const (
	defaultRetryFor     = 2 * time.Minute  // longer than a store's usual hiccup, shorter than an operator's patience
	defaultStallTimeout = 60 * time.Second // SDKs set none: a dead connection would hang a job for ever
	defaultPartBytes    = 8 << 20          // 10,000 parts of it are 80 GiB, beyond any part object of ours
)

func (o Options) withDefaults() Options {
	if o.RetryFor == 0 {
		o.RetryFor = defaultRetryFor
	}
	if o.StallTimeout == 0 {
		o.StallTimeout = defaultStallTimeout
	}
	if o.PartBytes == 0 {
		o.PartBytes = defaultPartBytes
	}
	if o.Known == nil {
		o.Known = KnownExtensions
	}
	return o
}

// Info describes an object. Two Infos with equal URL and ETag describe the same bytes.
type Info struct {
	URL     string
	Size    int64
	ETag    string // opaque; what reads are pinned to
	ModTime time.Time
}

// CreateOptions say how an object is created.
type CreateOptions struct {
	IfAbsent    bool              // fail with ErrExists instead of replacing
	ContentType string            // "" is application/octet-stream
	Metadata    map[string]string // kept where the store has metadata; file:// drops it
}

// Store opens buckets on first use and keeps them until Close. It is safe for concurrent use.
type Store struct {
	o Options

	mu       sync.Mutex
	backends map[string]backend // by scheme, bucket and query
	closed   bool
}

// New returns a Store. Nothing is contacted before it is needed.
func New(o Options) *Store {
	return &Store{o: o.withDefaults(), backends: map[string]backend{}}
}

// Close releases all connections; the Store, its Objects and Writers must not be used afterwards.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	var errs []error
	for _, b := range s.backends {
		errs = append(errs, b.close())
	}
	clear(s.backends)
	return errors.Join(errs...)
}

// backend is what one bucket (or the file system) can do. Every method may be called concurrently; none retries; errors
// are raw and classified by classify.
type backend interface {
	stat(ctx context.Context, key string) (entry, error)
	metadata(ctx context.Context, key string) (map[string]string, error)
	// list yields entries whose key starts with prefix, in no fixed order; not deep: names up to the next slash only,
	// folders as entries with dir set and a key ending in a slash.
	list(ctx context.Context, prefix string, deep bool, yield func(entry) error) error
	// openRange reads n > 0 bytes from off; etag != "" pins, and a mismatch is errChanged.
	openRange(ctx context.Context, key string, off, n int64, etag string) (io.ReadCloser, error)
	create(ctx context.Context, key string, o CreateOptions) (sink, error)
	delete(ctx context.Context, key string) error // a missing object is fs.ErrNotExist or the store's own error for it
	close() error
}

type entry struct {
	key     string
	dir     bool
	size    int64
	etag    string // "" where a listing does not tell
	modTime time.Time
}

// sink takes the bytes of one new object. After commit or abort nothing else may be called.
type sink interface {
	io.Writer
	commit() error
	abort()
}

// at opens the backend of a URL.
func (s *Store) at(ctx context.Context, url string) (backend, Location, error) {
	loc, err := Parse(url)
	if err != nil {
		return nil, loc, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, loc, errors.New("the store is closed")
	}
	id := loc.Scheme + "://" + loc.Bucket + "?" + loc.Query
	if b := s.backends[id]; b != nil {
		return b, loc, nil
	}
	b, err := openBackend(ctx, loc, s.o)
	if err != nil {
		return nil, loc, wrap("open", url, err)
	}
	if s.o.Around != nil {
		b = &aroundBackend{b, Location{Scheme: loc.Scheme, Bucket: loc.Bucket}, s.o.Around}
	}
	s.backends[id] = b
	return b, loc, nil
}

func openBackend(ctx context.Context, loc Location, o Options) (backend, error) {
	switch loc.Scheme {
	case "file":
		return newFileBackend(o)
	case "mem":
		return openMem(loc)
	case "s3":
		return openS3(ctx, loc, o)
	case "gs":
		return openGCS(ctx, loc, o)
	case "azblob":
		return openAzure(ctx, loc, o)
	}
	return nil, fmt.Errorf("unknown scheme %q", loc.Scheme)
}

// Stat describes one object; ErrNotExist where there is none.
func (s *Store) Stat(ctx context.Context, url string) (Info, error) {
	b, loc, err := s.at(ctx, url)
	if err != nil {
		return Info{}, err
	}
	return retry(ctx, s.o, "stat", loc.String(), func(ctx context.Context) (Info, error) {
		e, err := b.stat(ctx, loc.Key)
		return e.info(loc), err
	})
}

// Metadata returns the metadata that the object was created with; empty where the store keeps none.
func (s *Store) Metadata(ctx context.Context, url string) (map[string]string, error) {
	b, loc, err := s.at(ctx, url)
	if err != nil {
		return nil, err
	}
	return retry(ctx, s.o, "stat", loc.String(), func(ctx context.Context) (map[string]string, error) {
		return b.metadata(ctx, loc.Key)
	})
}

// List returns every object whose URL starts with prefixURL, at any depth, sorted by URL. Our own temporary files are
// left out; nothing else is.
func (s *Store) List(ctx context.Context, prefixURL string) ([]Info, error) {
	b, loc, err := s.at(ctx, prefixURL)
	if err != nil {
		return nil, err
	}
	return retry(ctx, s.o, "list", loc.String(), func(ctx context.Context) ([]Info, error) {
		var out []Info
		err := b.list(ctx, loc.Key, true, func(e entry) error {
			if !e.dir && !strings.HasSuffix(e.key, "/") {
				out = append(out, e.info(loc))
			}
			return nil
		})
		sortInfos(out)
		return out, err
	})
}

// Delete removes one object; one that is missing is no error.
func (s *Store) Delete(ctx context.Context, url string) error {
	b, loc, err := s.at(ctx, url)
	if err != nil {
		return err
	}
	_, err = retry(ctx, s.o, "delete", loc.String(), func(ctx context.Context) (struct{}, error) {
		return struct{}{}, b.delete(ctx, loc.Key)
	})
	if errors.Is(err, ErrNotExist) {
		return nil
	}
	return err
}

// AbortUploads aborts left-over multipart uploads of exactly this key, which stores keep and bill. Call it once the
// key's object is committed: whoever else is still uploading to it has lost anyway. Stores without such uploads do nothing.
func (s *Store) AbortUploads(ctx context.Context, url string) error {
	b, loc, err := s.at(ctx, url)
	if err != nil {
		return err
	}
	a, ok := b.(interface {
		abortUploads(ctx context.Context, key string) error
	})
	if !ok {
		return nil
	}
	_, err = retry(ctx, s.o, "abort uploads of", loc.String(), func(ctx context.Context) (struct{}, error) {
		return struct{}{}, a.abortUploads(ctx, loc.Key)
	})
	return err
}

func (e entry) info(loc Location) Info {
	loc.Key = e.key
	return Info{URL: loc.String(), Size: e.size, ETag: e.etag, ModTime: e.modTime}
}

func sortInfos(infos []Info) {
	slices.SortFunc(infos, func(a, b Info) int { return strings.Compare(a.URL, b.URL) })
}
