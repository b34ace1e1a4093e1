package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	// headerTimeout bounds the wait for a response, stallTimeout the wait for the next byte of a body. A body as a whole
	// has no limit: models are large.
	headerTimeout = 30 * time.Second
	stallTimeout  = 60 * time.Second
	// maxRedirects is what browsers and net/http follow.
	maxRedirects = 10
)

// httpClient makes a client that bounds waits and hands credentials to no other host.
func httpClient(base *http.Client) *http.Client {
	client := &http.Client{}
	if base != nil {
		*client = *base
	} else {
		client.Transport = &http.Transport{
			Proxy:                 http.ProxyFromEnvironment,
			DialContext:           (&net.Dialer{Timeout: headerTimeout, KeepAlive: 30 * time.Second}).DialContext,
			ForceAttemptHTTP2:     true,
			TLSHandshakeTimeout:   headerTimeout,
			ResponseHeaderTimeout: headerTimeout,
			IdleConnTimeout:       90 * time.Second,
		}
	}
	// net/http keeps Authorization on a redirect to a subdomain; stores of signed links refuse it, and have no right to it.
	client.CheckRedirect = func(req *http.Request, via []*http.Request) error {
		if len(via) >= maxRedirects {
			return fmt.Errorf("stopped after %d redirects", maxRedirects)
		}
		if req.URL.Host != via[0].URL.Host || req.URL.Scheme != via[0].URL.Scheme {
			req.Header.Del("Authorization")
		}
		return nil
	}
	return client
}

// statusError is a response that is no success.
type statusError struct {
	code int
	text string
}

func (e *statusError) Error() string { return e.text }

// temporary tells whether a later try of the same request may succeed.
func (e *statusError) temporary() bool {
	switch e.code {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return e.code >= 500
}

// failedResponse reads the reason of a response that is no success and closes it.
func failedResponse(resp *http.Response) error {
	const maxReason = 300
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxReason))
	resp.Body.Close()
	e := &statusError{code: resp.StatusCode, text: resp.Status}
	if reason := resp.Header.Get("X-Error-Message"); reason != "" {
		e.text += ": " + reason
	} else if strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") && len(text) > 0 {
		e.text += ": " + strings.Join(strings.Fields(string(text)), " ")
	}
	return e
}

// openRange starts reading a URL at off. A server that does not resume starts at 0.
func openRange(parent context.Context, client *http.Client, req func(context.Context) (*http.Request, error), off int64) (io.ReadCloser, int64, error) {
	ctx, cancel := context.WithCancel(parent)
	fail := func(err error) (io.ReadCloser, int64, error) {
		cancel()
		return nil, 0, err
	}
	r, err := req(ctx)
	if err != nil {
		return fail(permanentError{err})
	}
	r.Header.Set("Accept-Encoding", "identity") // else sizes and offsets are those of a compressed form
	if off > 0 {
		r.Header.Set("Range", "bytes="+strconv.FormatInt(off, 10)+"-")
	}
	resp, err := client.Do(r)
	if err != nil {
		return fail(err)
	}
	body := newStallReader(resp.Body, cancel, stallTimeout)
	switch resp.StatusCode {
	case http.StatusOK:
		return body, 0, nil
	case http.StatusPartialContent:
		var from int64
		if _, err := fmt.Sscanf(resp.Header.Get("Content-Range"), "bytes %d-", &from); err != nil {
			body.Close()
			return nil, 0, permanentError{fmt.Errorf("the server sent a range without saying which: %q", resp.Header.Get("Content-Range"))}
		}
		return body, from, nil
	case http.StatusRequestedRangeNotSatisfiable: // the partial file does not fit what is there now
		body.Close()
		if off > 0 {
			return openRange(parent, client, req, 0)
		}
		return nil, 0, permanentError{errors.New(resp.Status)}
	}
	err = failedResponse(resp)
	body.Close()
	var se *statusError
	if errors.As(err, &se) && !se.temporary() {
		err = permanentError{err}
	}
	return nil, 0, err
}

// stallReader cancels its request when no byte comes for too long.
type stallReader struct {
	io.ReadCloser
	cancel context.CancelFunc
	timer  *time.Timer
	limit  time.Duration
}

func newStallReader(body io.ReadCloser, cancel context.CancelFunc, limit time.Duration) *stallReader {
	return &stallReader{ReadCloser: body, cancel: cancel, timer: time.AfterFunc(limit, cancel), limit: limit}
}

func (s *stallReader) Read(p []byte) (int, error) {
	s.timer.Reset(s.limit)
	n, err := s.ReadCloser.Read(p)
	if errors.Is(err, context.Canceled) {
		err = fmt.Errorf("no data for %v: %w", s.limit, io.ErrUnexpectedEOF) // or the caller's own cancel, which it sees itself
	}
	return n, err
}

func (s *stallReader) Close() error {
	s.timer.Stop()
	s.cancel()
	return s.ReadCloser.Close()
}
