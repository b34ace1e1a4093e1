//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package hub

func tryLock(path string) (func(), error) { return tryLockFile(path, lockBeat, lockStale) }
