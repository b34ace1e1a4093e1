package jobs

import (
	"bufio"
	"fmt"
	"os"
	"sync"

	"github.com/batchmill/batchmill/internal/row"
)

// spool gathers a shard's results, in any order, in a local file and gives them back by slot, so that the part can be
// assembled in input order without reading the journal. In memory it keeps twelve bytes a slot, so that ten million rows
// cost about 120 MB and one million 12.
type spool struct {
	mu     sync.Mutex
	file   *os.File
	buf    *bufio.Writer
	size   int64
	offset []int64  // by slot, -1 = empty
	length []uint32 // with the flags below
}

// Flags beside a result's length.
const (
	failedFlag = 1 << 31 // it is an error
	againFlag  = 1 << 30 // and the unit is run again
	lengthMask = againFlag - 1
)

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

// put stores the result that this run came to for a slot. It takes the place of an error of an earlier attempt, but never
// that of another result: a unit must not be done twice.
func (s *spool) put(slot int64, line []byte, flags uint32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holds(slot) {
		return fmt.Errorf("a second result for slot %d", slot)
	}
	return s.write(slot, line, flags)
}

// keep stores a journalled result, unless a good one is there: of several the first good one stands, or else the last error.
func (s *spool) keep(slot int64, line []byte, flags uint32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holds(slot) && s.length[slot]&failedFlag == 0 {
		return nil
	}
	return s.write(slot, line, flags)
}

func (s *spool) write(slot int64, line []byte, flags uint32) error {
	for int64(len(s.offset)) <= slot {
		s.offset = append(s.offset, -1)
		s.length = append(s.length, againFlag)
	}
	if len(line) > lengthMask {
		return fmt.Errorf("a result of %d bytes is beyond what can be kept", len(line))
	}
	if _, err := s.buf.Write(line); err != nil {
		return Errorf(StorageIO, "free some space, or set TMPDIR to another folder", "write results to the spool: %w", err)
	}
	s.offset[slot], s.length[slot] = s.size, uint32(len(line))|flags
	s.size += int64(len(line))
	return nil
}

// settled tells whether a slot has a result that stands.
func (s *spool) settled(slot int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.holds(slot)
}

func (s *spool) holds(slot int64) bool {
	return slot < int64(len(s.offset)) && s.length[slot]&againFlag == 0
}

// count is how many slots have a result that stands.
func (s *spool) count() (n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for slot := range int64(len(s.offset)) {
		if s.holds(slot) {
			n++
		}
	}
	return n
}

// get returns the result of a slot and how many its record has in all; nil if the slot is empty.
func (s *spool) get(slot int64) (*row.Result, int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slot >= int64(len(s.offset)) || s.offset[slot] < 0 {
		return nil, 0, nil
	}
	if err := s.buf.Flush(); err != nil {
		return nil, 0, Errorf(StorageIO, "free some space, or set TMPDIR to another folder", "write results to the spool: %w", err)
	}
	data := make([]byte, s.length[slot]&lengthMask)
	if _, err := s.file.ReadAt(data, s.offset[slot]); err != nil {
		return nil, 0, Errorf(StorageIO, "", "read results from the spool: %w", err)
	}
	return decodeResult(data)
}

// close removes the file.
func (s *spool) close() { closeTemp(s.file) }
