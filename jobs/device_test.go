package jobs

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/batchmill/batchmill/infer/cpu"
	"github.com/batchmill/batchmill/internal/objstore"
)

func TestDeviceWishesAreChecked(t *testing.T) {
	for _, name := range cpu.ISAs() {
		if !slices.Contains(isaNames, name) {
			t.Errorf("%s is not among the names that are told", name)
		}
		if err := (&deviceOptions{isa: name}).check(); err != nil {
			t.Error(err)
		}
	}
	all := strings.Join(isaNames, ", ")
	for _, c := range []struct {
		o    deviceOptions
		kind Kind
		say  []string
	}{
		{deviceOptions{isa: "neon|AVX2"}, Usage, []string{`--isa "neon|AVX2"`, all}},
		{deviceOptions{isa: "AVX2"}, Usage, []string{`--isa "AVX2"`, all}},
		{deviceOptions{threads: 5000}, Usage, []string{"--threads", "1024", "5000"}},
		{deviceOptions{activations: "int4"}, Usage, []string{`--activations "int4"`, "auto, f32, int16, int8"}},
	} {
		job := testSpec("in.jsonl", "out/")
		job.ISA, job.Activations, job.Threads = c.o.isa, c.o.activations, c.o.threads
		store := objstore.New(objstore.Options{})
		defer store.Close()
		_, prepared := Prepare(context.Background(), job, store, Events{})
		_, benched := Bench(context.Background(), store, BenchOptions{Model: tinyModel, Parts: []string{"prefill"}, ISA: c.o.isa, Threads: c.o.threads, Activations: c.o.activations}, func(string) {})
		for _, err := range []error{c.o.check(), prepared, benched} {
			if KindOf(err) != c.kind {
				t.Fatalf("%+v: %v", c.o, err)
			}
			for _, want := range c.say {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%+v: %q does not say %q", c.o, err, want)
				}
			}
		}
	}
	// Some machine lacks amx, some arm64 all but portable; where this one has all, there is nothing to refuse.
	for _, name := range isaNames[1:] {
		if err := (&deviceOptions{isa: name}).check(); !slices.Contains(cpu.ISAs(), name) &&
			(KindOf(err) != Config || !strings.Contains(err.Error(), "--isa "+name) || !strings.Contains(err.Error(), strings.Join(cpu.ISAs(), ", "))) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
