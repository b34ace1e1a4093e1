package device

import "fmt"

// PageTokens is the number of tokens in a page of the KV cache. It is also the unit of reduction in attention: scores
// are folded page by page, so it is part of what decides a result's bits and cannot be an option.
const PageTokens = 32

// Batch is one engine step: the tokens of all sequences, concatenated without padding.
type Batch struct {
	Tokens    []int32 // [n] token ids
	Positions []int32 // [n] absolute positions, those of a sequence ascending by 1
	Seqs      []Seq   // consecutive spans that cover Tokens
	Logits    []int32 // indexes into Tokens of the rows whose logits are wanted, any order
}

// Seq is the part of one sequence that a step computes.
type Seq struct {
	Start, Len int     // span of Batch.Tokens
	Past       int     // tokens of the sequence already in the cache
	Pages      []int32 // page table; covers Past+Len tokens, and may be longer
}

// PagesFor is the number of pages that hold so many tokens.
func PagesFor(tokens int) int { return (tokens + PageTokens - 1) / PageTokens }

// Limits bound what a batch may hold.
type Limits struct {
	Vocab     int // token ids are below
	Positions int // positions are below
	Pages     int // page numbers are below
}

// Validate checks a batch against what the model and the cache can take. A device relies on it: kernels do not check
// indexes again.
func (b *Batch) Validate(l Limits) error {
	n := len(b.Tokens)
	if len(b.Positions) != n {
		return fmt.Errorf("check batch: %d tokens but %d positions", n, len(b.Positions))
	}
	for i, t := range b.Tokens {
		if t < 0 || int(t) >= l.Vocab {
			return fmt.Errorf("check batch: token %d is id %d, the vocabulary has %d", i, t, l.Vocab)
		}
	}
	end := 0
	for i := range b.Seqs {
		s := &b.Seqs[i]
		if s.Start != end || s.Len < 1 || s.Len > n-end || s.Past < 0 {
			return fmt.Errorf("check batch: sequence %d spans %d+%d with %d past, after %d of %d tokens", i, s.Start, s.Len, s.Past, end, n)
		}
		end += s.Len
		if s.Past > l.Positions-s.Len {
			return fmt.Errorf("check batch: sequence %d ends at position %d, the model has %d", i, s.Past+s.Len, l.Positions)
		}
		pages := PagesFor(s.Past + s.Len)
		if len(s.Pages) < pages {
			return fmt.Errorf("check batch: sequence %d has %d pages for %d tokens", i, len(s.Pages), s.Past+s.Len)
		}
		for _, p := range s.Pages[:pages] {
			if p < 0 || int(p) >= l.Pages {
				return fmt.Errorf("check batch: sequence %d names page %d, the cache has %d", i, p, l.Pages)
			}
		}
		for j := range s.Len {
			if int(b.Positions[s.Start+j]) != s.Past+j {
				return fmt.Errorf("check batch: token %d of sequence %d is at position %d, want %d", j, i, b.Positions[s.Start+j], s.Past+j)
			}
		}
	}
	if end != n {
		return fmt.Errorf("check batch: sequences cover %d of %d tokens", end, n)
	}
	for _, r := range b.Logits {
		if r < 0 || int(r) >= n {
			return fmt.Errorf("check batch: logits wanted of row %d, there are %d", r, n)
		}
	}
	return nil
}
