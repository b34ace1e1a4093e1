//go:build !unix

package jobs

// peakRSS is unknown on this system.
func peakRSS() *int64 { return nil }
