package pipeline

import (
	"crypto/sha256"
	"encoding/binary"
)

// UnitSeed derives the seed of one unit of work: 53 bits (so that JSON readers keep every digit) of SHA-256 over the
// job's seed and the user's id, or the row index where there is no id. Samples above 0 mix in their index. No URL or
// path enters it: the same rows give the same samples wherever the files lie.
func UnitSeed(jobSeed int64, id *string, rowIndex int64, sample int32) int64 {
	h := sha256.New()
	var b [9]byte
	put := func(tag byte, v int64) {
		b[0] = tag
		binary.LittleEndian.PutUint64(b[1:], uint64(v))
		h.Write(b[:])
	}
	put('j', jobSeed)
	if id != nil {
		put('i', int64(len(*id)))
		h.Write([]byte(*id))
	} else {
		put('r', rowIndex)
	}
	if sample > 0 {
		put('s', int64(sample))
	}
	return int64(binary.BigEndian.Uint64(h.Sum(nil)) >> (64 - seedBits))
}

// seedBits is the width of a derived seed: the integers that a float64, and so every JSON reader, holds exactly.
const seedBits = 53
