package tokenizer

import (
	"runtime"
	"strings"
	"testing"
)

// TestLongWordMemory bounds what one endless word costs for each of its bytes, and what stays of it afterwards.
func TestLongWordMemory(t *testing.T) {
	tok := mustEdit(t, "bl_gpt2", func(f map[string]any) { // make the word merge
		m := f["model"].(object)
		vocab := m["vocab"].(object)
		var merges []any
		for n := 1; n <= 8; n *= 2 {
			half := strings.Repeat("q", n)
			if _, ok := vocab[half+half]; !ok {
				vocab[half+half] = len(vocab)
			}
			merges = append(merges, half+" "+half)
		}
		m["merges"], f["added_tokens"] = merges, []any{}
	})
	const size, most = 1 << 20, 30
	word := strings.Repeat("q", size)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	ids, err := tok.Encode(word, EncodeOptions{})
	runtime.ReadMemStats(&after)
	if err != nil || len(ids) != size/16 {
		t.Fatalf("%d ids, %v", len(ids), err)
	}
	if got := (after.TotalAlloc - before.TotalAlloc) / size; got > most {
		t.Errorf("%d bytes for each byte of the word, more than %d", got, most)
	}
	sc := &scratch{cache: map[string][]int32{}}
	tok.encodeText(sc, word, EncodeOptions{})
	if sc.trim(); sc.sym != nil || sc.long.heap != nil {
		t.Error("the buffers of a long word stay")
	}
}
