//go:build !chaos

package main

import "github.com/batchmill/batchmill/jobs"

// killpoint listens to the steps of the commit protocol in the build for internal/chaos alone.
func killpoint() func(jobs.Step) { return nil }
