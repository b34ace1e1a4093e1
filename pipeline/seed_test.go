package pipeline

import (
	"testing"

	"github.com/batchmill/batchmill/internal/ordered"
	"github.com/batchmill/batchmill/internal/row"
)

// Values computed with Python's hashlib over the documented byte form.
func TestSeedKnownValues(t *testing.T) {
	id := "row-é"
	for _, c := range []struct {
		job    int64
		id     *string
		row    int64
		sample int32
		want   int64
	}{
		{0, nil, 0, 0, 2380920894372760},
		{0, nil, 1, 0, 8088847530369631},
		{7, nil, 1, 0, 8780987919159367},
		{7, nil, 1, 2, 8044693855473223},
		{-3, &id, 5, 0, 3651987424233978},
		{-3, &id, 5, 1, 2543874386545417},
	} {
		if got := SampleSeed(RowSeed(c.job, c.id, c.row), c.sample); got != c.want {
			t.Errorf("seed of %d, %v, %d, sample %d is %d, want %d", c.job, c.id, c.row, c.sample, got, c.want)
		}
	}
}

func TestRowSeedIgnoresRowWhereThereIsAnID(t *testing.T) {
	id := "a"
	if RowSeed(1, &id, 3) != RowSeed(1, &id, 9) {
		t.Error("the row index entered the seed of a row with an id")
	}
	if RowSeed(1, nil, 3) == RowSeed(1, nil, 4) {
		t.Error("two rows without ids share a seed")
	}
}

// TestADeadLetterGivesWhatItsRowWouldHave: whatever a row failed of, its dead letter, which stands at another place with the
// seed of the failed result, has the seeds that the row itself has once the fault is mended.
func TestADeadLetterGivesWhatItsRowWouldHave(t *testing.T) {
	messages := []any{ordered.MapOf("role", "user", "content", "Hi")}
	for name, rec := range map[string]*row.Record{
		"a request with a seed":    openAIRecord("/v1/chat/completions", ordered.MapOf("messages", messages, "temperature", 0.9, "seed", int64(1), "n", int64(2))),
		"a request without one":    openAIRecord("/v1/chat/completions", ordered.MapOf("messages", messages, "temperature", 0.9, "n", int64(2))),
		"a request with a null":    openAIRecord("/v1/chat/completions", ordered.MapOf("messages", messages, "seed", nil, "n", int64(2))),
		"a row without an id":      record("prompt", nil),
		"a dead letter once more":  record("prompt", nil, "_seed", int64(42)),
		"its seed over the body's": openAIRecord("/v1/chat/completions", ordered.MapOf("messages", messages, "seed", int64(1), "n", int64(2))),
	} {
		if name == "its seed over the body's" {
			rec.Fields["_seed"] = int64(42)
		}
		narrow, _ := testPreparer(t, func(p *Prompting) { p.Seed = 5 })
		_, id, rerr := narrow.Prepare(rec)
		if rerr == nil {
			t.Fatalf("%s: no error", name)
		}
		letter := *rec
		letter.Row, letter.Line, letter.Fields = 0, 1, map[string]any{}
		for k, v := range rec.Fields {
			letter.Fields[k] = v
		}
		letter.Fields["_seed"] = failed(narrow, rec, id, 0, rerr).Seed
		wide, _ := testPreparer(t, func(p *Prompting) { p.Seed, p.Samples = 5, 2 })
		seeds := func(r *row.Record) (list []int64) {
			if r.Fields["prompt"] == nil && r.Fields["body"] == nil {
				r.Fields["prompt"] = "mended"
			}
			units, _, rerr := wide.Prepare(r)
			if rerr != nil {
				t.Fatalf("%s: %v", name, rerr)
			}
			for _, u := range units {
				list = append(list, u.Request.Seed)
			}
			return list
		}
		first, again := seeds(rec), seeds(&letter)
		if len(first) != 2 || len(again) != 2 || first[0] != again[0] || first[1] != again[1] || first[0] == first[1] {
			t.Errorf("%s: seeds %v, of its dead letter %v", name, first, again)
		}
		if name == "a request with a seed" && first[0] != 1 {
			t.Errorf("%s: %d is not the seed it asks for", name, first[0])
		}
		if name == "its seed over the body's" && first[0] != 42 {
			t.Errorf("%s: %d", name, first[0])
		}
	}
}
