package jobs

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/batchmill/batchmill/internal/row"
)

// A chunk of the journal is one zstd frame of lines: a chunkHeader, and then the results, each as encodeResult gives it.
// It is whole if the header's count and hash fit what follows.

// chunkHeader says what a chunk belongs to.
type chunkHeader struct {
	Journal    int    `json:"batchmill_journal"` // version of the form
	PlanDigest string `json:"plan_digest"`
	Shard      int    `json:"shard"`
	Attempt    string `json:"attempt"` // run id
	Number     int    `json:"number"`  // of the attempt's chunks of this shard, from 0
	Units      int    `json:"units"`
	SHA256     string `json:"sha256"` // of the lines after the header
}

const chunkVersion = 1

// Bounds on a chunk that is read back. Chunks are cut at chunkBytes of text, which one result may exceed: the log-probabilities
// of a long completion take tens of megabytes.
const (
	maxChunkObject = 256 << 20
	maxChunkText   = 1 << 30
)

// chunkExt ends the name of a chunk.
const chunkExt = ".jsonl.zst"

// encodeChunk makes a chunk of lines, each ended by a line feed.
func encodeChunk(h chunkHeader, lines []byte) ([]byte, error) {
	sum := sha256.Sum256(lines)
	h.Journal, h.SHA256 = chunkVersion, hex.EncodeToString(sum[:])
	head, err := json.Marshal(&h)
	if err != nil {
		return nil, fmt.Errorf("encode a journal chunk: %w", err)
	}
	var out bytes.Buffer
	z, err := zstd.NewWriter(&out, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, fmt.Errorf("encode a journal chunk: %w", err)
	}
	_, err = z.Write(append(head, '\n'))
	if err == nil {
		_, err = z.Write(lines)
	}
	if err = errors.Join(err, z.Close()); err != nil {
		return nil, fmt.Errorf("encode a journal chunk: %w", err)
	}
	return out.Bytes(), nil
}

// errTorn says that a chunk is not whole.
var errTorn = errors.New("it is torn or changed")

// decodeChunk returns the header and the lines of a whole chunk; errTorn for anything else.
func decodeChunk(data []byte) (h chunkHeader, lines []byte, err error) {
	z, err := zstd.NewReader(bytes.NewReader(data), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxChunkText), zstd.WithDecoderMaxWindow(64<<20))
	if err != nil {
		return h, nil, fmt.Errorf("%w: %w", errTorn, err)
	}
	defer z.Close()
	text, err := io.ReadAll(io.LimitReader(z, maxChunkText+1))
	if err != nil {
		return h, nil, fmt.Errorf("%w: %w", errTorn, err)
	}
	head, lines, ok := bytes.Cut(text, []byte("\n"))
	if !ok || len(text) > maxChunkText {
		return h, nil, errTorn
	}
	if err := json.Unmarshal(head, &h); err != nil || h.Journal != chunkVersion {
		return h, nil, fmt.Errorf("%w: its first line is no header of version %d", errTorn, chunkVersion)
	}
	if sum := sha256.Sum256(lines); hex.EncodeToString(sum[:]) != h.SHA256 || bytes.Count(lines, []byte("\n")) != h.Units {
		return h, nil, fmt.Errorf("%w: its lines are not those that the header speaks of", errTorn)
	}
	return h, lines, nil
}

// chunkName is the name of a chunk within its shard's folder. Run ids begin with a time, so names sort by attempt.
func chunkName(attempt string, n int) string { return fmt.Sprintf("%s-%05d%s", attempt, n, chunkExt) }

// isChunk tells whether an object has the name of a chunk.
func isChunk(url string) bool { return strings.HasSuffix(url, chunkExt) }

// unitHead is what the bookkeeping reads of a result: who it is, and how it counts.
type unitHead struct {
	Source string     `json:"source"`
	Row    int64      `json:"row"`
	Sample int32      `json:"sample"`
	Status row.Status `json:"status"`
	Code   row.Code   `json:"code"`
}
