package objstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestConformance runs one suite over every kind of store. S3 needs a server: BATCHMILL_TEST_S3 names a bucket on one,
// as in s3://bucket?endpoint=http://127.0.0.1:7070.
func TestConformance(t *testing.T) {
	t.Run("file", func(t *testing.T) {
		base, err := Normalize(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		conformance(t, New(Options{}), base)
	})
	t.Run("file with a folder for temporary files", func(t *testing.T) {
		dir := t.TempDir()
		base, err := Normalize(dir)
		if err != nil {
			t.Fatal(err)
		}
		conformance(t, New(Options{TmpDir: filepath.Join(dir, "_run", "tmp")}), base)
	})
	t.Run("mem", func(t *testing.T) { conformance(t, New(Options{}), "mem://bkt") })
	t.Run("mem with a function around requests", func(t *testing.T) {
		conformance(t, New(Options{Around: func(_ context.Context, r Request) error { return r.Do() }}), "mem://bkt")
	})
	for _, env := range []string{"BATCHMILL_TEST_S3", "BATCHMILL_TEST_GCS", "BATCHMILL_TEST_AZURE"} {
		t.Run(env, func(t *testing.T) {
			url := os.Getenv(env)
			if url == "" {
				t.Skipf("%s is not set: no server to test against", env)
			}
			t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
			conformance(t, New(Options{PartBytes: 5 << 20}), Join(url, fmt.Sprintf("conformance-%d", time.Now().UnixNano())))
		})
	}
}

func conformance(t *testing.T, s *Store, base string) {
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, c := range []struct {
		name string
		run  func(*testing.T, *Store, string)
	}{
		{"create and read", testCreateRead}, {"put if absent", testIfAbsent}, {"race", testRace}, {"abort", testAbort},
		{"ranges", testRanges}, {"pinned reads", testPinned}, {"list and expand", testExpand}, {"missing", testMissing},
		{"odd names", testOddNames}, {"metadata", testMetadata}, {"cancelled", testCancelled},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, s, Join(base, strings.ReplaceAll(c.name, " ", "-"))) })
	}
}

func put(t *testing.T, s *Store, url, data string) {
	t.Helper()
	if err := s.Put(context.Background(), url, []byte(data), CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, s *Store, url string) string {
	t.Helper()
	b, _, err := s.ReadAll(context.Background(), url, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func absent(t *testing.T, s *Store, url string) {
	t.Helper()
	if info, err := s.Stat(context.Background(), url); !errors.Is(err, ErrNotExist) {
		t.Fatalf("stat %s = %+v, %v, want ErrNotExist", url, info, err)
	}
}

// testCreateRead writes an empty, a small and a multipart object and reads them back.
func testCreateRead(t *testing.T, s *Store, base string) {
	ctx := context.Background()
	for _, size := range []int{0, 1, 1000, 12 << 20} {
		url := Join(base, fmt.Sprintf("d/o-%d", size))
		data := make([]byte, size)
		for i := range data {
			data[i] = byte(rand.Uint32())
		}
		w, err := s.Create(ctx, url, CreateOptions{IfAbsent: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(w, bytes.NewReader(data)); err != nil {
			t.Fatal(err)
		}
		absent(t, s, url)
		if err := w.Commit(); err != nil {
			t.Fatal(err)
		}
		w.Abort() // after a commit it does nothing
		info, err := s.Stat(ctx, url)
		if err != nil || info.Size != int64(size) || info.ETag == "" || info.URL != url {
			t.Fatalf("stat = %+v, %v", info, err)
		}
		if got := get(t, s, url); got != string(data) {
			t.Fatalf("%d bytes came back as %d others", size, len(got))
		}
		if _, _, err := s.ReadAll(ctx, url, int64(size)-1); err == nil {
			t.Fatal("ReadAll went beyond its limit")
		}
		if err := s.AbortUploads(ctx, url); err != nil {
			t.Fatal(err)
		}
	}
}

func testIfAbsent(t *testing.T, s *Store, base string) {
	url := Join(base, "o")
	put(t, s, url, "first")
	err := s.Put(context.Background(), url, []byte("second"), CreateOptions{IfAbsent: true})
	if !errors.Is(err, ErrExists) || errors.Is(err, ErrUnknown) {
		t.Fatalf("second put = %v, want ErrExists", err)
	}
	if got := get(t, s, url); got != "first" {
		t.Fatalf("the object was replaced by %q", got)
	}
	put(t, s, url, "third")
	if got := get(t, s, url); got != "third" {
		t.Fatalf("a put without IfAbsent left %q", got)
	}
}

// testRace lets eight writers commit one key at once: exactly one may win, whatever the size.
func testRace(t *testing.T, s *Store, base string) {
	for _, size := range []int{10, 6 << 20} {
		url := Join(base, fmt.Sprintf("o-%d", size))
		var wins atomic.Int32
		var winner atomic.Int32
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				data := bytes.Repeat([]byte{byte('a' + i)}, size)
				err := s.Put(context.Background(), url, data, CreateOptions{IfAbsent: true})
				switch {
				case err == nil:
					wins.Add(1)
					winner.Store(int32('a' + i))
				case !errors.Is(err, ErrExists):
					t.Errorf("writer %d: %v", i, err)
				}
			}()
		}
		wg.Wait()
		if wins.Load() != 1 {
			t.Fatalf("%d winners", wins.Load())
		}
		if got := get(t, s, url); got != strings.Repeat(string(rune(winner.Load())), size) {
			t.Fatal("the content is not the winner's")
		}
	}
}

// testAbort holds that neither Abort nor a cancelled context publishes anything, small or multipart.
func testAbort(t *testing.T, s *Store, base string) {
	for _, size := range []int{10, 12 << 20} {
		for _, how := range []string{"abort", "cancel, commit"} {
			url := Join(base, fmt.Sprintf("o-%d-%s", size, how[:5]))
			ctx, cancel := context.WithCancel(context.Background())
			w, err := s.Create(ctx, url, CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write(make([]byte, size)); err != nil {
				t.Fatal(err)
			}
			if how == "abort" {
				w.Abort()
			} else {
				cancel()
			}
			if err := w.Commit(); err == nil {
				t.Fatalf("commit after %s succeeded", how)
			}
			cancel()
			absent(t, s, url)
			if err := s.AbortUploads(context.Background(), url); err != nil {
				t.Fatal(err)
			}
		}
	}
	left, err := s.List(context.Background(), Join(base, "/"))
	if err != nil || len(left) != 0 {
		t.Fatalf("left behind: %v, %v", left, err)
	}
}

// testRanges compares every range of a small object, beyond its end too, with the same slice of its bytes.
func testRanges(t *testing.T, s *Store, base string) {
	ctx := context.Background()
	url, data := Join(base, "o"), "0123456789"
	put(t, s, url, data)
	obj, err := s.Open(ctx, Info{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	for off := range 13 {
		for n := range 5 {
			p := make([]byte, n)
			got, err := obj.ReadAt(p, int64(off))
			want := data[min(off, 10):min(off+n, 10)]
			if string(p[:got]) != want {
				t.Fatalf("ReadAt(%d, %d) = %q, want %q", n, off, p[:got], want)
			}
			if short := got < n || off >= 10; short != (err == io.EOF) || !short && err != nil {
				t.Fatalf("ReadAt(%d, %d): error %v", n, off, err)
			}
		}
		r := obj.NewReader(ctx, int64(off), -1)
		rest, err := io.ReadAll(r)
		if err != nil || string(rest) != data[min(off, 10):] {
			t.Fatalf("NewReader(%d) = %q, %v", off, rest, err)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := obj.ReadAt(make([]byte, 1), -1); err == nil {
		t.Fatal("a negative offset was read")
	}
}

// testPinned replaces an object, also by one of the same size, between two reads of the same Object.
func testPinned(t *testing.T, s *Store, base string) {
	url := Join(base, "o")
	for _, next := range []string{"9876543210", "longer than before", "x"} {
		put(t, s, url, "0123456789")
		obj, err := s.Open(context.Background(), Info{URL: url})
		if err != nil {
			t.Fatal(err)
		}
		p := make([]byte, 4)
		if _, err := obj.ReadAt(p, 2); err != nil || string(p) != "2345" {
			t.Fatalf("%q, %v", p, err)
		}
		time.Sleep(5 * time.Millisecond) // beyond a file system's clock tick
		put(t, s, url, next)
		if n, err := obj.ReadAt(p, 2); !errors.Is(err, ErrChanged) {
			t.Fatalf("read of a changed object = %q, %v, want ErrChanged", p[:n], err)
		}
	}
	obj, err := s.Open(context.Background(), Info{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(context.Background(), url); err != nil {
		t.Fatal(err)
	}
	if _, err := obj.ReadAt(make([]byte, 1), 0); !errors.Is(err, ErrNotExist) {
		t.Fatalf("read of a deleted object: %v", err)
	}
}

func testExpand(t *testing.T, s *Store, base string) {
	ctx := context.Background()
	files := []string{"a.jsonl", "b.jsonl.gz", "c.parquet", "README.md", "_SUCCESS", "_x.jsonl", ".h.jsonl", "sub/d.jsonl",
		"sub/deep/e.ndjson.zst", "sub/_run/f.jsonl", "_errors/g.jsonl", "lit[1].jsonl", "p-1.jsonl", "p-2.jsonl", "p-10.jsonl", "é.jsonl", "[b].txt"}
	for _, f := range files {
		put(t, s, Join(base, f), "{}\n")
	}
	for _, c := range []struct{ pattern, want string }{
		{"", ""}, // the folder itself, without a slash
		{"/", "a.jsonl b.jsonl.gz c.parquet lit[1].jsonl p-1.jsonl p-10.jsonl p-2.jsonl sub/d.jsonl sub/deep/e.ndjson.zst é.jsonl"},
		{"/sub/", "sub/d.jsonl sub/deep/e.ndjson.zst"},
		{"/*/", "sub/d.jsonl sub/deep/e.ndjson.zst"},
		{"/**/deep/", "sub/deep/e.ndjson.zst"},
		{"/_errors/", "_errors/g.jsonl"},
		{"/a.jsonl", "a.jsonl"},
		{"/_x.jsonl", "_x.jsonl"},
		{"/nope.jsonl", ""},
		{"/*.nope", ""},
		{"/*.jsonl", "a.jsonl lit[1].jsonl p-1.jsonl p-10.jsonl p-2.jsonl é.jsonl"},
		{"/?.jsonl", "a.jsonl é.jsonl"},
		{"/_*.jsonl", "_x.jsonl"},
		{"/[_]*.jsonl", ""},
		{"/p-[0-9].jsonl", "p-1.jsonl p-2.jsonl"},
		{"/p-[!1].jsonl", "p-2.jsonl"},
		{"/p-{2,10}.jsonl", "p-10.jsonl p-2.jsonl"},
		{"/{a,p-{1,2},sub/d,nope}.jsonl", "a.jsonl p-1.jsonl p-2.jsonl sub/d.jsonl"},
		{"/lit[1].jsonl", "lit[1].jsonl"}, // a literal name wins
		{"/[[]b].txt", "[b].txt"},
		{`/\[b].txt`, "[b].txt"},
		{"/**/*.jsonl", "a.jsonl lit[1].jsonl p-1.jsonl p-10.jsonl p-2.jsonl sub/d.jsonl é.jsonl"},
		{"/**/_run/*", "sub/_run/f.jsonl"},
		{"/**/e.*", "sub/deep/e.ndjson.zst"},
		{"/*/*/e*", "sub/deep/e.ndjson.zst"},
		{"/sub/**", "sub/d.jsonl sub/deep/e.ndjson.zst"},
	} {
		infos, err := s.Expand(ctx, strings.Replace(Join(base, "X"), "/X", c.pattern, 1))
		if c.want == "" {
			if !errors.Is(err, ErrNoMatch) {
				t.Errorf("%q = %v, %v, want ErrNoMatch", c.pattern, infos, err)
			}
			continue
		}
		var got []string
		for _, i := range infos {
			loc, _ := Parse(i.URL)
			root, _ := Parse(base)
			got = append(got, strings.TrimPrefix(loc.Key, root.Key+"/"))
			if i.Size != 3 || i.ETag == "" {
				t.Errorf("%+v lacks its size or ETag", i)
			}
			if now, err := s.Stat(ctx, i.URL); err != nil || now.ETag != i.ETag {
				t.Errorf("the listing's ETag %s differs from %+v, %v", i.ETag, now, err)
			}
		}
		if strings.Join(got, " ") != c.want || err != nil {
			t.Errorf("%q = %v, %v, want %s", c.pattern, got, err, c.want)
		}
	}
	all, err := s.ExpandAll(ctx, []string{Join(base, "*.jsonl"), Join(base, "a.jsonl"), Join(base, "p-*")})
	if err != nil || len(all) != 6 {
		t.Errorf("overlapping patterns = %v, %v", all, err)
	}
	everything, err := s.List(ctx, Join(base, "/"))
	if err != nil || len(everything) != len(files) {
		t.Errorf("List = %d objects, %v, want %d", len(everything), err, len(files))
	}
	for _, bad := range []string{"{a", "a**b.jsonl"} {
		if _, err := s.Expand(ctx, Join(base, bad)); err == nil || errors.Is(err, ErrNoMatch) {
			t.Errorf("%q: %v, want an error that names the fault", bad, err)
		}
	}
}

func testMissing(t *testing.T, s *Store, base string) {
	ctx := context.Background()
	url := Join(base, "nope")
	absent(t, s, url)
	if err := s.Delete(ctx, url); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Open(ctx, Info{URL: url}); !errors.Is(err, ErrNotExist) {
		t.Fatal(err)
	}
	if l, err := s.List(ctx, Join(base, "/")); err != nil || len(l) != 0 {
		t.Fatal(l, err)
	}
}

func testOddNames(t *testing.T, s *Store, base string) {
	for _, name := range []string{"a b+c", "é/ü", "q#%41&", "what?really", "semi;colon", "x=1/y=2/p.jsonl"} {
		url := Join(base, name)
		put(t, s, url, name)
		if got := get(t, s, url); got != name {
			t.Errorf("%q holds %q", name, got)
		}
		if l, err := s.List(context.Background(), url); err != nil || len(l) != 1 || l[0].URL != url {
			t.Errorf("list of %q = %v, %v", url, l, err)
		}
	}
}

func testMetadata(t *testing.T, s *Store, base string) {
	url := Join(base, "o")
	want := map[string]string{"plan-digest": "abc", "rows": "12"}
	if err := s.Put(context.Background(), url, nil, CreateOptions{Metadata: want, ContentType: "text/plain"}); err != nil {
		t.Fatal(err)
	}
	got, err := s.Metadata(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasPrefix(url, "file://") {
		if len(got) != 0 {
			t.Fatal(got)
		}
		return
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("metadata %v, want %v", got, want)
	}
}

func testCancelled(t *testing.T, s *Store, base string) {
	url := Join(base, "o")
	put(t, s, url, "0123456789")
	ctx, cancel := context.WithCancel(context.Background())
	obj, err := s.Open(ctx, Info{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := obj.ReadAt(make([]byte, 3), 0); !errors.Is(err, context.Canceled) {
		t.Fatalf("read under a cancelled context: %v", err)
	}
}
