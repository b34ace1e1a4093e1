//go:build !crashpoints

package main

import "github.com/batchmill/batchmill/jobs"

// crashpoint is nil: only a program built for tests dies when it is told to.
func crashpoint() func(jobs.Step) { return nil }
