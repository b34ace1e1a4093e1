//go:build unix

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// signalled starts a run of many rows of the tiny model, sends it a signal once it has made a number of rows, and returns how
// it ended and how long that took.
func signalled(t *testing.T, in, out, grace string, after time.Duration, signals ...syscall.Signal) (outcome, time.Duration) {
	t.Helper()
	cmd := exec.Command(program(t), "run", "--model", filepath.Join(root, twoLayers), "--input", in, "--output", out,
		"--max-tokens", "24", "--max-seqs", "8", "--journal-units", "32", "--split-bytes", "20KB", "--grace", grace, "--json", "--progress", "none")
	cmd.Dir = t.TempDir()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(runTimeout)
	for time.Now().Before(deadline) { // it is at work once the plan is there
		if _, err := os.Stat(filepath.Join(out, "_run", "plan.json")); err == nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	time.Sleep(after)
	began := time.Now()
	for _, s := range signals {
		_ = cmd.Process.Signal(s)
		time.Sleep(20 * time.Millisecond)
	}
	_ = cmd.Wait()
	return outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}, time.Since(began)
}

type journalled struct {
	summary
	Journal struct{ Resumed, Units int64 }
}

// manyRows writes prompts for a run that takes seconds.
func manyRows(t *testing.T, path string, rows int) string {
	t.Helper()
	var b bytes.Buffer
	for i := range rows {
		fmt.Fprintf(&b, `{"id": "%d", "prompt": "row %d of many"}`+"\n", i, i)
	}
	return write(t, path, b.Bytes())
}

// TestKilledAtAnyInstant: kill -9, again and again, then the same command: every row once, with the completions of an
// unbroken run, and the journal is gone.
func TestKilledAtAnyInstant(t *testing.T) {
	const rows = 800
	dir := t.TempDir()
	in := manyRows(t, filepath.Join(dir, "rows.jsonl"), rows)
	args := []string{"--model", filepath.Join(root, twoLayers), "--input", in, "--max-tokens", "24", "--max-seqs", "8", "--split-bytes", "20KB"}
	whole, out := filepath.Join(dir, "whole")+"/", filepath.Join(dir, "out")+"/"
	job(t, 0, nil, append(args, "--output", whole)...)
	random := rand.New(rand.NewPCG(3, 4))
	for range 4 {
		signalled(t, in, out, "1s", time.Duration(random.IntN(250))*time.Millisecond, syscall.SIGKILL)
	}
	if last := job(t, 0, nil, append(args, "--output", out)...); last.Rows.OK != rows {
		t.Errorf("%+v", last.Rows)
	}
	_, want := lines(t, whole)
	_, got := lines(t, out)
	if len(got) != rows || len(want) != rows {
		t.Fatalf("%d rows, %d without kills, want %d", len(got), len(want), rows)
	}
	for i := range got {
		if got[i].ID != want[i].ID || *got[i].Completion != *want[i].Completion || got[i].Seed != want[i].Seed {
			t.Fatalf("row %d is %+v, want %+v", i, got[i], want[i])
		}
	}
	if left, _ := filepath.Glob(filepath.Join(out, "_run", "journal", "*", "*")); len(left) > 0 {
		t.Errorf("chunks are left: %v", left)
	}
}

// TestSignals: at random instants, exit 75 within the grace and a second, rows that add up, and nothing that was journalled
// is run again.
func TestSignals(t *testing.T) {
	const rows = 1500
	dir := t.TempDir()
	in := manyRows(t, filepath.Join(dir, "rows.jsonl"), rows)
	out := filepath.Join(dir, "out") + "/"
	random := rand.New(rand.NewPCG(1, 2))
	kinds := []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP}
	stops := 4
	if v := os.Getenv("BATCHMILL_TEST_SIGNALS"); v != "" {
		fmt.Sscan(v, &stops)
	}
	early := 0
	for n := range stops {
		got, took := signalled(t, in, out, "1s", time.Duration(40+random.IntN(250))*time.Millisecond, kinds[n%len(kinds)])
		if got.code == -1 {
			early++ // it came before the program listened
			continue
		}
		var s journalled
		if err := json.Unmarshal([]byte(got.stdout), &s); err != nil {
			t.Fatalf("stop %d: exit %d, summary %q: %v\n%s", n, got.code, got.stdout, err, got.stderr)
		}
		if got.code == 0 {
			t.Logf("stop %d: all was done", n)
			break
		}
		if got.code != 75 || s.ExitCode != 75 || took > 2*time.Second {
			t.Errorf("stop %d: exit %d (%s) after %v, want 75 within 2 s", n, got.code, s.Message, took)
		}
		if r := s.Rows; r.Total != r.OK+r.Error+r.Skipped+r.NotStarted || r.Total != rows {
			t.Errorf("stop %d: rows do not add up: %+v", n, r)
		}
	}
	if early > stops/2 {
		t.Errorf("%d of %d runs were stopped before they listened", early, stops)
	}
	last := job(t, 0, nil, "--model", filepath.Join(root, twoLayers), "--input", in, "--output", out, "--max-tokens", "24", "--max-seqs", "8", "--split-bytes", "20KB")
	if last.Rows.OK != rows {
		t.Errorf("%+v", last.Rows)
	}
}

func TestASecondInterruptEndsAtOnce(t *testing.T) {
	dir := t.TempDir()
	in := write(t, dir+"/in.jsonl", bytes.Repeat([]byte(`{"prompt": "a long story about nothing at all"}`+"\n"), 2000))
	got, took := signalled(t, in, dir+"/out/", "30s", 100*time.Millisecond, syscall.SIGINT, syscall.SIGINT)
	if got.code != 130 && got.code != 75 || took > 5*time.Second {
		t.Errorf("exit %d after %v, want 130 at once\n%s", got.code, took, got.stderr)
	}
}

// TestAClosedOutputKillsNothing: whoever reads the progress goes away, and the run goes on.
func TestAClosedOutputKillsNothing(t *testing.T) {
	dir := t.TempDir()
	in := write(t, dir+"/in.jsonl", bytes.Repeat([]byte(`{"prompt": "a"}`+"\n"), 50))
	cmd := exec.Command(program(t), "run", "--model", filepath.Join(root, twoLayers), "--input", in, "--output", dir+"/out/", "--max-tokens", "4", "--progress", "plain")
	cmd.Dir = dir
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	_, _ = io.CopyN(io.Discard, r, 1)
	r.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("the run ended with %v", err)
	}
	if _, err := os.Stat(dir + "/out/_SUCCESS"); err != nil {
		t.Error(err)
	}
}

// TestAFullDisk: no file may grow beyond a limit, as on a full disk. The run says so with 74, and once there is room the same
// command goes on with what was journalled.
func TestAFullDisk(t *testing.T) {
	const rows = 2500
	dir := t.TempDir()
	in := manyRows(t, filepath.Join(dir, "rows.jsonl"), rows)
	args := []string{"run", "--model", filepath.Join(root, twoLayers), "--input", in, "--output", dir + "/out/", "--max-tokens", "16",
		"--journal-units", "64", "--json", "--progress", "none"}
	shell, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("needs bash for a limit on files")
	}
	cmd := exec.Command(shell, append([]string{"-c", `ulimit -f 200; exec "$@"`, "bash", program(t)}, args...)...) // of 1024 bytes
	cmd.Dir = dir
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	_ = cmd.Run()
	var s journalled
	if err := json.Unmarshal(stdout.Bytes(), &s); err != nil {
		t.Fatalf("exit %d, summary %q: %v\n%s", cmd.ProcessState.ExitCode(), stdout.String(), err, stderr.String())
	}
	if code := cmd.ProcessState.ExitCode(); code != 74 || s.ExitCode != 74 || s.Rows.NotStarted != rows || s.Rows.Total != rows || s.Journal.Units == 0 {
		t.Errorf("exit %d, %+v, message %q", code, s, s.Message)
	}
	got := batchmill(t, nil, args...)
	var again journalled
	if err := json.Unmarshal([]byte(got.stdout), &again); err != nil || got.code != 0 {
		t.Fatalf("exit %d, %v\n%s", got.code, err, got.stderr)
	}
	if again.Rows.OK != rows || again.Journal.Resumed != s.Journal.Units || again.Journal.Units != rows-s.Journal.Units {
		t.Errorf("%d units were journalled before the disk was full: %+v", s.Journal.Units, again)
	}
}
