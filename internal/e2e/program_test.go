package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/batchmill/batchmill/internal/testbin"
)

// runTimeout bounds one run of the program: the longest takes seconds on two cores, a million rows minutes.
const runTimeout = 20 * time.Minute

// root is the module's root, as an absolute path: inputs are named by it, since the program runs elsewhere.
var root = func() string {
	dir, err := filepath.Abs("../..")
	if err != nil {
		panic(err)
	}
	return dir
}()

var binary struct {
	sync.Once
	dir, path string
	err       error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if binary.dir != "" {
		_ = os.RemoveAll(binary.dir)
	}
	os.Exit(code)
}

// program builds the binary once and returns its path.
func program(t *testing.T) string {
	t.Helper()
	binary.Do(func() {
		if binary.dir, binary.err = os.MkdirTemp("", "batchmill-e2e"); binary.err != nil {
			return
		}
		binary.path = filepath.Join(binary.dir, "batchmill")
		binary.err = testbin.Build(root, binary.path, "")
	})
	if binary.err != nil {
		t.Fatal(binary.err)
	}
	return binary.path
}

// need returns the value of a variable that `make test` sets, or skips the test.
func need(t *testing.T, name, what string) string {
	t.Helper()
	value := os.Getenv(name)
	if value == "" {
		t.Skipf("needs %s: set %s (make test does)", what, name)
	}
	return value
}

func model(t *testing.T) string {
	return need(t, "BATCHMILL_TEST_MODEL", "the small model")
}

// outcome is how a run of the program ended.
type outcome struct {
	code           int
	stdout, stderr string
}

// batchmill runs the program in an empty folder of its own, with an environment that holds nothing of the user's
// configuration, plus env.
func batchmill(t *testing.T, env []string, args ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), runTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, program(t), args...)
	cmd.Dir = t.TempDir()
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "BATCHMILL_") && !strings.HasPrefix(kv, "AWS_") && !strings.HasPrefix(kv, "SHARD_") {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	cmd.Env = append(cmd.Env, "AWS_EC2_METADATA_DISABLED=true")
	cmd.Env = append(cmd.Env, env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("run batchmill %s: %v", strings.Join(args, " "), err)
	}
	return outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// summary is what the tests read of the line that --json prints.
type summary struct {
	Status   string `json:"status"`
	ExitCode int    `json:"exit_code"`
	Rows     struct {
		Total      int64 `json:"total"`
		OK         int64 `json:"ok"`
		Error      int64 `json:"error"`
		Skipped    int64 `json:"skipped"`
		NotStarted int64 `json:"not_started"`
	} `json:"rows"`
	Errors map[string]int64 `json:"errors"`
	Tokens struct {
		Prompt     int64 `json:"prompt"`
		Completion int64 `json:"completion"`
	} `json:"tokens"`
	Message string `json:"message"`
}

// job runs `batchmill run ... --json`, expects the exit code and returns the summary. The summary must be the last line of
// stdout, and the only one.
func job(t *testing.T, code int, env []string, args ...string) summary {
	t.Helper()
	got := batchmill(t, env, append(append([]string{"run"}, args...), "--json")...)
	if got.code != code {
		t.Fatalf("run %s: exit %d, want %d\nstdout: %s\nstderr: %s", strings.Join(args, " "), got.code, code, got.stdout, got.stderr)
	}
	line, rest, _ := strings.Cut(got.stdout, "\n")
	if rest != "" {
		t.Fatalf("stdout holds more than one line:\n%s", got.stdout)
	}
	var s summary
	if err := json.Unmarshal([]byte(line), &s); err != nil {
		t.Fatalf("summary %q: %v", line, err)
	}
	if s.ExitCode != code {
		t.Errorf("summary says exit code %d, the process %d", s.ExitCode, code)
	}
	if r := s.Rows; r.Total != r.OK+r.Error+r.Skipped+r.NotStarted {
		t.Errorf("rows do not add up: %+v", r)
	}
	return s
}

// python runs one of testdata's scripts with the reference readers.
func python(t *testing.T, script string, args ...string) string {
	t.Helper()
	interpreter := need(t, "BATCHMILL_TEST_PYTHON", "Python with pyarrow and DuckDB")
	ctx, cancel := context.WithTimeout(context.Background(), runTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, interpreter, append([]string{filepath.Join(root, "internal/e2e/testdata", script)}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return string(out)
}

// parts returns the data files of an output folder.
func parts(t *testing.T, dir, pattern string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(names) == 0 {
		t.Fatalf("no %s in %s (%v)", pattern, dir, err)
	}
	return names
}

func write(t *testing.T, path string, content []byte) string {
	t.Helper()
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
