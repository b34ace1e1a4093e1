package e2e

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/klauspost/compress/zstd"

	"github.com/batchmill/batchmill/internal/s3test"
)

func tasks() string { return filepath.Join(root, "examples", "tasks.parquet") }
func chats() string { return filepath.Join(root, "examples", "chats.jsonl") }

// TestParquet is the promise of the README: the folder is read as it is by pyarrow and DuckDB, with the input's columns
// unchanged and ours beside them; the same command again changes nothing.
func TestParquet(t *testing.T) {
	m := model(t)
	out := t.TempDir() + "/out"
	args := []string{"--model", m, "--input", filepath.Join(root, "examples", "*.parquet"), "--output", out, "--prompt", "{{ text }}", "--max-tokens", "32"}
	s := job(t, 0, nil, args...)
	if s.Rows.Total != 24 || s.Rows.OK != 24 {
		t.Errorf("rows %+v, want 24 ok", s.Rows)
	}
	if got := strings.TrimSpace(python(t, "check_parquet.py", tasks(), out)); got != "24" {
		t.Errorf("check_parquet.py counted %q rows, want 24", got)
	}
	if _, err := os.Stat(filepath.Join(out, "_SUCCESS")); err != nil {
		t.Error(err)
	}
	part := parts(t, out, "*.parquet")[0]
	before, err := os.Stat(part)
	if err != nil {
		t.Fatal(err)
	}
	content := read(t, part)
	if again := job(t, 0, nil, args...); again.Rows != s.Rows || again.Tokens != s.Tokens {
		t.Errorf("the same command again: rows %+v tokens %+v, want %+v %+v", again.Rows, again.Tokens, s.Rows, s.Tokens)
	}
	after, err := os.Stat(part)
	if err != nil || !after.ModTime().Equal(before.ModTime()) || !bytes.Equal(read(t, part), content) {
		t.Errorf("a committed part was written again (%v)", err)
	}
	// Another prompt is another job: nothing may be reused, and nothing overwritten.
	other := append([]string{}, args...)
	other[7] = "Answer: {{ text }}"
	if got := job(t, 65, nil, other...); !strings.Contains(got.Message, "prompt") {
		t.Errorf("message %q does not name what differs", got.Message)
	}
	if !bytes.Equal(read(t, part), content) {
		t.Error("a refused job changed the output")
	}
}

// TestS3 runs the same job from and to a real S3 server and expects the same result columns as on disk.
func TestS3(t *testing.T) {
	m := model(t)
	srv := s3test.Start(t)
	srv.Setenv(t)
	ctx := context.Background()
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		t.Fatal(err)
	}
	client := s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = true })
	key := "in/tasks.parquet"
	if _, err := client.PutObject(ctx, &s3.PutObjectInput{Bucket: &srv.Bucket, Key: &key, Body: bytes.NewReader(read(t, tasks()))}); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	common := []string{"--model", m, "--prompt", "{{ text }}", "--max-tokens", "16"}
	disk := job(t, 0, nil, append([]string{"--input", tasks(), "--output", dir + "/disk"}, common...)...)
	remote := job(t, 0, srv.Env(), append([]string{"--input", srv.URL("in/*.parquet"), "--output", srv.URL("out/")}, common...)...)
	if disk.Rows != remote.Rows || disk.Tokens != remote.Tokens {
		t.Errorf("on disk %+v %+v, on S3 %+v %+v", disk.Rows, disk.Tokens, remote.Rows, remote.Tokens)
	}
	prefix := "out/"
	list, err := client.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: &srv.Bucket, Prefix: &prefix})
	if err != nil {
		t.Fatal(err)
	}
	var success bool
	for _, o := range list.Contents {
		name := strings.TrimPrefix(*o.Key, prefix)
		success = success || name == "_SUCCESS"
		if !strings.HasSuffix(name, ".parquet") {
			if !strings.HasPrefix(name, "_") {
				t.Errorf("%s is neither data nor hidden", name)
			}
			continue
		}
		got, err := client.GetObject(ctx, &s3.GetObjectInput{Bucket: &srv.Bucket, Key: o.Key})
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(got.Body)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(dir+"/s3", 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "s3", name), body)
	}
	if !success {
		t.Error("no _SUCCESS on S3")
	}
	python(t, "same_results.py", dir+"/disk", dir+"/s3")
	for _, args := range [][]string{{"verify", "--json", srv.URL("out/")}, {"status", "--json", srv.URL("out/")}, {"finalize", "--json", srv.URL("out/")}} {
		if got := batchmill(t, srv.Env(), args...); got.code != 0 || !strings.Contains(got.stdout, `"ok":24`) {
			t.Errorf("%s: exit %d\n%s%s", args[0], got.code, got.stdout, got.stderr)
		}
	}
	retried := batchmill(t, srv.Env(), "retry", "--json", "--output", srv.URL("retried/"), srv.URL("out/"))
	if retried.code != 0 || !strings.Contains(retried.stdout, `"ok":24`) {
		t.Errorf("retry: exit %d\n%s%s", retried.code, retried.stdout, retried.stderr)
	}
	// And again: the part is there, so nothing is run.
	if again := job(t, 0, srv.Env(), append([]string{"--input", srv.URL("in/*.parquet"), "--output", srv.URL("out/")}, common...)...); again.Rows != remote.Rows {
		t.Errorf("the same command again: %+v, want %+v", again.Rows, remote.Rows)
	}
}

// line is what the tests read of a JSONL result.
type line struct {
	ID           string  `json:"id"`
	RowIndex     int64   `json:"row_index"`
	Status       string  `json:"status"`
	Completion   *string `json:"completion"`
	FinishReason *string `json:"finish_reason"`
	ErrorCode    *string `json:"error_code"`
	ErrorMessage *string `json:"error_message"`
	PromptTokens int     `json:"prompt_tokens"`
	Seed         int64   `json:"seed"`
}

func lines(t *testing.T, dir string) (raw []string, parsed []line) {
	t.Helper()
	for _, name := range parts(t, dir, "*.jsonl") {
		for text := range strings.Lines(string(read(t, name))) {
			var l line
			if err := json.Unmarshal([]byte(text), &l); err != nil {
				t.Fatalf("%s: %v\n%s", name, err, text)
			}
			raw = append(raw, strings.TrimSuffix(text, "\n"))
			parsed = append(parsed, l)
		}
	}
	return raw, parsed
}

// TestJSONL: every row keeps its bytes, prompts and messages both work, and the compressed forms of the file give equal rows.
func TestJSONL(t *testing.T) {
	m := model(t)
	dir := t.TempDir()
	plain := read(t, chats())
	inputs := map[string]string{"plain": chats()}
	var zipped bytes.Buffer
	half := bytes.IndexByte(plain[len(plain)/2:], '\n') + len(plain)/2 + 1
	for _, member := range [][]byte{plain[:half], plain[half:]} { // two members, as log shippers write them
		w := gzip.NewWriter(&zipped)
		if _, err := w.Write(member); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	inputs["gzip"] = write(t, dir+"/chats.jsonl.gz", zipped.Bytes())
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	inputs["zstd"] = write(t, dir+"/chats.jsonl.zst", append(enc.EncodeAll(plain[:half], nil), enc.EncodeAll(plain[half:], nil)...))

	var want []line
	for _, form := range []string{"plain", "gzip", "zstd"} {
		out := filepath.Join(dir, form)
		s := job(t, 0, nil, "--model", m, "--input", inputs[form], "--output", out, "--max-tokens", "12")
		raw, got := lines(t, out)
		if s.Rows.OK != 12 || len(got) != 12 {
			t.Fatalf("%s: %+v, %d lines, want 12 ok", form, s.Rows, len(got))
		}
		for i, text := range strings.Split(strings.TrimSuffix(string(plain), "\n"), "\n") {
			inner := strings.TrimSuffix(strings.TrimPrefix(text, "{"), "}")
			if !strings.Contains(raw[i], strings.TrimSpace(inner)) {
				t.Errorf("%s row %d: its bytes are not carried\n in: %s\nout: %s", form, i, text, raw[i])
			}
			if got[i].RowIndex != int64(i) || got[i].Status != "ok" || got[i].Completion == nil || *got[i].Completion == "" {
				t.Errorf("%s row %d: %s", form, i, raw[i])
			}
		}
		if want == nil {
			want = got
			continue
		}
		for i := range got {
			if *got[i].Completion != *want[i].Completion || got[i].Seed != want[i].Seed || got[i].PromptTokens != want[i].PromptTokens {
				t.Errorf("%s row %d differs from the plain file's: %+v", form, i, got[i])
			}
		}
	}
}
