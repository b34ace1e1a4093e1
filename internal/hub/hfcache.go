package hub

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// The cache of the hub's own tools: models--ORG--REPO/refs/REVISION holds a commit, snapshots/COMMIT/FILE is a link to
// blobs/ETAG. It is read, never written.

func (c *client) hfHome() string {
	if dir := os.Getenv("HF_HOME"); dir != "" {
		return dir
	}
	cache := os.Getenv("XDG_CACHE_HOME")
	if cache == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return ""
		}
		cache = filepath.Join(home, ".cache")
	}
	return filepath.Join(cache, "huggingface")
}

func (c *client) hfCacheDir() string {
	for _, name := range []string{"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"} {
		if dir := os.Getenv(name); dir != "" {
			return dir
		}
	}
	home := c.hfHome()
	if home == "" {
		return ""
	}
	return filepath.Join(home, "hub")
}

// lookUpHub finds a model in the hub's cache, at the commit given or at the one the revision stood for when it was
// fetched. What is there in part does not count.
func (c *client) lookUpHub(r Ref, commit string) (*Snapshot, bool) {
	root := c.hfCacheDir()
	if root == "" {
		return nil, false
	}
	repo := filepath.Join(root, "models--"+strings.ReplaceAll(r.Name, "/", "--"))
	if commit == "" {
		commit = r.Version
		if !hexSHA1.MatchString(commit) {
			data, err := readLimited(filepath.Join(repo, "refs", filepath.FromSlash(r.Version)), 1<<10)
			if err != nil {
				return nil, false
			}
			commit = strings.TrimSpace(string(data))
		}
	}
	if !hexSHA1.MatchString(commit) {
		return nil, false
	}
	found, err := c.locatePath(Ref{Source: Local, Path: filepath.Join(repo, "snapshots", commit, filepath.FromSlash(r.File))})
	if err != nil || len(found.layout.files()) == 0 {
		return nil, false
	}
	if r.SHA256 != "" && len(found.Files) != 1 || len(found.layout.gguf) == 0 && !found.has([]string{tokenizerFile, tokenizerConfig}) {
		return nil, false // other tools may have fetched a part
	}
	found.Revision, found.hfCache = commit, true
	return found, true
}

// has tells whether the model has files of all these base names.
func (s *Snapshot) has(names []string) bool {
	for _, want := range names {
		if !slices.ContainsFunc(s.layout.files(), func(f string) bool { return path.Base(f) == path.Base(want) }) {
			return false
		}
	}
	return true
}

// blobName gives the name of the blob that a file of the hub's cache is a link to: its SHA-256, or its git id; "" where
// it is neither (on systems without links).
func blobName(path string) string {
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return ""
	}
	if base := filepath.Base(target); hexSHA256.MatchString(base) || hexSHA1.MatchString(base) {
		return base
	}
	return ""
}
