package readers

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

const (
	readAhead = 256 << 10 // bytes asked of the store's stream at a time
	// maxZstdWindow is what the zstd tool accepts without a flag (--long=27).
	maxZstdWindow = 128 << 20
)

// errTruncated marks an end of file inside a compressed member.
var errTruncated = errors.New("it ends inside a compressed member")

// damage is an error of the compressed data itself, rather than of the store that it comes from.
type damage struct{ error }

func (d damage) Unwrap() error { return d.error }

func isDamage(err error) bool {
	var d damage
	return errors.As(err, &d) || errors.Is(err, errTruncated)
}

// fileError makes a *FileError of damage and passes the store's errors on.
func fileError(obj Object, where string, err error) error {
	if err == nil || !isDamage(err) {
		return err
	}
	e := &FileError{URL: obj.Name(), Where: where, Err: err}
	if errors.Is(err, errTruncated) {
		e.Truncated, e.Hint = true, "copy it again; the rows before the cut are good"
	}
	if errors.Is(err, zstd.ErrWindowSizeExceeded) {
		e.Hint = "it needs a window above 128 MiB; compress it again without --ultra or --long"
	}
	return e
}

// source remembers the underlying stream's own error, so that it is not taken for damage.
type source struct {
	r   io.ReadCloser
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

// decompress undoes a compression, over all members or frames. It owns r.
func decompress(r io.ReadCloser, compression string) (io.ReadCloser, error) {
	src := &source{r: r}
	switch compression {
	case gzipped:
		return &gzipReader{src: src, buf: bufio.NewReaderSize(src, readAhead)}, nil
	case zstded:
		z, err := zstd.NewReader(src, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxZstdWindow))
		if err != nil {
			return nil, errors.Join(err, r.Close())
		}
		return &zstdReader{src: src, z: z}, nil
	}
	return r, nil
}

// gzipReader reads concatenated members one by one. Zero bytes after the last are padding, as gzip itself sees it.
type gzipReader struct {
	src  *source
	buf  *bufio.Reader
	z    *gzip.Reader
	open bool // inside a member
	done bool
}

func (g *gzipReader) Read(p []byte) (int, error) {
	for {
		if g.done {
			return 0, io.EOF
		}
		if !g.open {
			if err := g.next(); err != nil {
				return 0, err
			}
			continue
		}
		n, err := g.z.Read(p)
		if err == io.EOF {
			g.open, err = false, nil
		}
		if n > 0 || len(p) == 0 || err != nil {
			return n, g.judge(err)
		}
	}
}

// next opens the next member.
func (g *gzipReader) next() error {
	if g.z != nil { // between members
		for {
			b, err := g.buf.ReadByte()
			if err == io.EOF {
				g.done = true
				return nil
			}
			if err != nil {
				return err
			}
			if b != 0 {
				if err := g.buf.UnreadByte(); err != nil {
					return err
				}
				break
			}
		}
	}
	var err error
	if g.z == nil {
		g.z, err = gzip.NewReader(g.buf)
	} else {
		err = g.z.Reset(g.buf)
	}
	if err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return g.judge(err)
	}
	g.z.Multistream(false)
	g.open = true
	return nil
}

func (g *gzipReader) judge(err error) error { return judge(g.src, err, "gzip") }

func (g *gzipReader) Close() error { return g.src.r.Close() }

func judge(src *source, err error, what string) error {
	switch {
	case err == nil:
		return nil
	case src.err != nil:
		return src.err
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errTruncated
	}
	return damage{fmt.Errorf("damaged %s data: %w", what, err)}
}

type zstdReader struct {
	src *source
	z   *zstd.Decoder
}

func (z *zstdReader) Read(p []byte) (int, error) {
	n, err := z.z.Read(p)
	if err == io.EOF {
		return n, err
	}
	return n, judge(z.src, err, "zstd")
}

func (z *zstdReader) Close() error {
	z.z.Close()
	return z.src.r.Close()
}
