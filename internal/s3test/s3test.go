// Package s3test starts a real S3 server for tests: versitygw over a temporary folder, on a free port of the loopback
// address, with its own credentials. It is the server behind the claims about s3:// in this project's tests; a mock would
// agree with whatever we believe.
//
// The server's program is found by the environment variable BATCHMILL_TEST_VERSITYGW (`make test` builds and sets it).
// Without it a test that calls Start is skipped with the reason.
//
//	srv := s3test.Start(t)
//	srv.Setenv(t)                      // AWS_* for code in this process; srv.Env() for a child
//	url := srv.URL("in/rows.jsonl")    // s3://bucket/in/rows.jsonl
package s3test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// Program is the environment variable that holds the path of the versitygw program.
const Program = "BATCHMILL_TEST_VERSITYGW"

const (
	accessKey = "batchmill-test"
	secretKey = "batchmill-test-secret"
	region    = "us-east-1"
	bucket    = "batchmill"

	// startAttempts: the free port found may be taken by another process before the server binds it.
	startAttempts = 5
	// startTimeout is ample: the server listens within a few hundred milliseconds even on a loaded machine.
	startTimeout = 20 * time.Second
)

// Server is a running S3 server with one empty bucket.
type Server struct {
	Endpoint  string // http://127.0.0.1:PORT
	Bucket    string
	Region    string
	AccessKey string
	SecretKey string
	// Root is the folder behind the server: an object's bytes lie under Root/Bucket/KEY. Tests may look, and should write
	// through the server.
	Root string
}

// URL returns the s3:// URL of a key, or of a prefix if it ends with a slash. The endpoint comes from the environment.
func (s *Server) URL(key string) string {
	return "s3://" + s.Bucket + "/" + strings.TrimPrefix(key, "/")
}

// Env returns the variables by which the AWS SDK, pyarrow and DuckDB's clients find the server.
func (s *Server) Env() []string {
	return []string{
		"AWS_ENDPOINT_URL=" + s.Endpoint,
		"AWS_ENDPOINT_URL_S3=" + s.Endpoint,
		"AWS_ACCESS_KEY_ID=" + s.AccessKey,
		"AWS_SECRET_ACCESS_KEY=" + s.SecretKey,
		"AWS_SESSION_TOKEN=",
		"AWS_PROFILE=",
		"AWS_REGION=" + s.Region,
		"AWS_DEFAULT_REGION=" + s.Region,
		// The SDK would look for a cloud's metadata service, wait for it, and send it nothing good.
		"AWS_EC2_METADATA_DISABLED=true",
		// A machine's own configuration must not reach a test.
		"AWS_CONFIG_FILE=" + os.DevNull,
		"AWS_SHARED_CREDENTIALS_FILE=" + os.DevNull,
	}
}

// Setenv sets Env for the rest of the test. A parallel test cannot use it, as testing says.
func (s *Server) Setenv(t testing.TB) {
	t.Helper()
	for _, kv := range s.Env() {
		name, value, _ := strings.Cut(kv, "=")
		t.Setenv(name, value)
	}
}

// Start runs a server until the end of the test and returns it when it answers. The test is skipped when the program is
// not named by the environment, and fails when it is named but does not start.
func Start(t testing.TB) *Server {
	t.Helper()
	program := os.Getenv(Program)
	if program == "" {
		t.Skipf("needs a real S3 server: set %s to a versitygw program (make test does)", Program)
	}
	var failures []error
	for range startAttempts {
		s, err := start(t, program)
		if err == nil {
			return s
		}
		failures = append(failures, err)
	}
	t.Fatalf("start %s: %v", program, errors.Join(failures...))
	return nil
}

func start(t testing.TB, program string) (*Server, error) {
	root := t.TempDir()
	data := filepath.Join(root, "data")
	meta := filepath.Join(root, "meta")
	for _, dir := range []string{filepath.Join(data, bucket), meta} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	addr, err := freeAddress()
	if err != nil {
		return nil, err
	}
	var log safeBuffer
	// --sidecar keeps object metadata in files: extended attributes do not work on every temporary folder.
	cmd := exec.Command(program, "--port", addr, "--access", accessKey, "--secret", secretKey, "--region", region, "--quiet",
		"posix", "--sidecar", meta, data)
	cmd.Env = append(os.Environ(), "HOME="+root)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	stop := func() {
		_ = cmd.Process.Kill()
		<-done
	}
	s := &Server{Endpoint: "http://" + addr, Bucket: bucket, Region: region, AccessKey: accessKey, SecretKey: secretKey, Root: data}
	if err := s.await(done); err != nil {
		stop()
		return nil, fmt.Errorf("%w\n%s", err, log.String())
	}
	t.Cleanup(func() {
		stop()
		if t.Failed() && log.String() != "" {
			t.Logf("versitygw said:\n%s", log.String())
		}
	})
	return s, nil
}

// freeAddress returns a loopback address with a port that was free a moment ago.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	addr := l.Addr().String()
	return addr, l.Close()
}

// await returns when the server answers HTTP, with an error when its process ends or the time is over. done is refilled, so
// that the caller can still wait on it.
func (s *Server) await(done chan error) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	client := &http.Client{Timeout: time.Second}
	for {
		select {
		case err := <-done:
			done <- err
			return fmt.Errorf("server ended at once: %v", err)
		case <-ctx.Done():
			return fmt.Errorf("server does not answer at %s after %v", s.Endpoint, startTimeout)
		case <-time.After(20 * time.Millisecond):
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Endpoint+"/", nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			continue
		}
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
		_ = resp.Body.Close()
		// An unsigned request is refused in S3's XML by the server we started; another program on the port would not do that.
		if resp.StatusCode == http.StatusForbidden {
			return nil
		}
	}
}

// safeBuffer takes a process's output from two goroutines.
type safeBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.TrimSpace(b.buf.String())
}
