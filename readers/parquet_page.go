package readers

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go/format"
	"github.com/pierrec/lz4/v4"
)

// maxPageBytes bounds a page, compressed and not. Writers aim at 1 MiB; only a single huge value makes one larger, and
// such a value is no prompt.
const maxPageBytes = 256 << 20

// checkPage checks a header's lengths against the chunk and the limits.
func checkPage(h *pageHeader, left int64) error {
	switch {
	case h.compressed < 0 || h.compressed > left:
		return fmt.Errorf("a page of %d bytes where the column chunk has %d left: %w", h.compressed, left, io.ErrUnexpectedEOF)
	case h.uncompressed < 0 || h.uncompressed > maxPageBytes || h.compressed > maxPageBytes:
		return fmt.Errorf("a page of %d bytes (%d compressed) is above the limit of %d", h.uncompressed, h.compressed, maxPageBytes)
	case h.values < 0 || h.nulls < 0 || h.nulls > h.values:
		return fmt.Errorf("a page of %d values, %d of them null", h.values, h.nulls)
	case h.repBytes < 0 || h.defBytes < 0 || h.repBytes+h.defBytes > min(h.uncompressed, h.compressed):
		return fmt.Errorf("a page with %d and %d bytes of levels in %d", h.repBytes, h.defBytes, h.compressed)
	}
	return nil
}

func checkCRC(h *pageHeader, page []byte) error {
	if h.hasCRC && crc32.ChecksumIEEE(page) != uint32(h.crc) {
		return fmt.Errorf("a page's checksum does not match: the file is damaged")
	}
	return nil
}

// mostOut is the most that n compressed bytes can come to, by codec; what claims more is refused before it is allocated.
func mostOut(codec format.CompressionCodec, n int64) int64 {
	switch codec {
	case format.Snappy:
		return 64 * n // a copy of 64 bytes takes 2
	case format.Gzip:
		return 1032*n + 64 // deflate's limit
	case format.Lz4Raw:
		return 255*n + 64
	case format.Zstd:
		return (n/4 + 1) << 17 // a block of 128 KiB takes 4 bytes
	}
	return maxPageBytes // brotli grows with what it really yields
}

// codecs decompresses pages; it is used by one goroutine.
type codecs struct{ zstd *zstd.Decoder }

func (c *codecs) close() {
	if c.zstd != nil {
		c.zstd.Close()
	}
}

// supported names what cannot be decompressed.
func supported(codec format.CompressionCodec) error {
	switch codec {
	case format.Uncompressed, format.Snappy, format.Gzip, format.Brotli, format.Zstd, format.Lz4Raw:
		return nil
	case format.Lz4:
		return fmt.Errorf("the deprecated codec LZ4 (with Hadoop's framing) is not supported")
	}
	return fmt.Errorf("the codec %s is not supported", codec)
}

// decompress returns exactly want bytes.
func (c *codecs) decompress(codec format.CompressionCodec, src []byte, want int64) ([]byte, error) {
	if codec == format.Uncompressed {
		if int64(len(src)) != want {
			return nil, fmt.Errorf("a page of %d bytes claims %d", len(src), want)
		}
		return src, nil
	}
	if want == 0 && len(src) == 0 {
		return nil, nil
	}
	if want > mostOut(codec, int64(len(src))) {
		return nil, fmt.Errorf("a page of %d bytes of %s claims to hold %d", len(src), codec, want)
	}
	out, err := c.run(codec, src, want)
	if err != nil {
		return nil, fmt.Errorf("decompress a page (%s): %w", codec, err)
	}
	if int64(len(out)) != want {
		return nil, fmt.Errorf("a page of %s holds %d bytes and claims %d", codec, len(out), want)
	}
	return out, nil
}

func (c *codecs) run(codec format.CompressionCodec, src []byte, want int64) ([]byte, error) {
	switch codec {
	case format.Snappy:
		if n, err := snappy.DecodedLen(src); err != nil || int64(n) != want {
			return nil, fmt.Errorf("it claims %d bytes inside, %d outside: %v", n, want, err)
		}
		return snappy.Decode(make([]byte, want), src)
	case format.Lz4Raw: // the exact size is known: no guessing, which never ends on damaged data
		out := make([]byte, want)
		n, err := lz4.UncompressBlock(src, out)
		if err != nil {
			return nil, err
		}
		return out[:n], nil
	case format.Zstd:
		return c.runZstd(src, want)
	case format.Gzip:
		z, err := gzip.NewReader(bytes.NewReader(src))
		if err != nil {
			return nil, err
		}
		return readUpTo(z, want)
	}
	return readUpTo(brotli.NewReader(bytes.NewReader(src)), want)
}

func (c *codecs) runZstd(src []byte, want int64) ([]byte, error) {
	var h zstd.Header
	if err := h.Decode(src); err != nil {
		return nil, err
	}
	if h.HasFCS && h.FrameContentSize > uint64(want) {
		return nil, fmt.Errorf("it claims %d bytes inside, %d outside", h.FrameContentSize, want)
	}
	if c.zstd == nil {
		z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(maxPageBytes))
		if err != nil {
			return nil, err
		}
		c.zstd = z
	}
	return c.zstd.DecodeAll(src, make([]byte, 0, want))
}

// readUpTo reads at most one byte more than want, growing with what comes.
func readUpTo(r io.Reader, want int64) ([]byte, error) {
	var b bytes.Buffer
	b.Grow(int(min(want+1, 1<<20)))
	_, err := io.Copy(&b, io.LimitReader(r, want+1))
	return b.Bytes(), err
}
