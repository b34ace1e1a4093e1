package hub

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/batchmill/batchmill/infer/gguf"
)

// Options say how to get at models. The zero value does what a command line does by default.
type Options struct {
	Dir      string         // the cache; "": DefaultDir
	Offline  bool           // never go to the network; HF_HUB_OFFLINE=1 means the same for hf: references
	Store    Store          // object storage; nil: URLs are refused
	Progress func(Progress) // told what goes on, from the calling goroutine or one that it waits for
	// TokenizerOnly: Resolve gives tokenizer and chat template, and neither opens nor needs nor hashes the weights of a
	// folder. A folder with just a tokenizer.json will do.
	TokenizerOnly bool

	Client *http.Client // for hf: references; nil: a client with sensible limits
	Pip    [][]string   // commands that start pip, tried in order; nil: python3 -m pip, python -m pip, pip3, pip

	retryPause time.Duration // 0: firstPause
}

// Progress is one step of something that takes its time.
type Progress struct {
	Stage string // "wait" (for another pull), "fetch", "unpack" or "hash"
	File  string
	Done  int64
	Total int64 // -1: not known
}

// Snapshot is the files of a model on this machine.
type Snapshot struct {
	Dir      string
	Files    []string // paths, weights and what stands beside them
	Bytes    int64
	Revision string // commit of an HF repository; "" elsewhere

	layout   layout // paths in it are relative to Dir
	manifest *manifest
	hfCache  bool // the files belong to the hub's own cache
}

// client is one call's settings.
type client struct {
	Options
	dir string
	hf  *http.Client
}

// firstPause is the first wait after a failed request; it doubles.
const firstPause = 500 * time.Millisecond

func newClient(o Options) (*client, error) {
	c := &client{Options: o, dir: o.Dir}
	if c.retryPause == 0 {
		c.retryPause = firstPause
	}
	if c.dir == "" {
		dir, err := DefaultDir()
		if err != nil {
			return nil, err
		}
		c.dir = dir
	}
	dir, err := filepath.Abs(c.dir)
	if err != nil {
		return nil, err
	}
	c.dir = dir
	c.hf = httpClient(o.Client)
	return c, nil
}

func (c *client) progress(p Progress) {
	if c.Progress != nil {
		c.Progress(p)
	}
}

// Locate finds a model on this machine without the network; an Error of kind NotCached says that it has to be pulled.
func Locate(ctx context.Context, ref string, o Options) (*Snapshot, error) {
	r, c, err := prepare(ref, o)
	if err != nil {
		return nil, err
	}
	s, err := c.locate(ctx, r)
	return s, withRef(err, r.String())
}

// Available tells whether a reference can be resolved without the network.
func Available(ctx context.Context, ref string, o Options) bool {
	_, err := Locate(ctx, ref, o)
	return err == nil
}

// Pull fetches what the source of a reference has now, unless that is here already. A path is only looked at.
func Pull(ctx context.Context, ref string, o Options) (*Snapshot, error) {
	r, c, err := prepare(ref, o)
	if err != nil {
		return nil, err
	}
	s, err := c.pull(ctx, r)
	return s, withRef(err, r.String())
}

// Resolve opens a model: from this machine if it is here, else after a pull. The caller closes it.
func Resolve(ctx context.Context, ref string, o Options) (*Model, error) {
	r, c, err := prepare(ref, o)
	if err != nil {
		return nil, err
	}
	s, err := c.locate(ctx, r)
	if KindOf(err) == NotCached && !o.Offline {
		s, err = c.pull(ctx, r)
	}
	if err != nil {
		return nil, withRef(err, r.String())
	}
	m, err := c.open(ctx, r, s)
	return m, withRef(err, r.String())
}

func prepare(ref string, o Options) (Ref, *client, error) {
	r, err := Parse(ref)
	if err != nil {
		return Ref{}, nil, err
	}
	c, err := newClient(o)
	return r, c, err
}

func (c *client) locate(ctx context.Context, r Ref) (*Snapshot, error) {
	if r.Source == Local {
		return c.locatePath(r)
	}
	if s, ok := c.lookUp(r); ok {
		return s, s.arrange()
	}
	if r.Source == HF {
		if s, ok := c.lookUpHub(r, ""); ok {
			return s, nil
		}
	}
	return nil, failure(NotCached, "fetch it with: batchmill models pull "+r.String(), "it is not on this machine")
}

func (c *client) pull(ctx context.Context, r Ref) (*Snapshot, error) {
	if r.Source != Local && c.Offline {
		return c.locate(ctx, r)
	}
	var s *Snapshot
	var err error
	switch r.Source {
	case PyPI:
		s, err = c.pullPyPI(ctx, r)
	case HF:
		s, err = c.pullHF(ctx, r)
	case Object:
		s, err = c.pullObject(ctx, r)
	default:
		return c.locatePath(r)
	}
	if err != nil {
		return nil, err
	}
	if s.hfCache {
		return s, nil
	}
	return s, s.arrange()
}

// arrange finds the model among the files of a cache entry.
func (s *Snapshot) arrange() error {
	names := make([]string, len(s.Files))
	for i, f := range s.Files {
		names[i] = filepath.Base(f)
	}
	var err error
	if s.layout, err = choose(names, "", false); err != nil {
		return err
	}
	return s.addShards()
}

// locatePath looks at a local file or folder.
func (c *client) locatePath(r Ref) (*Snapshot, error) {
	info, err := os.Stat(r.Path)
	if errors.Is(err, fs.ErrNotExist) {
		hint := "a path, pypi:NAME==VERSION, hf:ORG/REPO, a URL, or one of: " + aliases()
		return nil, &Error{Kind: Missing, Hint: hint, Err: &fs.PathError{Op: "find", Path: r.Path, Err: fs.ErrNotExist}}
	}
	if err != nil {
		return nil, failure(Missing, "", "%w", err)
	}
	s := &Snapshot{Dir: r.Path}
	if info.IsDir() {
		if err := c.locateFolder(s); err != nil {
			return nil, err
		}
	} else if err := locateFile(s, r.Path); err != nil {
		return nil, err
	}
	for _, name := range s.layout.files() {
		p := filepath.Join(s.Dir, filepath.FromSlash(name))
		info, err := os.Stat(p)
		if err != nil {
			return nil, failure(Missing, "", "%w", err)
		}
		s.Files = append(s.Files, p)
		s.Bytes += info.Size()
	}
	if r.SHA256 != "" && len(s.Files) != 1 {
		return nil, failure(Usage, "leave #sha256= out, or give the file", "a hash pins one file, this model has %d", len(s.Files))
	}
	return s, nil
}

func (c *client) locateFolder(s *Snapshot) error {
	entries, err := os.ReadDir(s.Dir)
	if err != nil {
		return failure(Missing, "", "%w", err)
	}
	var names []string
	for _, e := range entries {
		if info, err := os.Stat(filepath.Join(s.Dir, e.Name())); err == nil && info.Mode().IsRegular() { // symlinks count as what they point to
			names = append(names, e.Name())
		}
	}
	s.layout, err = choose(names, "", false)
	if err != nil && c.TokenizerOnly {
		tokenizer := layout{}
		for _, base := range sidecars {
			for _, n := range names {
				if n == base {
					tokenizer.sidecars = append(tokenizer.sidecars, n)
				}
			}
		}
		for _, n := range tokenizer.sidecars {
			if n == tokenizerFile {
				s.layout = tokenizer
				return nil
			}
		}
	}
	if err != nil {
		return err
	}
	return s.addShards()
}

// locateFile takes a .gguf file, or any file that starts like one.
func locateFile(s *Snapshot, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return failure(Missing, "", "%w", err)
	}
	defer f.Close()
	var magic [4]byte
	n, _ := f.ReadAt(magic[:], 0)
	base := filepath.Base(path)
	s.Dir = filepath.Dir(path)
	if string(magic[:n]) != "GGUF" && filepath.Ext(path) != ".gguf" {
		hint := "a model is a .gguf file, or a folder with config.json and model.safetensors"
		if filepath.Ext(path) == ".safetensors" || filepath.Ext(path) == ".json" {
			hint = "give the folder that holds it: " + s.Dir
		}
		return failure(Damaged, hint, "it is not a GGUF file")
	}
	if parts, ok := gguf.SplitNames(base); ok {
		s.layout.gguf = parts
		for _, p := range parts {
			if _, err := os.Stat(filepath.Join(s.Dir, p)); err != nil {
				return failure(Missing, "all parts must lie in one folder", "part %s of the split file: %w", p, err)
			}
		}
		return nil
	}
	s.layout.gguf = []string{base}
	return nil
}
