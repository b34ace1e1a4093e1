package hub

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/batchmill/batchmill/infer/quant"
)

// folder writes a model in the Hugging Face layout.
func folder(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "tiny-llama")
	for name, data := range modelFiles(t) {
		writeFile(t, filepath.Join(dir, name), data)
	}
	return dir
}

func TestLocalFolder(t *testing.T) {
	o := options(t)
	dir := folder(t)
	for _, ref := range []string{dir, dir + string(filepath.Separator), "file://" + filepath.ToSlash(dir)} {
		m, err := Resolve(context.Background(), ref, o)
		if err != nil {
			t.Fatal(err)
		}
		if m.Name != "tiny-llama" || len(m.Weights.Tensors()) != 3 || m.ConfigJSON == nil || m.GGUF != nil || len(m.Files) != 8 {
			t.Errorf("%s: %+v", ref, m)
		}
		data, release, err := m.Weights.Data(context.Background(), "c")
		if err != nil || len(data) != 8 {
			t.Errorf("tensor c: %d bytes, %v", len(data), err)
		}
		release()
		m.Close()
	}
	if status, err := Verify(context.Background(), dir, o); err != nil || len(status) != 8 || status[0].Want != "" || !status[0].OK {
		t.Errorf("Verify: %+v, %v", status, err)
	}
	if s, err := Pull(context.Background(), dir, o); err != nil || s.Dir != dir {
		t.Errorf("a pull of a path looks at it: %+v, %v", s, err)
	}
}

// TestDigest: it is of what decides results, and of nothing else: not of names, places, times or other files.
func TestDigest(t *testing.T) {
	o := options(t)
	digest := func(ref string) string {
		t.Helper()
		m, err := Resolve(context.Background(), ref, o)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		if !hexSHA256.MatchString(m.Digest) {
			t.Errorf("digest %q", m.Digest)
		}
		return m.Digest
	}
	first := folder(t)
	want := digest(first)
	other := folder(t)
	writeFile(t, filepath.Join(other, "README.md"), []byte("another text"))
	if got := digest(other); got != want {
		t.Error("the digest depends on the place or on files that decide nothing")
	}
	for _, name := range []string{"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "model-00001-of-00002.safetensors"} {
		dir := folder(t)
		data := bytes.Clone(readFile(t, filepath.Join(dir, name)))
		data[len(data)-1] ^= 1
		writeFile(t, filepath.Join(dir, name), data)
		if digest(dir) == want {
			t.Errorf("a changed %s does not change the digest", name)
		}
	}
	missing := folder(t)
	if err := os.Remove(filepath.Join(missing, "chat_template.jinja")); err != nil {
		t.Fatal(err)
	}
	if digest(missing) == want {
		t.Error("a missing chat template does not change the digest")
	}

	model := readFile(t, ggufData+"kinds.gguf")
	file := filepath.Join(t.TempDir(), "any name")
	writeFile(t, file, model)
	if got := digest(file); got != sum256(model) {
		t.Errorf("the digest of a single file is %s, not its SHA-256", got)
	}
	renamed := t.TempDir()
	for i := 1; i <= 3; i++ {
		writeFile(t, filepath.Join(renamed, fmt.Sprintf("x-%05d-of-00003.gguf", i)), readFile(t, fmt.Sprintf("%ssplit-%05d-of-00003.gguf", ggufData, i)))
	}
	if digest(renamed) != digest(ggufData+"split-00002-of-00003.gguf") {
		t.Error("the digest of a split file depends on its name")
	}
}

// TestDigestIsRemembered: an unchanged file is hashed once; a changed one again, also where its size stays.
func TestDigestIsRemembered(t *testing.T) {
	o := options(t)
	hashed := map[string]bool{}
	o.Progress = func(p Progress) {
		if p.Stage == "hash" {
			hashed[p.File] = true
		}
	}
	model := readFile(t, ggufData+"kinds.gguf")
	file := filepath.Join(t.TempDir(), "m.gguf")
	digest := func(age time.Duration) string {
		t.Helper()
		clear(hashed)
		when := time.Now().Add(-age)
		if err := os.Chtimes(file, when, when); err != nil {
			t.Fatal(err)
		}
		m, err := Resolve(context.Background(), file, o)
		if err != nil {
			t.Fatal(err)
		}
		m.Close()
		return m.Digest
	}
	writeFile(t, file, model)
	digest(0)
	if m, err := Resolve(context.Background(), file, o); err != nil || !hashed["m.gguf"] {
		t.Errorf("a file changed just now: remembered too early, %v", err)
	} else {
		m.Close()
	}
	digest(time.Hour)
	clear(hashed)
	m, err := Resolve(context.Background(), file, o)
	if err != nil || m.Digest != sum256(model) || len(hashed) != 0 {
		t.Errorf("hashed again: %v, %v", hashed, err)
	}
	m.Close()
	changed := bytes.Clone(model)
	changed[len(changed)-1] ^= 1
	writeFile(t, file, changed)
	if got := digest(2 * time.Hour); got != sum256(changed) {
		t.Errorf("a changed file has the digest %s", got)
	}
}

func TestTokenizerOnly(t *testing.T) {
	o := options(t)
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "tokenizer.json"), []byte("{}"))
	_, err := Resolve(context.Background(), dir, o)
	wantError(t, err, Missing, "holds no model")
	o.TokenizerOnly = true
	m, err := Resolve(context.Background(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	if string(m.TokenizerJSON) != "{}" || m.Weights != nil || m.Digest != "" {
		t.Errorf("%+v", m)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	m, err = Resolve(context.Background(), ggufData+"kinds.gguf", o)
	if err != nil || m.GGUF == nil {
		t.Fatalf("a GGUF file's tokenizer is in its metadata: %v", err)
	}
	m.Close()
	_, err = Resolve(context.Background(), t.TempDir(), o)
	wantError(t, err, Missing)
}

func TestLocalRefuses(t *testing.T) {
	o := options(t)
	dir := t.TempDir()
	model := readFile(t, ggufData+"kinds.gguf")
	write := func(name string, data []byte) string {
		p := filepath.Join(dir, name)
		writeFile(t, p, data)
		return p
	}
	half := folder(t)
	if err := os.Remove(filepath.Join(half, "model-00002-of-00002.safetensors")); err != nil {
		t.Fatal(err)
	}
	evil := folder(t)
	writeFile(t, filepath.Join(evil, "model.safetensors.index.json"), []byte(`{"weight_map":{"a":"../../etc/passwd"}}`))
	for _, c := range []struct {
		ref  string
		kind Kind
		says string
	}{
		{"smollm2", Missing, "one of: smollm2-135m"},
		{filepath.Join(dir, "none.gguf"), Missing, "file does not exist"},
		{write("notes.txt", []byte("hello")), Damaged, "not a GGUF file"},
		{write("x.safetensors", []byte("hello")), Damaged, "give the folder that holds it"},
		{write("cut.gguf", model[:len(model)-200]), Damaged, `tensor "blk.0.ffn_gate_exps.weight": at byte 3520`},
		{write("p-00001-of-00002.gguf", model), Missing, "p-00002-of-00002.gguf"},
		{write("m.gguf", model) + "#sha256=" + sum256(nil), Damaged, "delete " + filepath.Join(dir, "m.gguf")},
		{folder(t) + "#sha256=" + sum256(nil), Usage, "a hash pins one file"},
		{half, Missing, "shard model-00002-of-00002.safetensors"},
		{evil, Damaged, "not the name of a file beside the index"},
	} {
		m, err := Resolve(context.Background(), c.ref, o)
		t.Logf("%v", err)
		wantError(t, err, c.kind, c.says)
		if m != nil {
			t.Errorf("%s gave a model", c.ref)
		}
	}
	_, err := Resolve(context.Background(), filepath.Join(dir, "none.gguf"), o)
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("not an ErrNotExist: %v", err)
	}
	_, err = Resolve(context.Background(), filepath.Join(dir, "cut.gguf"), o)
	var fe *quant.FileError
	if !errors.As(err, &fe) || fe.Tensor != "blk.0.ffn_gate_exps.weight" {
		t.Errorf("not a FileError: %v", err)
	}
}

func TestCacheDir(t *testing.T) {
	options(t)
	t.Setenv("BATCHMILL_CACHE", "some/where")
	if dir, err := DefaultDir(); err != nil || !filepath.IsAbs(dir) || !strings.HasSuffix(filepath.ToSlash(dir), "some/where") {
		t.Errorf("%s, %v", dir, err)
	}
	t.Setenv("BATCHMILL_CACHE", "")
	if dir, err := DefaultDir(); err != nil || !strings.HasSuffix(filepath.ToSlash(dir), "batchmill/models") {
		t.Errorf("%s, %v", dir, err)
	}
}

// TestForeignCache: what others may have written into the cache leads nowhere outside it.
func TestForeignCache(t *testing.T) {
	o := options(t)
	c, err := newClient(o)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Parse("pypi:some-model==1.0")
	if err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(filepath.Dir(o.Dir), "secret")
	writeFile(t, filepath.Join(secret, "m.gguf"), readFile(t, ggufData+"kinds.gguf"))
	entry := func(dir, file string) {
		writeFile(t, filepath.Join(dir, "manifest.json"), []byte(fmt.Sprintf(
			`{"version":1,"ref":"x","files":[{"name":%q,"size":4448,"sha256":%q}]}`, file, sum256(nil))))
	}
	point := func(to string) bool {
		writeFile(t, c.pointerPath(r), []byte(fmt.Sprintf(`{"ref":%q,"entry":%q}`, r.key(), to)))
		_, ok := c.lookUp(r)
		return ok
	}
	entry(secret, "m.gguf")
	if point("../secret") {
		t.Error("an entry outside the cache")
	}
	entry(filepath.Join(o.Dir, "pypi", "x"), "../../../secret/m.gguf")
	if point("pypi/x") {
		t.Error("a file outside the entry")
	}
	writeFile(t, c.pointerPath(r), []byte("{broken"))
	if _, ok := c.lookUp(r); ok {
		t.Error("a broken pointer")
	}
}
