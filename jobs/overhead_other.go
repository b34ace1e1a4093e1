//go:build !linux

package jobs

import "time"

// threadTime is a clock where processor time is not told.
func threadTime() time.Duration { return time.Duration(time.Now().UnixNano()) }
