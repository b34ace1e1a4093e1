//go:build crashpoints

package main

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/batchmill/batchmill/jobs"
)

// crashVariable names the step, and after a colon how many times it is passed first, at which a program built with the tag
// crashpoints kills itself: BATCHMILL_CRASH_AT=chunk-after:2 dies when the third chunk is stored. Only tests build that.
const crashVariable = "BATCHMILL_CRASH_AT"

// crashpoint returns what dies at the step that the environment names, nil if it names none.
func crashpoint() func(jobs.Step) {
	at, times, _ := strings.Cut(os.Getenv(crashVariable), ":")
	if at == "" {
		return nil
	}
	var left atomic.Int64
	n, _ := strconv.ParseInt(times, 10, 64)
	left.Store(n)
	return func(s jobs.Step) {
		if string(s) == at && left.Add(-1) < 0 {
			if self, err := os.FindProcess(os.Getpid()); err == nil {
				_ = self.Kill()
			}
			select {} // the signal is on its way
		}
	}
}
