package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/batchmill/batchmill/infer/gguf"
	"github.com/batchmill/batchmill/infer/safetensors"
)

const (
	defaultEndpoint = "https://huggingface.co"
	// maxListing bounds the description of a repository.
	maxListing = 32 << 20
)

// The hub's HTTP interface: GET /api/models/REPO/revision/REV lists files and gives the commit; HEAD
// /REPO/resolve/REV/FILE gives X-Repo-Commit, and for files in LFS X-Linked-Etag (their SHA-256) and X-Linked-Size, for
// others ETag (their git id) and Content-Length; GET of the same, mostly by a redirect, gives the content.

// hfFile is what the hub says about a file.
type hfFile struct {
	commit  string
	size    int64
	sha256  string
	gitSHA1 string
	etag    string
}

func (c *client) endpoint() string {
	if e := strings.TrimRight(os.Getenv("HF_ENDPOINT"), "/"); e != "" {
		return e
	}
	return defaultEndpoint
}

// token is HF_TOKEN, or what `hf auth login` left.
func (c *client) token() string {
	if t := strings.TrimSpace(os.Getenv("HF_TOKEN")); t != "" {
		return t
	}
	file := os.Getenv("HF_TOKEN_PATH")
	if file == "" {
		file = filepath.Join(c.hfHome(), "token")
	}
	data, err := readLimited(file, 1<<16)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

func (c *client) hfRequest(method, address string) func(context.Context) (*http.Request, error) {
	return func(ctx context.Context) (*http.Request, error) {
		req, err := http.NewRequestWithContext(ctx, method, address, nil)
		if err != nil {
			return nil, err
		}
		req.Header.Set("User-Agent", "batchmill")
		req.Header.Set("Accept-Encoding", "identity")
		if t := c.token(); t != "" {
			req.Header.Set("Authorization", "Bearer "+t)
		}
		return req, nil
	}
}

func (c *client) resolveURL(r Ref, rev, file string) string {
	return c.endpoint() + "/" + r.Name + "/resolve/" + url.PathEscape(rev) + "/" + (&url.URL{Path: file}).EscapedPath()
}

// pullHF brings a repository's model here, unless the commit that the revision stands for now is here already.
func (c *client) pullHF(ctx context.Context, r Ref) (*Snapshot, error) {
	if v := strings.ToLower(os.Getenv("HF_HUB_OFFLINE")); v == "1" || v == "true" || v == "yes" || v == "on" {
		s, err := c.locate(ctx, r)
		if KindOf(err) == NotCached {
			err = failure(Unavailable, "unset HF_HUB_OFFLINE to fetch it", "it is not on this machine, and HF_HUB_OFFLINE is set")
		}
		return s, err
	}
	var commit string
	var l layout
	var err error
	if r.File != "" {
		if !strings.HasSuffix(r.File, ".gguf") {
			return nil, failure(Usage, "leave the file out to take the whole model", "%s is not a .gguf file", r.File)
		}
		f, err := c.hfHead(ctx, r, r.Version, r.File)
		if err != nil {
			return nil, err
		}
		commit, l.gguf = f.commit, []string{r.File}
		if parts, ok := gguf.SplitNames(path.Base(r.File)); ok {
			l.gguf = nil
			for _, p := range parts {
				l.gguf = append(l.gguf, path.Join(path.Dir(r.File), p))
			}
		}
	} else {
		var names []string
		if commit, names, err = c.hfList(ctx, r); err != nil {
			return nil, err
		}
		if l, err = choose(names, "", false); err != nil {
			return nil, err
		}
	}
	if !hexSHA1.MatchString(commit) {
		return nil, failure(Unavailable, "check HF_ENDPOINT", "%s does not say which commit %s is", c.endpoint(), r.Version)
	}
	if r.SHA256 != "" && len(l.files()) != 1 {
		return nil, failure(Usage, "leave #sha256= out; the hub's own hashes are checked", "a hash pins one file, this model has several")
	}
	if s, ok := c.lookUpHub(r, commit); ok && s.has(l.files()) {
		return s, nil
	}
	dir := filepath.Join(c.dir, "hf", slug(fmt.Sprintf("%s@%s:%s", r.Name, commit, r.File)))
	return c.fill(ctx, r, dir, commit, func() ([]fileRecord, error) { return c.hfFetchAll(ctx, r, dir, commit, l) })
}

// hfFetchAll fetches all files of a model; those that an index names are known after the index.
func (c *client) hfFetchAll(ctx context.Context, r Ref, dir, commit string, l layout) ([]fileRecord, error) {
	var records []fileRecord
	get := func(file string) error {
		rec, err := c.hfFetch(ctx, r, dir, commit, file)
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
		for _, shard := range safetensors.Shards(weights) {
			l.shards = append(l.shards, path.Join(path.Dir(l.index), shard))
		}
	}
	// Small files first: a gated or broken repository shows itself before gigabytes have come.
	files := append(append([]string{}, l.sidecars...), l.gguf...)
	if l.weights != "" {
		files = append(files, l.weights)
	}
	for _, f := range append(files, l.shards...) {
		if err := get(f); err != nil {
			return nil, err
		}
	}
	return records, nil
}

func (c *client) hfFetch(ctx context.Context, r Ref, dir, commit, file string) (fileRecord, error) {
	f, err := c.hfHead(ctx, r, commit, file)
	if err != nil {
		return fileRecord{}, err
	}
	want := f.sha256
	if r.SHA256 != "" {
		if want != "" && want != r.SHA256 {
			return fileRecord{}, failure(Damaged, "check the pinned hash", "the hub says that %s has the SHA-256 %s, pinned is %s", file, want, r.SHA256)
		}
		want = r.SHA256
	}
	if want == "" && f.gitSHA1 == "" {
		return fileRecord{}, failure(Unavailable, "use a mirror that passes the hub's ETags, or give the file's hash as #sha256=HEX",
			"%s names no hash for %s, which therefore cannot be checked", c.endpoint(), file)
	}
	address := c.resolveURL(r, commit, file)
	rec, err := c.fetch(ctx, dir, remote{
		name: path.Base(file), origin: r.Name + "/" + file, size: f.size, version: f.etag, sha256: want, gitSHA1: f.gitSHA1,
		open: func(ctx context.Context, off int64) (io.ReadCloser, int64, error) {
			return openRange(ctx, c.hf, c.hfRequest(http.MethodGet, address), off)
		},
	})
	return rec, c.hfError(r, err)
}

// hfHead asks what a file is, without following redirects to where its content lies.
func (c *client) hfHead(ctx context.Context, r Ref, rev, file string) (hfFile, error) {
	var f hfFile
	err := c.hfRetry(ctx, r, func() error {
		f = hfFile{size: -1}
		client := *c.hf
		client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		address := c.resolveURL(r, rev, file)
		for range maxRedirects {
			req, err := c.hfRequest(http.MethodHead, address)(ctx)
			if err != nil {
				return permanentError{err}
			}
			resp, err := client.Do(req)
			if err != nil {
				return err
			}
			if resp.StatusCode >= 400 {
				return failedResponse(resp)
			}
			resp.Body.Close()
			if v := resp.Header.Get("X-Repo-Commit"); v != "" {
				f.commit = v
			}
			linked := resp.Header.Get("X-Linked-Etag")
			next, sameHost := redirect(resp)
			if linked == "" && next != "" {
				if !sameHost {
					return permanentError{fmt.Errorf("the redirect for %s names no hash", file)}
				}
				address = next // renamed repositories, and small files behind the hub's own cache
				continue
			}
			return f.read(resp.Header, linked, file)
		}
		return permanentError{fmt.Errorf("stopped after %d redirects", maxRedirects)}
	})
	return f, err
}

// read takes size and hash from the headers.
func (f *hfFile) read(h http.Header, linked, file string) error {
	size := h.Get("Content-Length")
	f.etag = strings.Trim(strings.TrimPrefix(h.Get("ETag"), "W/"), `"`)
	if linked != "" {
		f.etag = strings.Trim(strings.TrimPrefix(linked, "W/"), `"`)
		size = h.Get("X-Linked-Size")
	}
	if hexSHA256.MatchString(f.etag) {
		f.sha256 = f.etag
	} else if hexSHA1.MatchString(f.etag) {
		f.gitSHA1 = f.etag
	}
	n, err := strconv.ParseInt(size, 10, 64)
	if err != nil || n < 0 {
		return permanentError{fmt.Errorf("the hub gives no size for %s: %q", file, size)}
	}
	f.size = n
	return nil
}

// redirect gives where a response points to, and whether that is on the same host.
func redirect(resp *http.Response) (string, bool) {
	if resp.StatusCode < 300 || resp.StatusCode >= 400 {
		return "", false
	}
	u, err := resp.Location()
	if err != nil {
		return "", false
	}
	return u.String(), u.Host == resp.Request.URL.Host && u.Scheme == resp.Request.URL.Scheme
}

// hfList gives the commit and the files of a repository.
func (c *client) hfList(ctx context.Context, r Ref) (commit string, names []string, err error) {
	var listing struct {
		SHA      string
		Siblings []struct{ RFilename string }
	}
	err = c.hfRetry(ctx, r, func() error {
		req, err := c.hfRequest(http.MethodGet, c.endpoint()+"/api/models/"+r.Name+"/revision/"+url.PathEscape(r.Version))(ctx)
		if err != nil {
			return permanentError{err}
		}
		resp, err := c.hf.Do(req)
		if err != nil {
			return err
		}
		if resp.StatusCode != http.StatusOK {
			return failedResponse(resp)
		}
		defer resp.Body.Close()
		data, err := io.ReadAll(io.LimitReader(resp.Body, maxListing+1))
		if err != nil {
			return err
		}
		if len(data) > maxListing {
			return permanentError{fmt.Errorf("the list of files is longer than %d bytes", maxListing)}
		}
		if err := json.Unmarshal(data, &listing); err != nil {
			return permanentError{fmt.Errorf("read the list of files: %w", err)}
		}
		return nil
	})
	for _, s := range listing.Siblings {
		names = append(names, s.RFilename)
	}
	return listing.SHA, names, err
}

// hfRetry repeats a small request while its failure may pass.
func (c *client) hfRetry(ctx context.Context, r Ref, try func() error) error {
	for failures := 1; ; failures++ {
		err := try()
		var se *statusError
		if err == nil || ctx.Err() != nil || isPermanent(err) || errors.As(err, &se) && !se.temporary() || failures >= fetchTries {
			return c.hfError(r, err)
		}
		if err := c.pause(ctx, failures); err != nil {
			return err
		}
	}
}

// hfError gives a failure its kind and a hint.
func (c *client) hfError(r Ref, err error) error {
	var se *statusError
	var e *Error
	switch {
	case err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) && !errors.As(err, &e):
		return err
	case errors.As(err, &se) && (se.code == http.StatusUnauthorized || se.code == http.StatusForbidden):
		hint := "set HF_TOKEN, and accept the licence on the model's page if it is gated"
		if c.token() != "" {
			hint = "the token is not accepted for it: accept the licence on the model's page if it is gated, or check the name"
		}
		return &Error{Kind: Missing, Hint: hint, Err: err}
	case errors.As(err, &se) && (se.code == http.StatusNotFound || se.code == http.StatusGone):
		return &Error{Kind: Missing, Hint: "check organisation, name, revision and file, also upper and lower case; a private repository needs HF_TOKEN", Err: err}
	case errors.As(err, &e):
		return err
	}
	return &Error{Kind: Unavailable, Hint: "try again later, or set HF_ENDPOINT to a mirror", Err: fmt.Errorf("ask %s: %w", c.endpoint(), err)}
}
