package hub

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// racyAge: a file changed more recently than this may change again within the clock's resolution, without another size
// or time; its hash is not remembered.
const racyAge = 2 * time.Second

// digest computes what Model.Digest is: of a single file its SHA-256; of several the SHA-256 over lines "ROLE SHA256\n", one
// a file in the order of layout.files without the index, where ROLE is the base name, or part-N for the parts of a split
// GGUF file, which users rename. A pinned hash is checked on the way.
func (c *client) digest(ctx context.Context, r Ref, s *Snapshot) (string, error) {
	all := sha256.New()
	var single string
	files := s.layout.files()
	for i, name := range files {
		if name == s.layout.index && name != "" {
			continue
		}
		sum, err := c.knownHash(ctx, s, name)
		if err != nil {
			return "", err
		}
		role := path.Base(name)
		if len(s.layout.gguf) > 0 {
			role = fmt.Sprintf("part-%d", i+1)
		}
		fmt.Fprintf(all, "%s %s\n", role, sum)
		single = sum
	}
	if r.SHA256 != "" && (len(files) != 1 || single != r.SHA256) {
		return "", failure(Damaged, "delete "+s.path(files[0])+" and fetch it again", "it has the SHA-256 %s instead of %s", single, r.SHA256)
	}
	if len(files) == 1 {
		return single, nil
	}
	return hex.EncodeToString(all.Sum(nil)), nil
}

// knownHash gives a file's hash: from the entry's manifest or the remembered ones while size and time are unchanged,
// else by reading it.
func (c *client) knownHash(ctx context.Context, s *Snapshot, name string) (string, error) {
	file, err := filepath.Abs(s.path(name))
	if err != nil {
		return "", err
	}
	info, err := os.Stat(file)
	if err != nil {
		return "", failure(Missing, "", "%w", err)
	}
	if s.manifest != nil {
		for _, f := range s.manifest.Files {
			if f.Name == path.Base(name) && f.Size == info.Size() && f.MTime == info.ModTime().UnixNano() {
				return f.SHA256, nil
			}
		}
	}
	type remembered struct {
		Path   string `json:"path"`
		Size   int64  `json:"size"`
		MTime  int64  `json:"mtime_ns"`
		SHA256 string `json:"sha256"`
	}
	memo := filepath.Join(c.dir, "digests", slug(file)+".json")
	now := remembered{Path: file, Size: info.Size(), MTime: info.ModTime().UnixNano()}
	var old remembered
	if readJSON(memo, &old) == nil && hexSHA256.MatchString(old.SHA256) {
		now.SHA256 = old.SHA256
		if now == old {
			return old.SHA256, nil
		}
	}
	if now.SHA256, err = c.hashFile(ctx, file, path.Base(name)); err != nil {
		return "", err
	}
	if time.Since(info.ModTime()) > racyAge {
		_ = writeJSON(memo, now) // a cache that cannot be written costs time, nothing else
	}
	return now.SHA256, nil
}

// hashFile gives a file's SHA-256, telling of progress.
func (c *client) hashFile(ctx context.Context, file, name string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	h := sha256.New()
	buf := make([]byte, copyBuffer)
	for done := int64(0); ; {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		n, err := f.Read(buf)
		h.Write(buf[:n])
		done += int64(n)
		c.progress(Progress{Stage: "hash", File: name, Done: done, Total: info.Size()})
		if err == io.EOF {
			return hex.EncodeToString(h.Sum(nil)), nil
		}
		if err != nil {
			return "", err
		}
	}
}

// FileStatus is what Verify found out about one file.
type FileStatus struct {
	Path   string
	Size   int64
	SHA256 string
	Want   string // the hash it should have: SHA-256, or for small files of the hub's cache a git id; "": none is known
	OK     bool   // no hash is known, or it is the same
}

// Verify reads every byte of a model that is here, compares the hashes with those of the pull or the pin, and opens the
// weights, which checks their heads. The statuses are given also with an error.
func Verify(ctx context.Context, ref string, o Options) ([]FileStatus, error) {
	r, c, err := prepare(ref, o)
	if err != nil {
		return nil, err
	}
	list, err := c.verify(ctx, r)
	return list, withRef(err, r.String())
}

func (c *client) verify(ctx context.Context, r Ref) ([]FileStatus, error) {
	s, err := c.locate(ctx, r)
	if err != nil {
		return nil, err
	}
	var list []FileStatus
	var bad []string
	for _, name := range s.layout.files() {
		st, err := c.verifyFile(ctx, r, s, name)
		if err != nil {
			return list, err
		}
		if !st.OK {
			bad = append(bad, st.Path)
		}
		list = append(list, st)
	}
	if len(bad) > 0 {
		hint := "delete it and pull again"
		if !s.hfCache && s.manifest != nil {
			hint = "delete " + s.Dir + " and pull again"
		}
		return list, failure(Damaged, hint, "%s does not have the hash it should have", strings.Join(bad, ", "))
	}
	m := &Model{}
	if len(s.layout.gguf) > 0 || s.layout.weights != "" || s.layout.index != "" {
		if err := m.openWeights(ctx, s); err != nil {
			return list, asDamaged(err)
		}
	}
	return list, m.Close()
}

func (c *client) verifyFile(ctx context.Context, r Ref, s *Snapshot, name string) (FileStatus, error) {
	file := s.path(name)
	info, err := os.Stat(file)
	if err != nil {
		return FileStatus{}, failure(Missing, "", "%w", err)
	}
	st := FileStatus{Path: file, Size: info.Size()}
	if st.SHA256, err = c.hashFile(ctx, file, path.Base(name)); err != nil {
		return FileStatus{}, err
	}
	got := st.SHA256
	if s.manifest != nil {
		for _, f := range s.manifest.Files {
			if f.Name == path.Base(name) {
				st.Want = f.SHA256
			}
		}
	}
	if s.hfCache {
		if st.Want = blobName(file); hexSHA1.MatchString(st.Want) {
			if got, err = gitBlobID(file); err != nil {
				return FileStatus{}, err
			}
		}
	}
	if r.SHA256 != "" && len(s.layout.files()) == 1 {
		st.Want, got = r.SHA256, st.SHA256
	}
	st.OK = st.Want == "" || st.Want == got
	return st, nil
}
