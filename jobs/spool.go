package jobs

import (
	"bufio"
	"fmt"
	"os"
	"sync"

	"github.com/batchmill/batchmill/internal/row"
)

// spool gathers a shard's results, in any order, in a local file and gives them back by slot. In memory it keeps
// twelve bytes a slot, so that ten million rows cost about 120 MB and one million 12.
type spool struct {
	mu     sync.Mutex
	file   *os.File
	buf    *bufio.Writer
	size   int64
	offset []int64 // by slot, -1 = empty
	length []int32
}

// spoolBuffer is the write buffer of a spool: a few hundred results a system call.
const spoolBuffer = 256 << 10

// tempFile makes a nameless local file in the system's folder for temporary files, so that a killed run leaves nothing
// behind. Where there is no such thing its name is removed at once, if the system allows that for an open file.
func tempFile(what string) (*os.File, error) {
	if f, err := nameless(os.TempDir()); err == nil {
		return f, nil
	}
	f, err := os.CreateTemp("", "batchmill-*")
	if err != nil {
		return nil, Errorf(StorageIO, "set TMPDIR to a folder with free space", "create a temporary file for %s: %w", what, err)
	}
	_ = os.Remove(f.Name()) // closeTemp tries again
	return f, nil
}

func closeTemp(f *os.File) {
	f.Close()
	if f.Name() != "" {
		_ = os.Remove(f.Name())
	}
}

func newSpool() (*spool, error) {
	f, err := tempFile("results")
	if err != nil {
		return nil, err
	}
	return &spool{file: f, buf: bufio.NewWriterSize(f, spoolBuffer)}, nil
}

// put stores the result of a slot. A slot is written once; a second result is refused, since a row must never be done
// twice.
func (s *spool) put(slot int64, r *row.Result) error {
	data, err := encodeResult(r)
	if err != nil {
		return fmt.Errorf("encode the result of %s row %d: %w", r.Key.Source, r.Key.Row, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for int64(len(s.offset)) <= slot {
		s.offset = append(s.offset, -1)
		s.length = append(s.length, 0)
	}
	if s.offset[slot] >= 0 {
		return fmt.Errorf("second result for %s row %d sample %d", r.Key.Source, r.Key.Row, r.Key.Sample)
	}
	if _, err := s.buf.Write(data); err != nil {
		return Errorf(StorageIO, "free some space, or set TMPDIR to another folder", "write results to the spool: %w", err)
	}
	s.offset[slot], s.length[slot] = s.size, int32(len(data))
	s.size += int64(len(data))
	return nil
}

// get returns the result of a slot, nil if it has none. All puts must be over.
func (s *spool) get(slot int64) (*row.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slot >= int64(len(s.offset)) || s.offset[slot] < 0 {
		return nil, nil
	}
	if err := s.buf.Flush(); err != nil {
		return nil, Errorf(StorageIO, "free some space, or set TMPDIR to another folder", "write results to the spool: %w", err)
	}
	data := make([]byte, s.length[slot])
	if _, err := s.file.ReadAt(data, s.offset[slot]); err != nil {
		return nil, Errorf(StorageIO, "", "read results from the spool: %w", err)
	}
	return decodeResult(data)
}

// close removes the file.
func (s *spool) close() { closeTemp(s.file) }
