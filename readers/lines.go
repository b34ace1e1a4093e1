package readers

import (
	"bytes"
	"io"
)

var utf8BOM = []byte("\xef\xbb\xbf")

const (
	lineBuffer  = 64 << 10 // grows by doubling up to the line limit
	keepBuffer  = 1 << 20  // a buffer that one huge line made larger than this is given back
	maxRawStart = 1 << 10  // of a line over the limit this much is kept, to recognise it by
)

// lineScanner splits a stream at LF and nothing else. A line over the limit is skipped without being held.
type lineScanner struct {
	r      io.Reader
	max    int
	buf    []byte
	lo, hi int   // unread bytes
	off    int64 // stream offset of buf[lo]
	line   int64 // lines read so far
	eof    bool
	err    error // of the stream; comes after the lines before it
}

// line is one line without its end. Its text is valid until the next call.
type line struct {
	text   []byte
	offset int64 // where it starts
	next   int64 // where the next one starts
	number int64 // 1-based, counted from the scanner's start
	long   bool  // over the limit: text is only its start
}

func newLineScanner(r io.Reader, limit int64) *lineScanner {
	return &lineScanner{r: r, max: int(min(limit, 1<<40)), buf: make([]byte, lineBuffer)}
}

// skipBOM drops a byte order mark; call it at a file's start only.
func (s *lineScanner) skipBOM() {
	for s.hi-s.lo < len(utf8BOM) && s.fill() {
	}
	if bytes.HasPrefix(s.buf[s.lo:s.hi], utf8BOM) {
		s.lo += len(utf8BOM)
		s.off += int64(len(utf8BOM))
	}
}

// fill reads more; false at the end of the stream.
func (s *lineScanner) fill() bool {
	if s.eof {
		return false
	}
	if s.lo > 0 && (s.hi == len(s.buf) || s.lo == s.hi) {
		copy(s.buf, s.buf[s.lo:s.hi])
		s.hi -= s.lo
		s.lo = 0
	}
	if s.hi == len(s.buf) {
		grown := make([]byte, min(2*len(s.buf), s.max+lineBuffer))
		copy(grown, s.buf[:s.hi])
		s.buf = grown
	}
	n, err := s.r.Read(s.buf[s.hi:])
	s.hi += n
	if err != nil {
		s.eof = true
		if err != io.EOF {
			s.err = err
		}
	}
	return true
}

// next returns the next line; io.EOF at the end, or the stream's error. The rest of a stream that broke inside a line is
// no line.
func (s *lineScanner) next() (line, error) {
	scanned := 0
	for {
		if i := bytes.IndexByte(s.buf[s.lo+scanned:s.hi], '\n'); i >= 0 {
			return s.take(scanned+i, 1), nil
		}
		scanned = s.hi - s.lo
		if scanned > s.max+1 { // +1: a CR that belongs to the end
			return s.skip()
		}
		if !s.fill() {
			if s.err != nil {
				return line{}, s.err
			}
			if scanned == 0 {
				return line{}, io.EOF
			}
			return s.take(scanned, 0), nil
		}
	}
}

// take cuts a line of n bytes off the buffer.
func (s *lineScanner) take(n, end int) line {
	s.line++
	l := line{text: s.buf[s.lo : s.lo+n], offset: s.off, next: s.off + int64(n+end), number: s.line}
	s.lo += n + end
	s.off = l.next
	if end == 1 {
		l.text = bytes.TrimSuffix(l.text, []byte("\r"))
	}
	if len(l.text) > s.max {
		l.text, l.long = l.text[:min(len(l.text), maxRawStart)], true
	}
	if s.lo == s.hi && len(s.buf) > keepBuffer { // l.text keeps the old one alive until it is done
		s.buf, s.lo, s.hi = make([]byte, lineBuffer), 0, 0
	}
	return l
}

// skip drops a line that is over the limit, up to its end.
func (s *lineScanner) skip() (line, error) {
	s.line++
	l := line{text: bytes.Clone(s.buf[s.lo : s.lo+min(s.hi-s.lo, maxRawStart)]), offset: s.off, number: s.line, long: true}
	for {
		if i := bytes.IndexByte(s.buf[s.lo:s.hi], '\n'); i >= 0 {
			s.off += int64(i + 1)
			s.lo += i + 1
			break
		}
		s.off += int64(s.hi - s.lo)
		s.lo, s.hi = 0, 0
		if len(s.buf) > keepBuffer {
			s.buf = make([]byte, lineBuffer)
		}
		if !s.fill() {
			if s.err != nil {
				return line{}, s.err
			}
			break
		}
	}
	l.next = s.off
	return l, nil
}

// isBlank tells whether a line holds nothing but white space; such lines are no records.
func isBlank(text []byte) bool {
	for _, c := range text {
		if c != ' ' && c != '\t' && c != '\r' {
			return false
		}
	}
	return true
}
