package hub

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	commitA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	commitB = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

// fakeHub serves one repository as the hub does: big files by a redirect to another host, with their hash in the
// headers of the redirect; small ones itself.
type fakeHub struct {
	t      *testing.T
	files  map[string][]byte
	commit string // of main
	token  string // required if set

	mu       sync.Mutex
	requests []string
	busy     int // so many requests are answered 503
	cut      int // content requests are cut after so many bytes, once
	lie      string
	noEtag   bool
	hub, cdn *httptest.Server
}

func newHub(t *testing.T, files map[string][]byte) *fakeHub {
	h := &fakeHub{t: t, files: files, commit: commitA}
	h.hub = httptest.NewServer(http.HandlerFunc(h.serveHub))
	h.cdn = httptest.NewServer(http.HandlerFunc(h.serveCDN))
	t.Cleanup(h.hub.Close)
	t.Cleanup(h.cdn.Close)
	t.Setenv("HF_ENDPOINT", h.hub.URL+"/")
	return h
}

// note counts a request and says whether it is to be answered 503.
func (h *fakeHub) note(r *http.Request) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.requests = append(h.requests, strings.TrimSpace(r.Method+" "+r.URL.Path+" "+r.Header.Get("Range")))
	if h.busy > 0 {
		h.busy--
		return true
	}
	return false
}

func (h *fakeHub) seen() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.requests)
}

func lfs(name string) bool {
	return strings.HasSuffix(name, ".gguf") || strings.HasSuffix(name, ".safetensors")
}

func (h *fakeHub) serveHub(w http.ResponseWriter, r *http.Request) {
	if h.note(r) {
		http.Error(w, "later", http.StatusServiceUnavailable)
		return
	}
	if h.token != "" && r.Header.Get("Authorization") != "Bearer "+h.token {
		w.Header().Set("X-Error-Message", "Access to model O/R is restricted.")
		w.WriteHeader(http.StatusForbidden)
		return
	}
	if r.URL.Path == "/api/models/O/R/revision/main" {
		type sibling struct {
			RFilename string `json:"rfilename"`
		}
		var list []sibling
		for name := range h.files {
			list = append(list, sibling{name})
		}
		if err := json.NewEncoder(w).Encode(map[string]any{"sha": h.commit, "siblings": list}); err != nil {
			h.t.Error(err)
		}
		return
	}
	rest, ok := strings.CutPrefix(r.URL.Path, "/O/R/resolve/")
	if moved, isOld := strings.CutPrefix(r.URL.Path, "/Old/R/resolve/"); isOld {
		http.Redirect(w, r, "/O/R/resolve/"+moved, http.StatusTemporaryRedirect)
		return
	}
	rev, name, _ := strings.Cut(rest, "/")
	data, exists := h.files[name]
	if !ok || !exists || rev != "main" && rev != h.commit {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.Header().Set("X-Repo-Commit", h.commit)
	if !lfs(name) {
		if !h.noEtag {
			w.Header().Set("ETag", `W/"`+gitID(data)+`"`)
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
		return
	}
	sum := sum256(data)
	if h.lie == name {
		sum = sum256(nil)
	}
	w.Header().Set("X-Linked-Etag", `"`+sum+`"`)
	w.Header().Set("X-Linked-Size", fmt.Sprint(len(data)))
	http.Redirect(w, r, h.cdn.URL+"/blob/"+name, http.StatusFound)
}

func (h *fakeHub) serveCDN(w http.ResponseWriter, r *http.Request) {
	busy := h.note(r)
	if r.Header.Get("Authorization") != "" {
		h.t.Error("the token was sent to another host")
	}
	if busy {
		http.Error(w, "later", http.StatusServiceUnavailable)
		return
	}
	data := h.files[strings.TrimPrefix(r.URL.Path, "/blob/")]
	h.mu.Lock()
	cut := h.cut
	h.cut = 0
	h.mu.Unlock()
	if cut > 0 {
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		_, _ = w.Write(data[:cut])
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
}

func TestHFFolder(t *testing.T) {
	o := options(t)
	files := modelFiles(t)
	h := newHub(t, files)
	ctx := context.Background()
	m, err := Resolve(ctx, "hf:O/R", o)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if m.Name != "hf:O/R" || m.Revision != commitA || len(m.Weights.Tensors()) != 3 ||
		!bytes.Equal(m.TokenizerJSON, files["tokenizer.json"]) || !bytes.Equal(m.ConfigJSON, files["config.json"]) ||
		!bytes.Equal(m.GenerationConfigJSON, files["generation_config.json"]) || !bytes.Equal(m.ChatTemplateJinja, files["chat_template.jinja"]) ||
		!bytes.Equal(m.TokenizerConfigJSON, files["tokenizer_config.json"]) {
		t.Errorf("got %+v", m)
	}
	for _, r := range h.seen() {
		if strings.Contains(r, "README") {
			t.Errorf("asked for what is not needed: %s", r)
		}
	}
	// It is here now: no request more. A pull asks whether there is something newer.
	before := len(h.seen())
	again, err := Resolve(ctx, "hf:O/R", o)
	if err != nil || len(h.seen()) != before {
		t.Fatalf("%v, requests %v", err, h.seen()[before:])
	}
	again.Close()
	if _, err := Pull(ctx, "hf:O/R", o); err != nil || len(h.seen()) != before+1 {
		t.Errorf("%v, requests %v", err, h.seen()[before:])
	}

	// A newer commit: the old one stays what it was, open files and all.
	h.commit = commitB
	h.files = modelFiles(t)
	h.files["generation_config.json"] = []byte(`{"eos_token_id":3}`)
	s, err := Pull(ctx, "hf:O/R", o)
	if err != nil || s.Revision != commitB {
		t.Fatalf("%+v, %v", s, err)
	}
	newer, err := Resolve(ctx, "hf:O/R", o)
	if err != nil {
		t.Fatal(err)
	}
	defer newer.Close()
	if newer.Digest == m.Digest || newer.Revision != commitB || again.Digest != m.Digest {
		t.Errorf("digests %s and %s", m.Digest, newer.Digest)
	}
	list, err := List(o)
	if err != nil || len(list) != 2 || len(list[0].Refs)+len(list[1].Refs) != 1 {
		t.Errorf("List: %+v, %v", list, err)
	}
}

func TestHFFile(t *testing.T) {
	o := options(t)
	model := readFile(t, ggufData+"kinds.gguf")
	h := newHub(t, map[string][]byte{"sub dir/a.gguf": model, "b.gguf": model})
	h.token = "secret"
	t.Setenv("HF_TOKEN", "secret")
	h.busy = 2
	h.cut = 1000
	m, err := Resolve(context.Background(), "hf:O/R:sub dir/a.gguf", o)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if m.Digest != sum256(model) {
		t.Errorf("digest %s", m.Digest)
	}
	if got := h.seen(); !slices.Contains(got, "GET /blob/sub dir/a.gguf bytes=1000-") {
		t.Errorf("did not resume: %q", got)
	}
	_, err = Pull(context.Background(), "hf:O/R", Options{Dir: t.TempDir(), retryPause: 1, Client: http.DefaultClient})
	if err != nil {
		t.Errorf("one model at the top: %v", err)
	}
	if s, err := Pull(context.Background(), "hf:Old/R:b.gguf", o); err != nil || s.Revision != commitA {
		t.Errorf("a renamed repository: %v", err)
	}
}

func TestHFSplit(t *testing.T) {
	o := options(t)
	files := map[string][]byte{}
	for i := 1; i <= 3; i++ {
		name := fmt.Sprintf("split-%05d-of-00003.gguf", i)
		files["Q4/"+name] = readFile(t, ggufData+name)
	}
	newHub(t, files)
	m, err := Resolve(context.Background(), "hf:O/R:Q4/split-00001-of-00003.gguf", o)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if len(m.GGUF.Tensors()) != 6 || len(m.Files) != 3 {
		t.Errorf("%d tensors in %v", len(m.GGUF.Tensors()), m.Files)
	}
}

func TestHFRefuses(t *testing.T) {
	model := readFile(t, ggufData+"kinds.gguf")
	for _, c := range []struct {
		name, ref string
		change    func(*fakeHub)
		kind      Kind
		says      string
	}{
		{"no repository", "hf:O/None", nil, Missing, "upper and lower case"},
		{"no file", "hf:O/R:none.gguf", nil, Missing, "404"},
		{"not a model", "hf:O/R:config.json", nil, Usage, "not a .gguf file"},
		{"gated", "hf:O/R:a.gguf", func(h *fakeHub) { h.token = "x" }, Missing, "set HF_TOKEN"},
		{"wrong hash", "hf:O/R:a.gguf", func(h *fakeHub) { h.lie = "a.gguf" }, Damaged, "instead of " + sum256(nil)},
		{"pin", "hf:O/R:a.gguf#sha256=" + sum256([]byte("x")), nil, Damaged, "pinned is"},
		{"pin of a folder", "hf:O/R#sha256=" + sum256(nil), nil, Usage, "a hash pins one file"},
		{"no hash", "hf:O/R", func(h *fakeHub) { h.noEtag = true }, Unavailable, "cannot be checked"},
		{"down", "hf:O/R", func(h *fakeHub) { h.busy = 1000 }, Unavailable, "try again later"},
		{"no commit", "hf:O/R", func(h *fakeHub) { h.commit = "" }, Unavailable, "which commit"},
	} {
		o := options(t)
		files := modelFiles(t)
		files["a.gguf"] = model
		h := newHub(t, files)
		if c.change != nil {
			c.change(h)
		}
		_, err := Pull(context.Background(), c.ref, o)
		t.Logf("%s: %v", c.name, err)
		wantError(t, err, c.kind, c.says)
		if Available(context.Background(), c.ref, o) {
			t.Errorf("%s: available", c.name)
		}
	}
	o := options(t)
	t.Setenv("HF_HUB_OFFLINE", "1")
	_, err := Resolve(context.Background(), "hf:O/R", o)
	wantError(t, err, Unavailable, "HF_HUB_OFFLINE")
}

// hubCache lays files out as the hub's own tools do.
func hubCache(t *testing.T, dir string, files map[string][]byte) {
	t.Helper()
	repo := filepath.Join(dir, "models--O--R")
	writeFile(t, filepath.Join(repo, "refs", "main"), []byte(commitA))
	for name, data := range files {
		blob := gitID(data)
		if lfs(name) {
			blob = sum256(data)
		}
		writeFile(t, filepath.Join(repo, "blobs", blob), data)
		link := filepath.Join(repo, "snapshots", commitA, name)
		if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join("..", "..", "blobs", blob), link); err != nil {
			t.Skipf("this system has no symbolic links: %v", err)
		}
	}
}

func TestHFCache(t *testing.T) {
	o := options(t)
	o.Offline = true
	cache := filepath.Join(t.TempDir(), "hub")
	t.Setenv("HF_HUB_CACHE", cache)
	files := modelFiles(t)
	hubCache(t, cache, files)
	ctx := context.Background()
	for _, ref := range []string{"hf:O/R", "hf:O/R@" + commitA} {
		m, err := Resolve(ctx, ref, o)
		if err != nil {
			t.Fatal(err)
		}
		if m.Revision != commitA || len(m.Weights.Tensors()) != 3 || !strings.HasPrefix(m.Files[0], cache) {
			t.Errorf("%s: %+v", ref, m)
		}
		m.Close()
	}
	if Available(ctx, "hf:O/R@other", o) || Available(ctx, "hf:O/R@"+commitB, o) {
		t.Error("another revision is available")
	}
	status, err := Verify(ctx, "hf:O/R", o)
	if err != nil || len(status) != 8 {
		t.Errorf("Verify: %+v, %v", status, err)
	}
	for _, s := range status {
		if s.Want == "" || !s.OK {
			t.Errorf("Verify: %+v", s)
		}
	}

	// A pull at the same commit takes it from there; at a newer one it fetches into our own cache.
	h := newHub(t, files)
	o.Offline = false
	s, err := Pull(ctx, "hf:O/R", o)
	if err != nil || !s.hfCache || len(h.seen()) != 1 {
		t.Errorf("%+v, %v, requests %v", s, err, h.seen())
	}
	h.commit = commitB
	if s, err = Pull(ctx, "hf:O/R", o); err != nil || s.hfCache || s.Revision != commitB {
		t.Errorf("%+v, %v", s, err)
	}

	// A blob that changed is found; a snapshot that lacks something does not count.
	blob := filepath.Join(cache, "models--O--R", "blobs", sum256(files["model-00001-of-00002.safetensors"]))
	writeFile(t, blob, bytes.Repeat([]byte("x"), len(files["model-00001-of-00002.safetensors"])))
	_, err = Verify(ctx, "hf:O/R@"+commitA, o)
	wantError(t, err, Damaged, "model-00001-of-00002.safetensors")
	if err := os.Remove(blob); err != nil {
		t.Fatal(err)
	}
	if Available(ctx, "hf:O/R@"+commitA, o) {
		t.Error("available without one of its shards")
	}
}

func TestHFToken(t *testing.T) {
	o := options(t)
	c, err := newClient(o)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.token(); got != "" {
		t.Errorf("token %q", got)
	}
	writeFile(t, filepath.Join(os.Getenv("HF_HOME"), "token"), []byte("from-file\n"))
	if got := c.token(); got != "from-file" {
		t.Errorf("token %q", got)
	}
	t.Setenv("HF_TOKEN", "from-env")
	if got := c.token(); got != "from-env" {
		t.Errorf("token %q", got)
	}
}

// TestSecondPuller: of two pulls at once one fetches, the other waits and finds it.
func TestSecondPuller(t *testing.T) {
	o := options(t)
	model := readFile(t, ggufData+"kinds.gguf")
	h := newHub(t, map[string][]byte{"a.gguf": model})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if _, err := Pull(context.Background(), "hf:O/R:a.gguf", o); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	gets := 0
	for _, r := range h.seen() {
		if strings.HasPrefix(r, "GET /blob/") {
			gets++
		}
	}
	if gets != 1 {
		t.Errorf("fetched %d times: %q", gets, h.seen())
	}
}

func TestStall(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	defer server.Close()
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	body := newStallReader(resp.Body, cancel, 50*time.Millisecond)
	defer body.Close()
	if _, err := body.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "no data for 50ms") {
		t.Errorf("got %v", err)
	}
}
