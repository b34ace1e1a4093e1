package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestAttendCheckedIn: the assembly in the tree is what the generator writes.
func TestAttendCheckedIn(t *testing.T) {
	for _, f := range attendFiles {
		have, err := os.ReadFile(filepath.Join("..", "..", f.name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(have, f.generate()) {
			t.Errorf("%s is not what the generator writes; run go generate ./infer/cpu", f.name)
		}
	}
}
