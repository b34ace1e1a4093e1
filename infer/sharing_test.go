package infer

import (
	"errors"
	"testing"

	"github.com/batchmill/batchmill/infer/kv"
)

type sharingSetting struct {
	budget, seqs int
	tight        bool
}

// sharingSettings are the ways in which rows that share prefixes are run: the step's budget, the rows in flight, and
// whether the pool holds little more than the longest row, so that rows are preempted and prefixes give way.
var sharingSettings = []sharingSetting{{16, 0, false}, {64, 7, false}, {512, 0, true}, {4096, 0, false}, {16, 0, true}, {64, 0, true}, {4096, 0, true}, {512, 2, false}}

// checkSharing holds rows with shared prefixes, run in each setting, to the bytes that they yield without sharing.
func checkSharing(t *testing.T, base Config, requests []*Request, settings []sharingSetting) {
	t.Helper()
	longest := 0
	for _, q := range requests {
		longest = max(longest, kv.PagesFor(len(q.Tokens)+q.Params.MaxTokens))
	}
	run := func(cfg Config, tight bool) (map[int64]Completion, Stats) {
		if tight {
			cfg.KVMemory = int64(longest+1) * base.Model.Limits().KVBytesPerPage
		}
		e, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		if tight {
			e.firstShare = 0
		}
		return runAll(t, e, requests, 0), e.Stats()
	}
	alone := base
	alone.NoPrefixSharing, alone.BatchTokens = true, 4096
	want, st := run(alone, false)
	if st.CachedTokens != 0 || st.SharedPeak != 0 {
		t.Errorf("without sharing: %+v", st)
	}
	preemptions := int64(0)
	for _, set := range settings {
		cfg := base
		cfg.BatchTokens, cfg.MaxSeqs = set.budget, set.seqs
		got, st := run(cfg, set.tight)
		for id, c := range got {
			if err := errors.Join(same(c, want[id]), wellFormed(c)); err != nil {
				t.Errorf("%+v: %v", set, err)
			}
		}
		if st.CachedTokens == 0 || st.Failed != 0 || st.KVPeak > st.KVPages || set.seqs == 0 && !set.tight && st.SharedPeak == 0 {
			t.Errorf("%+v: %+v", set, st)
		}
		preemptions += st.Preemptions
	}
	if preemptions == 0 {
		t.Error("no row was preempted: the test covers too little")
	}
}

// TestSharingChangesNoByte: prefixes may be shared or not, end anywhere in a page, be cut into chunks in any way and be
// preempted with their rows; completions, log-probabilities included, are the same bits.
func TestSharingChangesNoByte(t *testing.T) {
	for i, name := range tinyModels {
		t.Run(name, func(t *testing.T) {
			cfg, _ := loadTiny(t, name, 2)
			checkSharing(t, cfg, sharingRequests(30, uint64(i), cfg.Model.Limits().VocabSize, 150), sharingSettings)
		})
	}
}

// TestSmolLM2SharingChangesNoByte is TestSharingChangesNoByte on real weights.
func TestSmolLM2SharingChangesNoByte(t *testing.T) {
	cfg, _ := loadSmolLM2(t, 0)
	requests := sharingRequests(11, 3, 40_000, 90)
	for _, q := range requests {
		q.Params.MaxTokens = 1 + q.Params.MaxTokens%6
	}
	checkSharing(t, cfg, requests, []sharingSetting{{16, 0, false}, {64, 0, true}, {4096, 0, false}})
}
