package infer

import (
	"cmp"
	"math"
	"slices"
)

// The buckets of top_p: weights lie in [0, 1], and a float64's leading bits order them. Five bits of mantissa make
// buckets 3 % wide, so a border bucket of a real vocabulary holds some hundred tokens. Weights below 2^-47 share the
// last bucket: together they are less than a millionth of any vocabulary's mass.
const (
	bucketShift = 52 - 5
	oneBits     = 0x3ff0000000000000 >> bucketShift
	buckets     = 47*32 + 1
)

// bucket is 0 for the weight 1 and grows as weights fall.
func bucket(w float64) int {
	return min(oneBits-int(math.Float64bits(w)>>bucketShift), buckets-1)
}

// cut applies top_p (1: off) and then min_p (0: off). Both keep a prefix of the candidates in the order (weight
// descending, id ascending), so their intersection is one comparison with the border of top_p and one with min_p:
// min_p drops weights below minP times the largest, which is 1.
func (s *sampler) cut(d dist, topP, minP float64) dist {
	borderWeight, borderIndex := 0.0, math.MaxInt
	if topP < 1 {
		borderWeight, borderIndex = s.topPBorder(d.weights, topP)
	}
	if d.ids == nil {
		s.ids = slices.Grow(s.ids[:0], len(d.weights))[:0]
	}
	kept := d.weights[:0]
	ids := s.ids[:0]
	for i, w := range d.weights {
		if w < minP || w < borderWeight || (w == borderWeight && i > borderIndex) {
			continue
		}
		id := int32(i)
		if d.ids != nil {
			id = d.ids[i]
		}
		ids = append(ids, id)
		kept = append(kept, w)
	}
	s.ids = ids
	return dist{ids: ids, weights: kept}
}

// topPBorder finds the last of the fewest most likely candidates whose weights reach topP of the sum: its weight and
// its index, which decides among equal weights.
func (s *sampler) topPBorder(weights []float64, topP float64) (weight float64, index int) {
	var sums [buckets]float64
	for _, w := range weights {
		sums[bucket(w)] += w
	}
	total := 0.0
	for i := buckets - 1; i >= 0; i-- {
		total += sums[i]
	}
	target := float64(topP * total)
	cum, at := 0.0, 0
	for ; at < buckets-1 && cum+sums[at] < target; at++ {
		cum += sums[at]
	}
	s.border = s.border[:0]
	for i, w := range weights {
		if bucket(w) == at {
			s.border = append(s.border, int32(i))
		}
	}
	slices.SortFunc(s.border, func(a, b int32) int {
		if c := cmp.Compare(weights[b], weights[a]); c != 0 {
			return c
		}
		return cmp.Compare(a, b)
	})
	for _, i := range s.border {
		weight, index = weights[i], int(i)
		if cum += weight; cum >= target {
			break
		}
	}
	return weight, index
}
