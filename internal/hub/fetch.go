package hub

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"
)

const (
	// maxFile bounds one file of a model: above the largest that are published.
	maxFile = 1 << 40
	// fetchTries is how often in a row a fetch may fail without a byte of progress.
	fetchTries = 6
	// copyBuffer is how much is written at once.
	copyBuffer = 1 << 20
)

// remote is a file to fetch.
type remote struct {
	name   string // base name it gets in the entry
	origin string // where it comes from, for the manifest and messages
	size   int64
	// version identifies the content (an ETag, a hash): a partial file of another version is not resumed.
	version string
	sha256  string // expected, hex; "" where the source names none
	gitSHA1 string // expected id as a git blob, hex; "" where the source names none
	// open starts reading at off; it gives where the body really starts: off, or 0 where the source cannot resume.
	open func(ctx context.Context, off int64) (body io.ReadCloser, start int64, err error)
}

// permanentError marks a failure that another try cannot mend.
type permanentError struct{ error }

func (e permanentError) Unwrap() error { return e.error }

// fetch brings a file into the folder dir: it resumes a partial file of the same version, retries with growing pauses,
// checks size and hash, and only then gives the file its name.
func (c *client) fetch(ctx context.Context, dir string, r remote) (fileRecord, error) {
	if r.size < 0 || r.size > maxFile {
		return fileRecord{}, failure(Damaged, "", "%s is said to have %d bytes", r.origin, r.size)
	}
	final := filepath.Join(dir, r.name)
	if info, err := os.Stat(final); err == nil && info.Size() == r.size { // an earlier pull got that far
		sum, err := c.hashFile(ctx, final, r.name)
		if err != nil {
			return fileRecord{}, err
		}
		if r.sha256 == "" || sum == r.sha256 {
			return record(final, r, sum)
		}
	}
	part := filepath.Join(dir, "."+r.name+"."+slug(r.version)+".part")
	resumed, sum, err := c.fetchPart(ctx, part, r)
	if err == nil {
		err = check(part, r, sum)
	}
	if KindOf(err) == Damaged {
		err = also(err, os.Remove(part))
		if resumed { // what was there before may have been damaged: once more, from the start
			if _, sum, err = c.fetchPart(ctx, part, r); err == nil {
				err = check(part, r, sum)
			}
			if KindOf(err) == Damaged {
				err = also(err, os.Remove(part))
			}
		}
	}
	if err != nil {
		return fileRecord{}, err
	}
	if err := os.Rename(part, final); err != nil {
		return fileRecord{}, err
	}
	syncDir(dir)
	return record(final, r, sum)
}

func record(path string, r remote, sum string) (fileRecord, error) {
	info, err := os.Stat(path)
	if err != nil {
		return fileRecord{}, err
	}
	return fileRecord{Name: r.name, Origin: r.origin, Size: info.Size(), MTime: info.ModTime().UnixNano(), SHA256: sum}, nil
}

// fetchPart fills the partial file and hashes it; resumed tells whether some of it was there before.
func (c *client) fetchPart(ctx context.Context, part string, r remote) (resumed bool, sum string, err error) {
	f, err := os.OpenFile(part, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return false, "", err
	}
	defer f.Close()
	h := sha256.New()
	have, err := io.Copy(h, io.LimitReader(f, r.size))
	if err != nil {
		return false, "", err
	}
	resumed = have > 0
	for failures := 0; have < r.size; {
		n, err := c.fetchSome(ctx, f, h, have, r)
		if n != have {
			failures = 0
		}
		have = n
		if err == nil {
			if have >= r.size {
				break
			}
			err = io.ErrUnexpectedEOF
		}
		if failures++; failures >= fetchTries || ctx.Err() != nil || isPermanent(err) {
			if err := errors.Join(f.Sync(), ctx.Err()); err != nil {
				return resumed, "", err
			}
			var e *Error
			if errors.As(err, &e) {
				return resumed, "", err
			}
			return resumed, "", failure(Unavailable, "run it again to resume", "fetch %s: stopped at %d of %d bytes: %w", r.origin, have, r.size, err)
		}
		if err := c.pause(ctx, failures); err != nil {
			return resumed, "", err
		}
	}
	if err := errors.Join(f.Truncate(r.size), f.Sync(), f.Close()); err != nil {
		return resumed, "", err
	}
	return resumed, hex.EncodeToString(h.Sum(nil)), nil
}

// fetchSome does one request and gives how much of the file is there after it.
func (c *client) fetchSome(ctx context.Context, f *os.File, h hash.Hash, have int64, r remote) (int64, error) {
	body, start, err := r.open(ctx, have)
	if err != nil {
		return have, err
	}
	defer body.Close()
	if start != have {
		if start != 0 {
			return have, permanentError{fmt.Errorf("the source resumed at byte %d instead of %d", start, have)}
		}
		h.Reset()
		have = 0
	}
	if _, err := f.Seek(have, io.SeekStart); err != nil {
		return have, permanentError{err}
	}
	buf := make([]byte, copyBuffer)
	for {
		n, readErr := body.Read(buf)
		if int64(n) > r.size-have {
			return have, permanentError{failure(Damaged, "", "fetch %s: more than the announced %d bytes came", r.origin, r.size)}
		}
		if n > 0 {
			if _, err := f.Write(buf[:n]); err != nil {
				return have, permanentError{err}
			}
			h.Write(buf[:n])
			have += int64(n)
			c.progress(Progress{Stage: "fetch", File: r.name, Done: have, Total: r.size})
		}
		if readErr == io.EOF {
			return have, nil
		}
		if readErr != nil {
			return have, readErr
		}
	}
}

// check compares a fetched file with what the source or a pin says about it.
func check(path string, r remote, sum string) error {
	hint := "nothing of it was kept; run it again, and if it stays wrong, the source or a proxy changes the file"
	if r.sha256 != "" && sum != r.sha256 {
		return failure(Damaged, hint, "%s has the SHA-256 %s instead of %s", r.origin, sum, r.sha256)
	}
	if r.gitSHA1 != "" {
		id, err := gitBlobID(path)
		if err != nil {
			return err
		}
		if id != r.gitSHA1 {
			return failure(Damaged, hint, "%s has the git id %s instead of %s", r.origin, id, r.gitSHA1)
		}
	}
	return nil
}

// gitBlobID is the hash by which git knows a file: SHA-1 of "blob SIZE\0" and the content.
func gitBlobID(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	h := sha1.New()
	fmt.Fprintf(h, "blob %d\x00", info.Size())
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// pause waits before the next try: half a second doubling up to 16 s, with jitter.
func (c *client) pause(ctx context.Context, failures int) error {
	d := c.retryPause << min(failures-1, 5)
	if d > 0 {
		d = d/2 + rand.N(d)
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func isPermanent(err error) bool {
	var p permanentError
	return errors.As(err, &p)
}

// syncDir makes a rename last; where folders cannot be synced, the rename's own guarantees must do.
func syncDir(dir string) {
	if d, err := os.Open(dir); err == nil {
		_ = d.Sync()
		d.Close()
	}
}
