package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestCheckedIn: the assembly in the tree is what the generator writes.
func TestCheckedIn(t *testing.T) {
	for _, target := range []target{avx512, avx2} {
		have, err := os.ReadFile(filepath.Join("..", "..", target.fileName()))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(have, generate(target)) {
			t.Errorf("%s is not what the generator writes; run go generate ./infer/cpu", target.fileName())
		}
	}
}
