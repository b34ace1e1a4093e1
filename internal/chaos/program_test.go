package chaos

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/batchmill/batchmill/internal/testbin"
)

// tinyModel has three small layers; a job over some tens of rows takes a fraction of a second.
const tinyModel = "infer/model/testdata/llama"

// hangs is when a run of the program counts as hung: hundreds of times what it takes, and longer than all retries that the
// proxy's faults can cause.
const hangs = 2 * time.Minute

var root = func() string {
	dir, err := filepath.Abs("../..")
	if err != nil {
		panic(err)
	}
	return dir
}()

var binary struct {
	sync.Once
	dir, path, help string
	err             error
}

// knows tells whether `batchmill run` has a flag, for what a build may not have.
func knows(flag string) bool { return strings.Contains(binary.help, "--"+flag+" ") }

func TestMain(m *testing.M) {
	code := m.Run()
	if binary.dir != "" {
		_ = os.RemoveAll(binary.dir)
	}
	os.Exit(code)
}

// program builds the program once and returns its path.
func program(t *testing.T) string {
	t.Helper()
	binary.Do(func() {
		if binary.dir, binary.err = os.MkdirTemp("", "batchmill-chaos"); binary.err != nil {
			return
		}
		binary.path = filepath.Join(binary.dir, "batchmill")
		// The tag makes it listen to the steps of the commit protocol; see cmd/batchmill/killpoint_chaos.go.
		if binary.err = testbin.Build(root, binary.path, "chaos"); binary.err != nil {
			return
		}
		help, err := exec.Command(binary.path, "run", "--help").Output()
		if err != nil {
			binary.err = fmt.Errorf("ask the program for its flags: %w", err)
		}
		binary.help = string(help)
	})
	if binary.err != nil {
		t.Fatal(binary.err)
	}
	return binary.path
}

// process is one life of the program.
type process struct {
	cmd            *exec.Cmd
	stdout, stderr bytes.Buffer
	ended          chan struct{}
	began          time.Time
}

// launch starts the program with an environment that holds nothing of the user's configuration, plus env.
func launch(bin, tmp string, env []string, args ...string) (*process, error) {
	p := &process{cmd: exec.Command(bin, args...), ended: make(chan struct{})}
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "BATCHMILL_") && !strings.HasPrefix(kv, "AWS_") && !strings.HasPrefix(kv, "SHARD_") {
			p.cmd.Env = append(p.cmd.Env, kv)
		}
	}
	p.cmd.Env = append(p.cmd.Env, "AWS_EC2_METADATA_DISABLED=true", "TMPDIR="+tmp)
	p.cmd.Env = append(p.cmd.Env, env...)
	p.cmd.Dir = tmp
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	p.began = time.Now()
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the program: %w", err)
	}
	go func() {
		_ = p.cmd.Wait() // ProcessState says how it ended
		close(p.ended)
	}()
	return p, nil
}

// kill ends the process at once. It may have ended already.
func (p *process) kill() { _ = p.cmd.Process.Kill() }

// wait returns the exit code, or -1 if the process was killed. A process that hangs is made to print its stacks.
func (p *process) wait(ctx context.Context) (int, error) {
	hung := time.NewTimer(hangs)
	defer hung.Stop()
	select {
	case <-p.ended:
	case <-ctx.Done():
		p.kill()
		<-p.ended
		return -1, ctx.Err()
	case <-hung.C:
		_ = p.cmd.Process.Signal(syscall.SIGQUIT)
		select {
		case <-p.ended:
		case <-time.After(10 * time.Second):
			p.kill()
			<-p.ended
		}
		return -1, fmt.Errorf("the program hung for %v:\n%s", hangs, p.stderr.String())
	}
	return p.cmd.ProcessState.ExitCode(), nil
}
