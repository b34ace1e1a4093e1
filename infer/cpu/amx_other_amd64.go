//go:build !linux

package cpu

// askForTiles: only Linux has been tried.
func askForTiles() bool { return false }
