// Package testbin builds the program for tests that run it from outside.
package testbin

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Build builds the program to path from the sources below root, with build tags separated by commas, or none.
func Build(root, path, tags string) error {
	if err := lookAtSources(root); err != nil {
		return err
	}
	cmd := exec.Command("go", "build", "-tags", tags, "-o", path, "./cmd/batchmill")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the program: %w\n%s", err, out)
	}
	return nil
}

// lookAtSources makes the program's sources known to go test, which caches a result as long as the files that the test
// itself looked at stay the same.
func lookAtSources(root string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && strings.HasPrefix(d.Name(), ".") {
			return filepath.SkipDir
		}
		if ext := filepath.Ext(path); ext == ".go" || ext == ".s" || d.Name() == "go.mod" {
			_, err = os.Stat(path)
		}
		return err
	})
}
