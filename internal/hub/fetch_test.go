package hub

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// flaky serves content in pieces: each open gives at most step bytes and then fails, and every failures-th open fails.
type flaky struct {
	content []byte
	step    int
	opens   []int64 // the offsets asked for
	refuse  int     // so many opens fail first
	noRange bool    // starts at 0 whatever is asked
	lie     int64   // added to the start it says
}

func (s *flaky) open(_ context.Context, off int64) (io.ReadCloser, int64, error) {
	s.opens = append(s.opens, off)
	if s.refuse > 0 {
		s.refuse--
		return nil, 0, errors.New("refused for now")
	}
	if s.noRange {
		off = 0
	}
	end := min(off+int64(s.step), int64(len(s.content)))
	body := io.Reader(bytes.NewReader(s.content[off:end]))
	if end < int64(len(s.content)) {
		body = io.MultiReader(body, failingReader{})
	}
	return io.NopCloser(body), off + s.lie, nil
}

type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, errors.New("connection reset") }

func fetcher(t *testing.T) (*client, string) {
	t.Helper()
	c, err := newClient(options(t))
	if err != nil {
		t.Fatal(err)
	}
	return c, t.TempDir()
}

func source(s *flaky) remote {
	return remote{name: "f.bin", origin: "there/f.bin", size: int64(len(s.content)), version: "v1", sha256: sum256(s.content), open: s.open}
}

func files(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

// TestFetchResumes: every interruption goes on where it stopped, in one call and over several.
func TestFetchResumes(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789"), 1000)
	c, dir := fetcher(t)
	s := &flaky{content: content, step: 1500, refuse: 3}
	rec, err := c.fetch(context.Background(), dir, source(s))
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(s.opens) != "[0 0 0 0 1500 3000 4500 6000 7500 9000]" {
		t.Errorf("opened at %v", s.opens)
	}
	if rec.SHA256 != sum256(content) || rec.Size != int64(len(content)) || !bytes.Equal(readFile(t, filepath.Join(dir, "f.bin")), content) {
		t.Errorf("got %+v", rec)
	}
	if got := files(t, dir); got != "f.bin" {
		t.Errorf("left %s", got)
	}
	// It is there: nothing is fetched again.
	s.opens = nil
	if _, err := c.fetch(context.Background(), dir, source(s)); err != nil || len(s.opens) != 0 {
		t.Errorf("fetched again: %v, %v", s.opens, err)
	}
}

// TestFetchAfterKill: a process that was killed leaves a partial file and no file; the next goes on with it.
func TestFetchAfterKill(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789"), 1000)
	c, dir := fetcher(t)
	ctx, cancel := context.WithCancel(context.Background())
	s := &flaky{content: content, step: 4000}
	first := source(s)
	first.open = func(ctx context.Context, off int64) (io.ReadCloser, int64, error) {
		if off > 0 {
			cancel()
			return nil, 0, ctx.Err()
		}
		return s.open(ctx, off)
	}
	if _, err := c.fetch(ctx, dir, first); !errors.Is(err, context.Canceled) {
		t.Fatalf("cancelled: %v", err)
	}
	if got := files(t, dir); strings.Contains(" "+got, " f.bin") || !strings.HasSuffix(got, ".part") {
		t.Fatalf("a cancelled fetch left %q", got)
	}
	s.opens = nil
	if _, err := c.fetch(context.Background(), dir, source(s)); err != nil || s.opens[0] != 4000 {
		t.Errorf("went on at %v, %v", s.opens, err)
	}
}

// TestFetchOtherVersion: a partial file of something else is not gone on with.
func TestFetchOtherVersion(t *testing.T) {
	c, dir := fetcher(t)
	old := &flaky{content: bytes.Repeat([]byte("old"), 1000), step: 100}
	r := source(old)
	r.version = "v0"
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := c.fetch(ctx, dir, r); err == nil {
		t.Fatal("a cancelled fetch ended well")
	}
	s := &flaky{content: bytes.Repeat([]byte("new"), 1000), step: 1 << 20}
	if _, err := c.fetch(context.Background(), dir, source(s)); err != nil || s.opens[0] != 0 {
		t.Errorf("%v, %v", s.opens, err)
	}
}

// TestFetchDamagedPart: what a partial file holds is not trusted; the hash finds it out, and the fetch starts over.
func TestFetchDamagedPart(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789"), 100)
	c, dir := fetcher(t)
	s := &flaky{content: content, step: 1 << 20}
	r := source(s)
	for _, junk := range []string{"junk", strings.Repeat("x", len(content)), strings.Repeat("x", len(content)+50)} {
		writeFile(t, filepath.Join(dir, "."+r.name+"."+slug(r.version)+".part"), []byte(junk))
		if _, err := c.fetch(context.Background(), dir, r); err != nil {
			t.Fatalf("%d bytes of junk: %v", len(junk), err)
		}
		if !bytes.Equal(readFile(t, filepath.Join(dir, "f.bin")), content) || files(t, dir) != "f.bin" {
			t.Fatalf("%d bytes of junk: wrong content, or left %s", len(junk), files(t, dir))
		}
		writeFile(t, filepath.Join(dir, "f.bin"), []byte("an older f.bin of another size"))
	}
}

func TestFetchRefuses(t *testing.T) {
	content := []byte("the content")
	for _, c := range []struct {
		name   string
		change func(*remote, *flaky)
		kind   Kind
		says   string
	}{
		{"wrong hash", func(r *remote, _ *flaky) { r.sha256 = sum256(nil) }, Damaged, "instead of " + sum256(nil)},
		{"wrong git id", func(r *remote, _ *flaky) { r.gitSHA1 = gitID(nil) }, Damaged, "instead of " + gitID(nil)},
		{"too long", func(r *remote, _ *flaky) { r.size-- }, Damaged, "more than the announced"},
		{"too short", func(r *remote, _ *flaky) { r.size++ }, Unavailable, "stopped at 11 of 12"},
		{"no size", func(r *remote, _ *flaky) { r.size = -1 }, Damaged, "-1 bytes"},
		{"huge", func(r *remote, _ *flaky) { r.size = maxFile + 1 }, Damaged, "is said to have"},
		{"never opens", func(_ *remote, s *flaky) { s.refuse = 1000 }, Unavailable, "run it again to resume"},
		{"wrong start", func(_ *remote, s *flaky) { s.lie = 5 }, Unavailable, "resumed at byte 5 instead of 0"},
	} {
		cl, dir := fetcher(t)
		s := &flaky{content: content, step: 1 << 20}
		r := source(s)
		c.change(&r, s)
		_, err := cl.fetch(context.Background(), dir, r)
		wantError(t, err, c.kind, c.says)
		if got := files(t, dir); strings.Contains(" "+got, " f.bin") || c.kind == Damaged && got != "" {
			t.Errorf("%s: left %q", c.name, got)
		}
		if c.name == "never opens" && len(s.opens) != fetchTries {
			t.Errorf("tried %d times, want %d", len(s.opens), fetchTries)
		}
	}
}

// TestFetchWithoutRanges: a source that always starts at the beginning still gives the right file.
func TestFetchWithoutRanges(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789"), 100)
	c, dir := fetcher(t)
	s := &flaky{content: content, step: 600, noRange: true}
	r := source(s)
	calls := 0
	r.open = func(ctx context.Context, off int64) (io.ReadCloser, int64, error) {
		if calls++; calls == 3 {
			s.step = 1 << 20
		}
		return s.open(ctx, off)
	}
	if _, err := c.fetch(context.Background(), dir, r); err != nil || calls != 3 {
		t.Errorf("%d calls, %v", calls, err)
	}
}

func TestFetchEmpty(t *testing.T) {
	c, dir := fetcher(t)
	if rec, err := c.fetch(context.Background(), dir, source(&flaky{})); err != nil || rec.Size != 0 {
		t.Errorf("%+v, %v", rec, err)
	}
}

func TestFetchProgress(t *testing.T) {
	c, dir := fetcher(t)
	var last Progress
	c.Progress = func(p Progress) {
		if p.Done < last.Done {
			t.Errorf("went back from %+v to %+v", last, p)
		}
		last = p
	}
	s := &flaky{content: bytes.Repeat([]byte("x"), 5000), step: 1000}
	if _, err := c.fetch(context.Background(), dir, source(s)); err != nil {
		t.Fatal(err)
	}
	if last != (Progress{Stage: "fetch", File: "f.bin", Done: 5000, Total: 5000}) {
		t.Errorf("last said %+v", last)
	}
}
