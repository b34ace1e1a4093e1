package cpu

import "github.com/batchmill/batchmill/infer/device"

// productSet is what a region of products consists of, whatever the activations, and how it is cut: an item is a group of panels (for
// gate and up, of both) times one block of strips.
type productSet struct {
	parts [3]gemmPart
	count int

	panels int // of all parts together
	group  int // panels in an item
	groups int
	block  int // strips in a block

	gate, up *matrix // set: hidden = silu(gate)*up instead of parts
	gateBias *vector
	upBias   *vector
	logits   [][]float32
}

// pair makes the region that of a gate and its counterpart.
func (s *productSet) pair(gate, up device.Linear) {
	s.count, s.logits = 0, nil
	s.gate, s.gateBias = asMatrix(gate.Weight), asVector(gate.Bias)
	s.up, s.upBias = asMatrix(up.Weight), asVector(up.Bias)
}

// cut makes blocks of at most block of the strips, of equal size, since a short one would leave threads idle, and groups of at most
// most panels. It returns the number of items.
func (s *productSet) cut(strips, workers, most int) int {
	blocks := (strips + s.block - 1) / s.block
	s.block = (strips + blocks - 1) / blocks
	s.group = evenGroup(s.panels, blocks, workers, max(1, min(most, s.panels*blocks/(workers*itemsPerThread))))
	s.groups = (s.panels + s.group - 1) / s.group
	return s.groups * blocks
}

// find is the part that panel p of all belongs to, and its number there.
func (s *productSet) find(p int) (*gemmPart, int) {
	i := 0
	for p >= s.parts[i].w.panels {
		p -= s.parts[i].w.panels
		i++
	}
	return &s.parts[i], p
}
