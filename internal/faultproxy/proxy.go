package faultproxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"
)

// Config says what a proxy does; Target is required.
type Config struct {
	Target string // http://host:port of the server
	Seed   uint64
	Rules  []Rule
	// Pause is how long delays, silences and late writes last; 0 is 50 ms.
	Pause time.Duration
	// Watch is told of every request when it arrives (landed false), and of every one that the server has answered. It is
	// called before the answer goes out, and may take its time. It may be nil.
	Watch func(op Op, path string, landed bool)
}

const (
	defaultPause = 50 * time.Millisecond
	// maxBody bounds what is held of a request or an answer: above a part of an upload, or an object of a test.
	maxBody = 256 << 20
)

// Proxy is a running proxy.
type Proxy struct {
	URL string // http://127.0.0.1:PORT

	cfg    Config
	target *url.URL
	server *http.Server
	client *http.Transport
	served chan error
	writes sync.WaitGroup // under way to the server

	mu       sync.Mutex
	rules    []Rule
	asked    map[string]int // by operation and path
	counts   map[Kind]int
	requests int
}

// Start listens on a free port of the loopback address.
func Start(cfg Config) (*Proxy, error) {
	target, err := url.Parse(cfg.Target)
	if err != nil {
		return nil, fmt.Errorf("parse the target of the proxy: %w", err)
	}
	if cfg.Pause == 0 {
		cfg.Pause = defaultPause
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the proxy: %w", err)
	}
	p := &Proxy{
		URL: "http://" + l.Addr().String(), cfg: cfg, target: target, rules: cfg.Rules, served: make(chan error, 1),
		// Nothing may be added to a signed request, nor unpacked from an answer.
		client: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 16},
		asked:  map[string]int{}, counts: map[Kind]int{},
	}
	p.server = &http.Server{Handler: p}
	go func() { p.served <- p.server.Serve(l) }()
	return p, nil
}

// Close stops the proxy when all writes have reached the server.
func (p *Proxy) Close() error {
	p.Settle()
	err := p.server.Close()
	if serr := <-p.served; !errors.Is(serr, http.ErrServerClosed) {
		err = errors.Join(err, serr)
	}
	p.client.CloseIdleConnections()
	return err
}

// Settle waits until no write is under way to the server, late ones included. Clients must be silent.
func (p *Proxy) Settle() { p.writes.Wait() }

// Calm takes all rules away: from now on everything goes through.
func (p *Proxy) Calm() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = nil
}

// Counts tells how often each kind was done.
func (p *Proxy) Counts() map[Kind]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.counts)
}

// Requests is the number of requests so far.
func (p *Proxy) Requests() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests
}

func (p *Proxy) choose(op Op, r *http.Request) Kind {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests++
	id := string(op) + " " + r.URL.Path
	n := p.asked[id]
	p.asked[id]++
	k := draw(p.rules, p.cfg.Seed, op, r, n)
	if k != "" {
		p.counts[k]++
	}
	return k
}

func (p *Proxy) watch(op Op, path string, landed bool) {
	if p.cfg.Watch != nil {
		p.cfg.Watch(op, path, landed)
	}
}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	op := classify(r)
	p.watch(op, r.URL.Path, false)
	kind := p.choose(op, r)
	if kind == Reset { // not a byte of the body is read
		reset(w)
		return
	}
	// A write goes to the server once all of its body is here, and then whatever becomes of the client, as with a server
	// that has the request.
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	switch kind {
	case InternalError:
		refuse(w, r, http.StatusInternalServerError, "InternalError")
		return
	case SlowDown:
		refuse(w, r, http.StatusServiceUnavailable, "SlowDown")
		return
	case Timeout:
		refuse(w, r, http.StatusBadRequest, "RequestTimeout")
		return
	case Conflict:
		refuse(w, r, http.StatusConflict, "ConditionalRequestConflict")
		return
	case Delay:
		time.Sleep(p.cfg.Pause)
	case Late:
		p.writes.Add(1)
		go func() {
			defer p.writes.Done()
			time.Sleep(p.cfg.Pause)
			if _, err := p.forward(r, op, body); err == nil {
				p.watch(op, r.URL.Path, true)
			}
		}()
		reset(w)
		return
	}
	p.writes.Add(1)
	ans, err := p.forward(r, op, body)
	p.writes.Done()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	p.watch(op, r.URL.Path, true)
	switch kind {
	case ErrorAfter:
		refuse(w, r, http.StatusInternalServerError, "InternalError")
	case ResetAfter:
		reset(w)
	case TimeoutAfter:
		time.Sleep(p.cfg.Pause)
		panic(http.ErrAbortHandler)
	case Truncate:
		ans.send(w, len(ans.body)/2)
		panic(http.ErrAbortHandler)
	default:
		ans.send(w, len(ans.body))
	}
}

// answer is what the server said.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// forward sends the request on as it came. A write is not abandoned with the client.
func (p *Proxy) forward(r *http.Request, op Op, body []byte) (*answer, error) {
	ctx := r.Context()
	if op.writes() {
		ctx = context.WithoutCancel(ctx)
	}
	to := *r.URL
	to.Scheme, to.Host = p.target.Scheme, p.target.Host
	out, err := http.NewRequestWithContext(ctx, r.Method, to.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	out.Header = r.Header.Clone()
	out.Header.Del("Connection")
	out.Header.Del("Expect") // answered already
	if _, ok := out.Header["User-Agent"]; !ok {
		out.Header["User-Agent"] = nil // or the transport would add its own
	}
	out.Host = r.Host // what the client signed
	resp, err := p.client.RoundTrip(out)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	return &answer{resp.StatusCode, resp.Header, data}, err
}

// send passes on the answer with the first n bytes of its body.
func (a *answer) send(w http.ResponseWriter, n int) {
	maps.Copy(w.Header(), a.header)
	w.Header().Del("Connection")
	if a.header.Get("Content-Length") == "" && a.status != http.StatusNoContent && a.status != http.StatusNotModified {
		w.Header().Set("Content-Length", strconv.Itoa(len(a.body)))
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body[:n]) // a client that is gone is its own affair
	_ = http.NewResponseController(w).Flush()
}

// refuse answers in S3's words.
func refuse(w http.ResponseWriter, r *http.Request, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>%s</Code><Message>injected</Message></Error>`, code)
	}
}

// reset closes the client's connection with a TCP reset.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
