package faultproxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// plain is a store of objects behind PUT, GET, HEAD and DELETE, which knows If-None-Match.
type plain struct {
	mu      sync.Mutex
	objects map[string]string
	hosts   map[string]bool
	writes  int
}

func (s *plain) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hosts[r.Host] = true
	have, ok := s.objects[r.URL.Path]
	switch {
	case r.Method == http.MethodPut && ok && conditional(r):
		w.WriteHeader(http.StatusPreconditionFailed)
	case r.Method == http.MethodPut:
		s.objects[r.URL.Path] = string(body)
		s.writes++
	case r.Method == http.MethodDelete:
		delete(s.objects, r.URL.Path)
		s.writes++
		w.WriteHeader(http.StatusNoContent)
	case !ok:
		w.WriteHeader(http.StatusNotFound)
	default:
		_, _ = io.WriteString(w, have)
	}
}

func (s *plain) get(path string) (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.objects[path]
	return v, ok
}

func start(t *testing.T, cfg Config) (*Proxy, *plain) {
	t.Helper()
	s := &plain{objects: map[string]string{}, hosts: map[string]bool{}}
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	cfg.Target = srv.URL
	if cfg.Pause == 0 {
		cfg.Pause = 10 * time.Millisecond
	}
	p, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p, s
}

// ask sends one request over a connection of its own; header is "Name: value" or "".
func ask(t *testing.T, method, url, header, body string) (int, string, error) {
	t.Helper()
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if name, value, ok := strings.Cut(header, ": "); ok {
		req.Header.Set(name, value)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(data), err
}

func TestNothingIsChangedWithoutRules(t *testing.T) {
	p, s := start(t, Config{})
	if code, _, err := ask(t, "PUT", p.URL+"/b/k", "If-None-Match: *", "hello"); code != 200 || err != nil {
		t.Fatalf("put: %d %v", code, err)
	}
	if code, _, _ := ask(t, "PUT", p.URL+"/b/k", "If-None-Match: *", "again"); code != 412 {
		t.Errorf("a second conditional put: %d, want the server's own 412", code)
	}
	if code, body, err := ask(t, "GET", p.URL+"/b/k", "", ""); code != 200 || body != "hello" || err != nil {
		t.Errorf("get: %d %q %v", code, body, err)
	}
	if code, _, err := ask(t, "HEAD", p.URL+"/b/k", "", ""); code != 200 || err != nil {
		t.Errorf("head: %d %v", code, err)
	}
	if want := strings.TrimPrefix(p.URL, "http://"); len(s.hosts) != 1 || !s.hosts[want] {
		t.Errorf("the server saw hosts %v, want only %s, which the client signs", s.hosts, want)
	}
	if len(p.Counts()) != 0 || p.Requests() != 4 {
		t.Errorf("counts %v, %d requests", p.Counts(), p.Requests())
	}
}

// TestKinds holds every kind to what it says about the answer and about what landed.
func TestKinds(t *testing.T) {
	const put, get = "PUT", "GET"
	cases := []struct {
		kind   Kind
		method string
		status int    // 0: the connection breaks
		code   string // in the answer's body
		lands  bool
	}{
		{InternalError, put, 500, "InternalError", false},
		{SlowDown, put, 503, "SlowDown", false},
		{Timeout, put, 400, "RequestTimeout", false},
		{Reset, put, 0, "", false},
		{Conflict, put, 409, "ConditionalRequestConflict", false},
		{ErrorAfter, put, 500, "InternalError", true},
		{ResetAfter, put, 0, "", true},
		{TimeoutAfter, put, 0, "", true},
		{Late, put, 0, "", true},
		{Delay, put, 200, "", true},
		{Truncate, get, 0, "", false},
		{InternalError, get, 500, "InternalError", false},
	}
	for _, c := range cases {
		t.Run(fmt.Sprint(c.kind, " ", c.method), func(t *testing.T) {
			p, s := start(t, Config{Rules: []Rule{{Kind: c.kind, Rate: 1}}})
			s.objects["/b/there"] = strings.Repeat("content", 1000)
			path := "/b/new"
			if c.method == get {
				path = "/b/there"
			}
			code, body, err := ask(t, c.method, p.URL+path, "If-None-Match: *", "x")
			if c.status == 0 && err == nil || c.status != 0 && (err != nil || code != c.status) {
				t.Errorf("answer %d %v, want %d", code, err, c.status)
			}
			if !strings.Contains(body, c.code) {
				t.Errorf("body %q does not name %s", body, c.code)
			}
			if c.kind == Reset && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
				t.Errorf("%v is no reset", err)
			}
			if c.kind == Truncate && (code != 200 || len(body) != 3500) {
				t.Errorf("answer %d with %d bytes, want the first 3500", code, len(body))
			}
			if c.kind == Late {
				if _, ok := s.get(path); ok {
					t.Error("a late write landed before its answer")
				}
			}
			p.Settle()
			if _, ok := s.get("/b/new"); ok != c.lands {
				t.Errorf("landed: %v, want %v", ok, c.lands)
			}
			if p.Counts()[c.kind] != 1 {
				t.Errorf("counts %v", p.Counts())
			}
		})
	}
}

func TestRulesKeepToTheirOperations(t *testing.T) {
	p, _ := start(t, Config{Rules: []Rule{
		{Kind: SlowDown, Ops: []Op{Delete}, Rate: 1},
		{Kind: Conflict, Rate: 1},
		{Kind: ErrorAfter, Ops: []Op{Get}, Rate: 1}, // makes no sense, so it does nothing
	}})
	for _, c := range []struct {
		method, header string
		want           int
	}{{"PUT", "", 200}, {"PUT", "If-None-Match: *", 409}, {"GET", "", 200}, {"DELETE", "", 503}} {
		if code, _, err := ask(t, c.method, p.URL+"/b/k", c.header, "x"); code != c.want || err != nil {
			t.Errorf("%s %s: %d %v, want %d", c.method, c.header, code, err, c.want)
		}
	}
	p.Calm()
	if code, _, err := ask(t, "DELETE", p.URL+"/b/k", "", ""); code != 204 || err != nil {
		t.Errorf("after Calm: %d %v", code, err)
	}
}

func TestClassify(t *testing.T) {
	cases := map[string]Op{
		"PUT /b/k": Put, "PUT /b/k?partNumber=1&uploadId=u": Part, "POST /b/k?uploads=": Create, "POST /b/k?uploadId=u": Complete,
		"DELETE /b/k?uploadId=u": Abort, "DELETE /b/k": Delete, "POST /b?delete=": Delete, "GET /b?list-type=2&prefix=x": List, "GET /b/?list-type=2": List,
		"GET /b?uploads=": ListUploads, "GET /b/k/l": Get, "HEAD /b/k": Head, "OPTIONS /b": Other, "PUT /b": Other,
	}
	for line, want := range cases {
		method, url, _ := strings.Cut(line, " ")
		if got := classify(httptest.NewRequest(method, url, nil)); got != want {
			t.Errorf("%s is %q, want %q", line, got, want)
		}
	}
}

// TestSeed: what is hit depends on seed, operation, key and count alone, and about as often as was asked.
func TestSeed(t *testing.T) {
	hits := func(seed uint64) (out []Kind) {
		for key := range 200 {
			r := httptest.NewRequest("PUT", fmt.Sprintf("/b/%d", key), nil)
			for n := range 5 {
				out = append(out, draw(Storm(0.2), seed, Put, r, n))
			}
		}
		return out
	}
	a, b, c := hits(1), hits(1), hits(2)
	if fmt.Sprint(a) != fmt.Sprint(b) {
		t.Error("one seed, two outcomes")
	}
	if fmt.Sprint(a) == fmt.Sprint(c) {
		t.Error("two seeds, one outcome")
	}
	n := 0
	for _, k := range a {
		if k != "" {
			n++
		}
	}
	if n < 200 || n > 400 { // nine kinds at 0.2/6 each: 300 of 1000 expected
		t.Errorf("%d of 1000 requests were hit", n)
	}
}

func TestWatch(t *testing.T) {
	var mu sync.Mutex
	var seen bytes.Buffer
	p, _ := start(t, Config{Rules: []Rule{{Kind: SlowDown, Ops: []Op{Get}, Rate: 1}}, Watch: func(op Op, path string, landed bool) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(&seen, "%s %s %v;", op, path, landed)
	}})
	for _, m := range []string{"PUT", "GET"} {
		if _, _, err := ask(t, m, p.URL+"/b/k", "", "x"); err != nil {
			t.Fatal(err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if want := "put /b/k false;put /b/k true;get /b/k false;"; seen.String() != want {
		t.Errorf("seen %q, want %q", seen.String(), want)
	}
}
