package tokenizer

import (
	_ "embed"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// The tokenizers library normalises by Unicode 9.0, whatever its other tables say: later marks are not reordered, later
// compatibility characters not mapped. Its results decide ids, so the data here stop there too, and unlike x/text no joiner
// is put into long runs of marks.

//go:embed normforms.txt
var normFormsText string

// normForms holds combining classes, full decompositions and primary compositions. Hangul syllables are computed.
type normForms struct {
	ccc     map[rune]uint8
	canon   map[rune][]rune
	compat  map[rune][]rune
	compose map[[2]rune]rune
	// composite is the set of the results of compose.
	composite map[rune]bool
}

// Hangul syllables, Unicode section 3.12.
const (
	hangulS, hangulL, hangulV, hangulT = 0xAC00, 0x1100, 0x1161, 0x11A7
	hangulLs, hangulVs, hangulTs       = 19, 21, 28
	hangulCount                        = hangulLs * hangulVs * hangulTs
)

var loadNormForms = sync.OnceValue(func() *normForms {
	f := &normForms{map[rune]uint8{}, map[rune][]rune{}, map[rune][]rune{}, map[[2]rune]rune{}, map[rune]bool{}}
	var composites []rune
	for _, line := range strings.Split(normFormsText, "\n") {
		w := strings.Fields(line)
		if len(w) < 3 || w[0] == "#" {
			continue
		}
		rs := make([]rune, len(w)-1)
		for i, h := range w[1:] {
			base := 16
			if w[0] == "ccc" && i == 1 {
				base = 10
			}
			v, err := strconv.ParseUint(h, base, 32)
			if err != nil {
				panic(fmt.Sprintf("normforms.txt: %q: %v", line, err)) // a damaged build, not an input
			}
			rs[i] = rune(v)
		}
		switch w[0] {
		case "ccc":
			f.ccc[rs[0]] = uint8(rs[1])
		case "=":
			composites = append(composites, rs[0])
			f.canon[rs[0]] = rs[1:]
		case "!":
			f.canon[rs[0]] = rs[1:]
		case "~":
			f.compat[rs[0]] = rs[1:]
		}
	}
	// A primary composite is the composite of all but the last of its full decomposition, and that last one.
	sort.Slice(composites, func(i, j int) bool { return len(f.canon[composites[i]]) < len(f.canon[composites[j]]) })
	for _, c := range composites {
		d := f.canon[c]
		first := d[0]
		for _, r := range d[1 : len(d)-1] {
			first = f.compose[[2]rune{first, r}]
		}
		f.compose[[2]rune{first, d[len(d)-1]}] = c
		f.composite[c] = true
	}
	return f
})

// normForm is one of NFC, NFD, NFKC and NFKD. plain has a bit for every code point at which a text can be cut on both
// sides of the character, whatever stands next to it, except that a following character may compose onto it.
type normForm struct {
	f               *normForms
	compat, compose bool
	plain           []uint64
}

func newNormForm(compat, compose bool) *normForm {
	n := &normForm{f: loadNormForms(), compat: compat, compose: compose, plain: make([]uint64, (unicode.MaxRune+64)/64)}
	for i := range n.plain {
		n.plain[i] = ^uint64(0)
	}
	clear := func(r rune) { n.plain[r/64] &^= 1 << (r % 64) }
	for r := range n.f.ccc {
		clear(r)
	}
	if compat {
		for r := range n.f.compat {
			clear(r)
		}
	}
	if compose {
		for pair := range n.f.compose {
			clear(pair[1])
		}
		for r := rune(hangulV); r < hangulT+hangulTs; r++ {
			clear(r)
		}
	} else {
		for r := rune(hangulS); r < hangulS+hangulCount; r++ {
			clear(r)
		}
	}
	for r, d := range n.f.canon { // a composite stands for itself unless something follows that composes
		if !compose || !n.f.composite[r] || !n.isPlain(d[0]) {
			clear(r)
		}
	}
	return n
}

func (n *normForm) isPlain(r rune) bool { return n.plain[r/64]>>(r%64)&1 == 1 }

// normalize implements normalizer.
func (n *normForm) normalize(s string, prov []int32) (string, []int32) {
	var out []byte
	var outProv []int32
	done := 0  // s[:done] is in out
	start := 0 // the last plain character before i, or where the last segment ended
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if n.isPlain(r) {
			start = i
			i += size
			continue
		}
		end := i
		for end < len(s) {
			r, size := utf8.DecodeRuneInString(s[end:])
			if n.isPlain(r) {
				break
			}
			end += size
		}
		out = append(out, s[done:start]...)
		before := len(out)
		out = n.segment(out, s[start:end])
		if prov != nil {
			outProv = append(outProv, prov[done:start]...)
			outProv = appendSame(outProv, common(prov[start:end]), len(out)-before)
		}
		done, start, i = end, end, end
	}
	if done == 0 {
		return s, prov
	}
	out = append(out, s[done:]...)
	if prov != nil {
		outProv = append(outProv, prov[done:]...)
	}
	return string(out), outProv
}

type normChar struct {
	r   rune
	ccc uint8
}

// segment appends the normal form of s.
func (n *normForm) segment(out []byte, s string) []byte {
	chars := make([]normChar, 0, len(s))
	for _, r := range s {
		chars = n.decompose(chars, r)
	}
	for i := 0; i < len(chars); {
		if chars[i].ccc == 0 {
			i++
			continue
		}
		j := i
		for j < len(chars) && chars[j].ccc != 0 {
			j++
		}
		marks := chars[i:j]
		sort.SliceStable(marks, func(a, b int) bool { return marks[a].ccc < marks[b].ccc })
		i = j
	}
	if n.compose {
		chars = n.composed(chars)
	}
	for _, c := range chars {
		out = utf8.AppendRune(out, c.r)
	}
	return out
}

func (n *normForm) decompose(chars []normChar, r rune) []normChar {
	if r >= hangulS && r < hangulS+hangulCount {
		k := r - hangulS
		chars = append(chars, normChar{r: hangulL + k/(hangulVs*hangulTs)}, normChar{r: hangulV + k/hangulTs%hangulVs})
		if t := k % hangulTs; t != 0 {
			chars = append(chars, normChar{r: hangulT + t})
		}
		return chars
	}
	d, ok := []rune(nil), false
	if n.compat {
		d, ok = n.f.compat[r]
	}
	if !ok {
		d, ok = n.f.canon[r]
	}
	if !ok {
		return append(chars, normChar{r, n.f.ccc[r]})
	}
	for _, c := range d {
		chars = append(chars, normChar{c, n.f.ccc[c]})
	}
	return chars
}

// composed runs the canonical composition algorithm (Unicode section 3.11) in place.
func (n *normForm) composed(chars []normChar) []normChar {
	out := chars[:0]
	starter := -1
	for _, c := range chars {
		if starter >= 0 && (len(out)-1 == starter || out[len(out)-1].ccc < c.ccc) {
			if r, ok := n.pair(out[starter].r, c.r); ok {
				out[starter].r = r
				continue
			}
		}
		if c.ccc == 0 {
			starter = len(out)
		}
		out = append(out, c)
	}
	return out
}

func (n *normForm) pair(a, b rune) (rune, bool) {
	if a >= hangulL && a < hangulL+hangulLs && b >= hangulV && b < hangulV+hangulVs {
		return hangulS + ((a-hangulL)*hangulVs+b-hangulV)*hangulTs, true
	}
	if k := a - hangulS; k >= 0 && k < hangulCount && k%hangulTs == 0 && b > hangulT && b < hangulT+hangulTs {
		return a + b - hangulT, true
	}
	r, ok := n.f.compose[[2]rune{a, b}]
	return r, ok
}
