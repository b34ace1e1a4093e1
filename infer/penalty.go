package infer

import "math"

// history is what penalties need to know of a sequence: the distinct ids of prompt and completion, and how often the
// completion holds each. Only rows that use penalties have one.
type history struct {
	ids   []int32
	count []int32 // occurrences in the completion; 0 for ids of the prompt alone
	index map[int32]int32
}

func newHistory(prompt []int32) *history {
	h := &history{index: make(map[int32]int32)}
	for _, id := range prompt {
		h.at(id)
	}
	return h
}

func (h *history) at(id int32) int32 {
	i, ok := h.index[id]
	if !ok {
		i = int32(len(h.ids))
		h.index[id] = i
		h.ids = append(h.ids, id)
		h.count = append(h.count, 0)
	}
	return i
}

// add records a completion token.
func (h *history) add(id int32) { h.count[h.at(id)]++ }

// rawLogit remembers a logit that a penalty replaced.
type rawLogit struct {
	id    int32
	value float32
}

// penalise changes logits in place and appends what they were to undo. Each result is computed in float64 and rounded
// to fp32 once. Repetition acts on all distinct ids (l < 0: l*r, else l/r), then presence and frequency on the ids of
// the completion: l -= count*frequency + presence.
func (h *history) penalise(logits []float32, p *Params, undo []rawLogit) []rawLogit {
	for i, id := range h.ids {
		count := h.count[i]
		if count == 0 && p.RepetitionPenalty == 1 {
			continue
		}
		l := float64(logits[id])
		undo = append(undo, rawLogit{id, logits[id]})
		if l < 0 {
			l = float64(l * p.RepetitionPenalty)
		} else {
			l /= p.RepetitionPenalty
		}
		if count > 0 {
			l -= float64(float64(count)*p.FrequencyPenalty) + p.PresencePenalty
		}
		// Penalties are bounded, so only a logit near the end of fp32's range can leave it; it stays inside.
		if l > math.MaxFloat32 {
			l = math.MaxFloat32
		} else if l < -math.MaxFloat32 && !math.IsInf(l, -1) {
			l = -math.MaxFloat32
		}
		logits[id] = float32(l)
	}
	return undo
}

func restore(logits []float32, undo []rawLogit) {
	for _, u := range undo {
		logits[u.id] = u.value
	}
}
