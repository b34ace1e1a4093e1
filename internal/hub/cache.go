package hub

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	manifestName = "manifest.json"
	// manifestVersion changes when an older batchmill must not use an entry.
	manifestVersion = 1
	// maxManifest bounds what is read back: the cache may be shared, so its files are checked like any others.
	maxManifest = 4 << 20
)

// manifest describes a complete entry of the cache. It is written last: without it an entry does not count.
type manifest struct {
	Version  int          `json:"version"`
	Ref      string       `json:"ref"`
	Revision string       `json:"revision,omitempty"` // commit of an HF repository
	Pulled   time.Time    `json:"pulled"`
	Files    []fileRecord `json:"files"`
}

type fileRecord struct {
	Name   string `json:"name"` // base name in the entry's folder
	Origin string `json:"origin"`
	Size   int64  `json:"size"`
	MTime  int64  `json:"mtime_ns"` // with Size: the file is still the one whose hash stands here
	SHA256 string `json:"sha256"`
}

// pointer is what refs/ holds: the entry that a reference stands for since its last pull.
type pointer struct {
	Ref   string `json:"ref"`
	Text  string `json:"text"` // as the user wrote it
	Entry string `json:"entry"`
}

// DefaultDir is the cache folder: BATCHMILL_CACHE, else batchmill/models in the user's cache folder.
func DefaultDir() (string, error) {
	if dir := os.Getenv("BATCHMILL_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", &Error{Kind: Usage, Ref: "cache", Hint: "set BATCHMILL_CACHE to a folder", Err: fmt.Errorf("find the cache folder: %w", err)}
	}
	return filepath.Join(dir, "batchmill", "models"), nil
}

// slug turns any text into a file name: short, without special characters, and distinct by a hash.
func slug(text string) string {
	sum := sha256.Sum256([]byte(text))
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-=+@", r) {
			return r
		}
		return '-'
	}, text)
	const most = 80
	if len(clean) > most {
		clean = clean[len(clean)-most:]
	}
	return strings.Trim(clean, ".-") + "-" + hex.EncodeToString(sum[:4])
}

func (c *client) pointerPath(r Ref) string {
	return filepath.Join(c.dir, "refs", slug(r.key())+".json")
}

// lookUp finds the complete entry that a reference stands for.
func (c *client) lookUp(r Ref) (*Snapshot, bool) {
	var p pointer
	if readJSON(c.pointerPath(r), &p) != nil || p.Ref != r.key() || !filepath.IsLocal(filepath.FromSlash(p.Entry)) {
		return nil, false
	}
	s, ok := c.entry(filepath.Join(c.dir, filepath.FromSlash(p.Entry)))
	if !ok || r.SHA256 != "" && (len(s.manifest.Files) != 1 || s.manifest.Files[0].SHA256 != r.SHA256) {
		return nil, false
	}
	return s, true
}

// entry reads a complete entry: its manifest, and files of the sizes it says.
func (c *client) entry(dir string) (*Snapshot, bool) {
	var m manifest
	if readJSON(filepath.Join(dir, manifestName), &m) != nil || m.Version != manifestVersion || len(m.Files) == 0 {
		return nil, false
	}
	s := &Snapshot{Dir: dir, Revision: m.Revision, manifest: &m}
	for _, f := range m.Files {
		if f.Name != filepath.Base(f.Name) || !filepath.IsLocal(f.Name) || !hexSHA256.MatchString(f.SHA256) {
			return nil, false
		}
		path := filepath.Join(dir, f.Name)
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() || info.Size() != f.Size {
			return nil, false
		}
		s.Files = append(s.Files, path)
		s.Bytes += f.Size
	}
	return s, true
}

// fill takes an entry's lock and fills it, unless that has been done already.
func (c *client) fill(ctx context.Context, r Ref, dir, revision string, files func() ([]fileRecord, error)) (*Snapshot, error) {
	release, err := lock(ctx, dir+".lock", func() { c.progress(Progress{Stage: "wait", File: filepath.Base(dir), Total: -1}) })
	if err != nil {
		return nil, err
	}
	defer release()
	if s, ok := c.entry(dir); ok {
		if r.SHA256 != "" && (len(s.manifest.Files) != 1 || s.manifest.Files[0].SHA256 != r.SHA256) {
			return nil, failure(Damaged, "if the pinned hash is right, delete "+dir, "what is here has the SHA-256 %s instead of %s", s.manifest.Files[0].SHA256, r.SHA256)
		}
		return s, c.point(r, dir)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	records, err := files()
	if err != nil {
		_ = os.Remove(dir) // if nothing is in it that a later pull could go on with
		return nil, err
	}
	return c.finish(r, dir, revision, records)
}

// finish writes an entry's manifest and points the reference to it.
func (c *client) finish(r Ref, dir, revision string, files []fileRecord) (*Snapshot, error) {
	m := manifest{Version: manifestVersion, Ref: r.key(), Revision: revision, Pulled: time.Now().UTC().Truncate(time.Second), Files: files}
	if err := writeJSON(filepath.Join(dir, manifestName), m); err != nil {
		return nil, err
	}
	if err := c.point(r, dir); err != nil {
		return nil, err
	}
	s, ok := c.entry(dir)
	if !ok {
		return nil, failure(Damaged, "delete "+dir, "the files just pulled are gone or changed")
	}
	return s, nil
}

// point makes a reference stand for an entry.
func (c *client) point(r Ref, dir string) error {
	rel, err := filepath.Rel(c.dir, dir)
	if err != nil {
		return err
	}
	return writeJSON(c.pointerPath(r), pointer{Ref: r.key(), Text: r.String(), Entry: filepath.ToSlash(rel)})
}

// Entry is one model in the cache.
type Entry struct {
	Refs     []string // references that stand for it; none: an older revision, or a pull that did not end
	Dir      string
	Revision string
	Files    []string
	Bytes    int64 // on disk, partial files included
	Pulled   time.Time
	Complete bool // false: the same pull again resumes it
}

// List tells what the cache holds, sorted by folder. A cache that does not exist is empty.
func List(o Options) ([]Entry, error) {
	c, err := newClient(o)
	if err != nil {
		return nil, err
	}
	names := map[string][]string{}
	refs, err := os.ReadDir(filepath.Join(c.dir, "refs"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list the cache: %w", err)
	}
	for _, f := range refs {
		var p pointer
		if strings.HasSuffix(f.Name(), ".json") && readJSON(filepath.Join(c.dir, "refs", f.Name()), &p) == nil {
			dir := filepath.Join(c.dir, filepath.FromSlash(p.Entry))
			names[dir] = append(names[dir], p.Text)
		}
	}
	var list []Entry
	for _, source := range []Source{HF, Object, PyPI} {
		dirs, err := os.ReadDir(filepath.Join(c.dir, string(source)))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("list the cache: %w", err)
		}
		for _, d := range dirs {
			if !d.IsDir() {
				continue
			}
			e := Entry{Dir: filepath.Join(c.dir, string(source), d.Name())}
			e.Refs = names[e.Dir]
			slices.Sort(e.Refs)
			if s, ok := c.entry(e.Dir); ok {
				e.Complete, e.Revision, e.Pulled, e.Files = true, s.Revision, s.manifest.Pulled, s.Files
			}
			e.Bytes = treeSize(e.Dir)
			list = append(list, e)
		}
	}
	return list, nil
}

// treeSize adds up the regular files below a folder, as far as they can be seen.
func treeSize(dir string) (total int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if info, err := d.Info(); err == nil {
				total += info.Size()
			}
		}
		return nil // a file may vanish while another process pulls
	})
	return total
}

func readJSON(path string, v any) error {
	data, err := readLimited(path, maxManifest)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, v)
}

// writeJSON replaces a file as a whole: readers see the old one or the new one.
func writeJSON(path string, v any) error {
	data, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".tmp-*")
	if err != nil {
		return err
	}
	_, err = f.Write(append(data, '\n'))
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// readLimited reads a small file whole.
func readLimited(path string, limit int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > limit {
		return nil, fmt.Errorf("read %s: it has %d bytes, at most %d are accepted", path, info.Size(), limit)
	}
	return os.ReadFile(path)
}
