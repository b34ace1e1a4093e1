// Command testsum reads the output of `go test -json` on standard input and prints what a person wants to know: one line
// a package, the whole output of what failed, every skipped test with its reason, and as the last line
//
//	N passed, N failed, N skipped
//
// Tests are counted at the leaves: a test with subtests is not one more. It exits with 1 if anything failed, if nothing
// was run, or if the stream is not what it should be, so that a broken build can never look green.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
)

// maxLine bounds one JSON event. A test may print long lines; go test splits them, but not below this.
const maxLine = 16 << 20

func main() {
	slow := flag.Int("slow", 5, "how many of the slowest tests to list")
	strict := flag.Bool("no-skips", false, "fail when a test was skipped")
	flag.Parse()
	sum := newSummary(os.Stdout)
	if err := sum.read(os.Stdin); err != nil {
		fmt.Fprintln(os.Stdout, "testsum:", err)
		sum.broken = true
	}
	if !sum.print(*slow, *strict) {
		os.Exit(1)
	}
}

// event is one line of `go test -json`; `go doc test2json` describes it. FailedBuild and ImportPath come with build failures.
type event struct {
	Action      string
	Package     string
	Test        string
	Output      string
	Elapsed     float64
	FailedBuild string
	ImportPath  string
}

// read consumes the stream. Lines that are not JSON (go's own complaints) are passed through as they are.
func (s *summary) read(r io.Reader) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 64<<10), maxLine)
	for lines.Scan() {
		var ev event
		if line := lines.Bytes(); len(line) > 0 && line[0] == '{' && json.Unmarshal(line, &ev) == nil {
			s.add(ev)
			continue
		}
		fmt.Fprintln(s.out, lines.Text())
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read the test events: %w", err)
	}
	return nil
}
