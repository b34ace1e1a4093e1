//go:build chaos

package main

import (
	"fmt"
	"os"
	"sync"

	"github.com/batchmill/batchmill/jobs"
)

// The variables by which internal/chaos listens to the steps of the commit protocol, and ends the process at one of them.
const (
	stepsVar = "BATCHMILL_CHAOS_STEPS" // a file; every step appends its name, a line each
	killVar  = "BATCHMILL_CHAOS_KILL"  // "part-before 2": SIGKILL when that step is reached for the second time
)

func killpoint() func(jobs.Step) {
	steps, kill := os.Getenv(stepsVar), os.Getenv(killVar)
	if steps == "" && kill == "" {
		return nil
	}
	var mu sync.Mutex
	seen := map[jobs.Step]int{}
	return func(s jobs.Step) {
		mu.Lock()
		defer mu.Unlock()
		seen[s]++
		if steps != "" {
			if f, err := os.OpenFile(steps, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
				fmt.Fprintln(f, s)
				f.Close()
			}
		}
		if kill == fmt.Sprint(s, " ", seen[s]) {
			if self, err := os.FindProcess(os.Getpid()); err == nil {
				_ = self.Kill()
			}
			select {} // the signal is under way
		}
	}
}
