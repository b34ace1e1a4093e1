package objstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// faulty is an S3 server of one object that answers as its script says and, past the script, correctly.
type faulty struct {
	mu     sync.Mutex
	script []func(f *faulty, w http.ResponseWriter, r *http.Request)
	data   string
	exists bool
	puts   int
	gets   []string // Range headers
}

func (f *faulty) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.Method == http.MethodGet {
		f.gets = append(f.gets, r.Header.Get("Range"))
	}
	if len(f.script) > 0 && r.Method != http.MethodHead {
		step := f.script[0]
		f.script = f.script[1:]
		if step != nil {
			step(f, w, r)
			return
		}
	}
	f.answer(w, r)
}

func (f *faulty) etag() string { return fmt.Sprintf(`"%x"`, f.data) }

func (f *faulty) answer(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodPut:
		f.puts++
		body, _ := io.ReadAll(r.Body)
		if f.exists && r.Header.Get("If-None-Match") == "*" {
			fail(w, 412, "PreconditionFailed")
			return
		}
		f.data, f.exists = string(body), true
		w.Header().Set("ETag", f.etag())
	case http.MethodHead, http.MethodGet:
		if !f.exists {
			fail(w, 404, "NoSuchKey")
			return
		}
		w.Header().Set("ETag", f.etag())
		w.Header().Set("Last-Modified", time.Unix(1e9, 0).UTC().Format(http.TimeFormat))
		if m := r.Header.Get("If-Match"); m != "" && m != f.etag() {
			fail(w, 412, "PreconditionFailed")
			return
		}
		body := f.data
		if from, to, ok := parseRange(r.Header.Get("Range")); ok {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to, len(body)))
			body = body[from : to+1]
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, body)
		}
	}
}

func parseRange(h string) (from, to int, ok bool) {
	n, err := fmt.Sscanf(h, "bytes=%d-%d", &from, &to)
	return from, to, err == nil && n == 2
}

func fail(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	fmt.Fprintf(w, `<?xml version="1.0"?><Error><Code>%s</Code><Message>scripted</Message></Error>`, code)
}

func status(code int, name string) func(*faulty, http.ResponseWriter, *http.Request) {
	return func(_ *faulty, w http.ResponseWriter, _ *http.Request) { fail(w, code, name) }
}

// lost does the work and then loses the answer.
func lost(f *faulty, w http.ResponseWriter, r *http.Request) {
	f.answer(httptest.NewRecorder(), r)
	panic(http.ErrAbortHandler)
}

// cut sends half of the body.
func cut(f *faulty, w http.ResponseWriter, r *http.Request) {
	rec := httptest.NewRecorder()
	f.answer(rec, r)
	for k, v := range rec.Header() {
		w.Header()[k] = v
	}
	w.WriteHeader(206)
	_, _ = w.Write(rec.Body.Bytes()[:rec.Body.Len()/2])
	w.(http.Flusher).Flush()
	panic(http.ErrAbortHandler)
}

// stall sends the first byte of [1, 8] and then nothing.
func stall(f *faulty, w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Length", "8")
	w.WriteHeader(206)
	_, _ = io.WriteString(w, f.data[1:2])
	w.(http.Flusher).Flush()
	f.mu.Unlock()
	<-r.Context().Done()
	f.mu.Lock()
}

func faultyStore(t *testing.T, f *faulty) (*Store, string) {
	t.Helper()
	for k, v := range map[string]string{"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_EC2_METADATA_DISABLED": "true"} {
		t.Setenv(k, v)
	}
	srv := httptest.NewUnstartedServer(f)
	srv.Start()
	t.Cleanup(srv.Close)
	s := New(Options{RetryFor: 3 * time.Second, StallTimeout: 200 * time.Millisecond})
	t.Cleanup(func() { _ = s.Close() })
	return s, "s3://bkt/key?region=x&endpoint=" + srv.URL
}

type script = []func(*faulty, http.ResponseWriter, *http.Request)

func TestPutOutcomes(t *testing.T) {
	for _, c := range []struct {
		name   string
		f      *faulty
		want   error // nil: success
		data   string
		absent bool
		puts   int
	}{
		{name: "one put per commit", f: &faulty{}, data: "mine", absent: true, puts: 1},
		{name: "exists", f: &faulty{exists: true, data: "theirs"}, want: ErrExists, data: "theirs", absent: true, puts: 1},
		{name: "409, then free", f: &faulty{script: script{status(409, "ConditionalRequestConflict")}}, data: "mine", absent: true, puts: 1},
		{name: "409, then theirs", f: &faulty{exists: true, data: "theirs", script: script{status(409, "ConditionalRequestConflict")}}, want: ErrExists, data: "theirs", absent: true, puts: 1},
		{name: "503", f: &faulty{script: script{status(503, "SlowDown")}}, data: "mine", absent: true, puts: 1},
		{name: "the answer is lost", f: &faulty{script: script{lost}}, data: "mine", absent: true, puts: 2},
		{name: "403", f: &faulty{script: script{status(403, "AccessDenied")}}, want: ErrPermission, absent: true},
		{name: "no bucket", f: &faulty{script: script{status(404, "NoSuchBucket")}}, want: ErrNotExist, absent: true},
		{name: "replace", f: &faulty{exists: true, data: "theirs"}, data: "mine", puts: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := c.f
			s, url := faultyStore(t, f)
			err := s.Put(context.Background(), url, []byte("mine"), CreateOptions{IfAbsent: c.absent})
			if c.want == nil && err != nil || c.want != nil && !errors.Is(err, c.want) {
				t.Fatalf("put = %v, want %v", err, c.want)
			}
			if f.data != c.data || f.puts != c.puts {
				t.Fatalf("the store holds %q after %d puts, want %q after %d", f.data, f.puts, c.data, c.puts)
			}
		})
	}
}

// TestCommitUnknown holds that a Writer does not hide an unknown outcome.
func TestCommitUnknown(t *testing.T) {
	for _, step := range (script{lost, status(409, "ConditionalRequestConflict"), status(500, "InternalError")}) {
		s, url := faultyStore(t, &faulty{script: script{step, step, step, step}})
		w, err := s.Create(context.Background(), url, CreateOptions{IfAbsent: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte("mine")); err != nil {
			t.Fatal(err)
		}
		if err := w.Commit(); !errors.Is(err, ErrUnknown) {
			t.Errorf("commit = %v, want ErrUnknown", err)
		}
	}
}

func TestReadFaults(t *testing.T) {
	for _, c := range []struct {
		name   string
		script script
		want   error
	}{
		{name: "two 503s", script: script{status(503, "SlowDown"), status(500, "InternalError")}},
		{name: "cut twice", script: script{cut, cut}},
		{name: "stalled", script: script{stall}},
		{name: "no answer", script: script{lost}},
		{name: "denied", script: script{status(403, "AccessDenied")}, want: ErrPermission},
		{name: "changed", script: script{cut, func(f *faulty, w http.ResponseWriter, r *http.Request) { f.data = "9876543210"; f.answer(w, r) }}, want: ErrChanged},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &faulty{exists: true, data: "0123456789", script: c.script}
			s, url := faultyStore(t, f)
			obj, err := s.Open(context.Background(), Info{URL: url})
			if err != nil {
				t.Fatal(err)
			}
			p := make([]byte, 8)
			n, err := obj.ReadAt(p, 1)
			if c.want != nil {
				if !errors.Is(err, c.want) || !strings.Contains(err.Error(), "s3://bkt/key") {
					t.Fatalf("read = %v, want %v", err, c.want)
				}
				if c.want == ErrPermission && !strings.Contains(err.Error(), "s3:GetObject on bucket bkt") {
					t.Fatalf("%v does not name the right that is missing", err)
				}
				return
			}
			if err != nil || string(p[:n]) != "12345678" {
				t.Fatalf("read = %q, %v (%v)", p[:n], err, f.gets)
			}
			if c.name == "cut twice" && fmt.Sprint(f.gets) != "[bytes=1-8 bytes=5-8 bytes=7-8]" {
				t.Errorf("the read was taken up at %v", f.gets)
			}
		})
	}
}

// TestRetryEnds holds the total deadline: a store that is down does not hang a job.
func TestRetryEnds(t *testing.T) {
	f := &faulty{exists: true, data: "x"}
	for range 1000 {
		f.script = append(f.script, status(503, "SlowDown"))
	}
	s, url := faultyStore(t, f)
	s.o.RetryFor = 300 * time.Millisecond
	obj, err := s.Open(context.Background(), Info{URL: url, Size: 1, ETag: `"78"`})
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if _, err := obj.ReadAt(make([]byte, 1), 0); !errors.Is(err, ErrTemporary) {
		t.Fatal(err)
	}
	if d := time.Since(start); d > 2*time.Second {
		t.Fatalf("gave up after %v", d)
	}
}
