package pipeline

import (
	"crypto/sha256"
	"encoding/binary"
)

// RowSeed derives the seed of a row that brings none: 53 bits (so that JSON readers keep every digit) of SHA-256 over the
// job's seed and the user's id, or the row index where there is no id. No URL or path enters it: the same rows give the
// same samples wherever the files lie.
func RowSeed(jobSeed int64, id *string, rowIndex int64) int64 {
	var h seedHash
	h.put('j', jobSeed)
	if id != nil {
		h.put('i', int64(len(*id)))
		h.text = append(h.text, *id...)
	} else {
		h.put('r', rowIndex)
	}
	return h.sum()
}

// SampleSeed derives the seed of one of a row's samples from the row's. The first sample has the row's own. Nothing else
// enters it, so that a dead letter, which carries its row's seed and stands elsewhere, gives the samples that the row would.
func SampleSeed(rowSeed int64, sample int32) int64 {
	if sample == 0 {
		return rowSeed
	}
	var h seedHash
	h.put('j', rowSeed)
	h.put('s', int64(sample))
	return h.sum()
}

// seedHash collects what a seed is derived from.
type seedHash struct{ text []byte }

func (h *seedHash) put(tag byte, v int64) {
	h.text = binary.LittleEndian.AppendUint64(append(h.text, tag), uint64(v))
}

func (h *seedHash) sum() int64 {
	s := sha256.Sum256(h.text)
	return int64(binary.BigEndian.Uint64(s[:]) >> (64 - seedBits))
}

// seedBits is the width of a derived seed: the integers that a float64, and so every JSON reader, holds exactly.
const seedBits = 53
