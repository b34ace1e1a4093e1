package jobs

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/batchmill/batchmill/infer/device"
)

// Memory rules of the CPU device.
const (
	// kvShare is the part of the memory that is left beside the weights that KV pages may take by default: the rest is
	// for the window, parts being written and whatever else runs.
	kvShare = 0.4
	// kvMost bounds the default: 4 GiB hold 256 sequences of the small models; large ones want --kv-memory.
	kvMost = 4 << 30
	// kvUnknown is used where the machine's memory cannot be found out.
	kvUnknown = 1 << 30
)

// availableMemory is what this process may still take, in bytes: the lower of the machine's available memory and the
// cgroup's room. ok is false where neither can be read.
func availableMemory() (n int64, ok bool) {
	if v, found := memAvailable("/proc/meminfo"); found {
		n, ok = v, true
	}
	if v, found := cgroupRoom("/proc/self/cgroup", "/sys/fs/cgroup"); found && (!ok || v < n) {
		n, ok = v, true
	}
	return n, ok
}

func memAvailable(file string) (int64, bool) {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "MemAvailable:"); ok {
			kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kb << 10, err == nil
		}
	}
	return 0, false
}

// cgroupRoom is the distance to the lowest memory.max of this process's cgroup (version 2) and its parents.
func cgroupRoom(self, root string) (room int64, ok bool) {
	data, err := os.ReadFile(self)
	if err != nil {
		return 0, false
	}
	group, found := "", false
	for line := range strings.Lines(string(data)) {
		if rest, is := strings.CutPrefix(strings.TrimSpace(line), "0::"); is {
			group, found = rest, true
		}
	}
	if !found {
		return 0, false
	}
	for dir := filepath.Join(root, group); strings.HasPrefix(dir, root); dir = filepath.Dir(dir) {
		most, err1 := readInt(filepath.Join(dir, "memory.max"))
		used, err2 := readInt(filepath.Join(dir, "memory.current"))
		if err1 == nil && err2 == nil && (!ok || most-used < room) {
			room, ok = most-used, true
		}
	}
	return room, ok
}

func readInt(file string) (int64, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
}

// defaultKVMemory is the size of the KV pool where the user names none. weights is what is still to be loaded.
func defaultKVMemory(weights int64) int64 {
	n, ok := availableMemory()
	if !ok {
		return kvUnknown
	}
	return max(0, min(kvMost, int64(kvShare*float64(n-weights))))
}

// kvMemory is the size of a job's KV pool whose pages take pageBytes each. It must hold one.
func (s *Spec) kvMemory(pageBytes, weights int64) (int64, error) {
	if s.KVMemory == 0 {
		return defaultKVMemory(weights), nil
	}
	if s.KVMemory < pageBytes {
		return 0, Errorf(Config, "give at least that, better a thousand times as much, such as 2GiB, or leave it out for a share of what is free",
			"--kv-memory %d holds no page: %d tokens of this model's keys and values take %d bytes", s.KVMemory, device.PageTokens, pageBytes)
	}
	return s.KVMemory, nil
}
