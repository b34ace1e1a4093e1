package hub

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestMain lets the test binary play other programs; see fakePip and TestLockAcrossProcesses.
func TestMain(m *testing.M) {
	switch os.Getenv("BATCHMILL_TEST_ROLE") {
	case "pip":
		os.Exit(fakePip(os.Args[1:]))
	case "locker":
		os.Exit(locker(os.Args[1]))
	}
	os.Exit(m.Run())
}

// options gives options with a cache of its own, and keeps the user's settings and caches out of the test.
func options(t *testing.T) Options {
	t.Helper()
	dir := t.TempDir()
	for name, value := range map[string]string{
		"HF_HOME": filepath.Join(dir, "hf"), "HF_HUB_CACHE": "", "HUGGINGFACE_HUB_CACHE": "", "HF_TOKEN": "", "HF_TOKEN_PATH": "",
		"HF_ENDPOINT": "http://127.0.0.1:1", "HF_HUB_OFFLINE": "", "XDG_CACHE_HOME": filepath.Join(dir, "xdg"), "BATCHMILL_CACHE": "",
	} {
		t.Setenv(name, value)
	}
	return Options{Dir: filepath.Join(dir, "models"), retryPause: time.Microsecond}
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func writeFile(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

func sum256(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}

func gitID(data []byte) string {
	s := sha1.Sum([]byte(fmt.Sprintf("blob %d\x00%s", len(data), data)))
	return hex.EncodeToString(s[:])
}

const (
	ggufData  = "../../infer/gguf/testdata/"
	tensorDir = "../../infer/safetensors/testdata/"
)

// modelFiles are the files of a small model in the Hugging Face layout, in two shards.
func modelFiles(t *testing.T) map[string][]byte {
	t.Helper()
	files := map[string][]byte{
		"config.json":            []byte(`{"model_type":"llama"}`),
		"generation_config.json": []byte(`{"eos_token_id":2}`),
		"tokenizer.json":         []byte(`{"version":"1.0"}`),
		"tokenizer_config.json":  []byte(`{"eos_token":"</s>"}`),
		"chat_template.jinja":    []byte(`{{ messages }}`),
		"README.md":              []byte("not needed"),
	}
	for _, name := range []string{"model.safetensors.index.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"} {
		files[name] = readFile(t, tensorDir+name)
	}
	return files
}

// wantError checks an error's kind and that it says all of these things.
func wantError(t *testing.T, err error, kind Kind, says ...string) {
	t.Helper()
	if KindOf(err) != kind {
		t.Errorf("got error %v of kind %d, want kind %d", err, KindOf(err), kind)
		return
	}
	for _, s := range says {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("message %q lacks %q", err, s)
		}
	}
}
