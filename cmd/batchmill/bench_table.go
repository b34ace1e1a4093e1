package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/batchmill/batchmill/jobs"
)

// printBench writes the figures for people.
func printBench(out io.Writer, r *jobs.BenchResult) error {
	var w strings.Builder
	fmt.Fprintf(&w, "%s on %s, %s\nactivations %s, %.0f MB of weights (%.0f MB stored), loaded in %.1f s, best of %d\n",
		r.Model, r.Device, r.CPU, r.Activations, float64(r.WeightBytes)/1e6, float64(r.FileBytes)/1e6, r.Load, r.Repeat)
	if c := r.Ceilings; c != nil {
		fmt.Fprintf(&w, "\nceilings\n  memory reads, one thread   %8.1f GB/s\n  memory reads, all threads  %8.1f GB/s\n  the weights, all threads   %8.1f GB/s\n", c.ReadOne, c.ReadAll, c.ReadWeights)
		if !c.BeyondCache {
			fmt.Fprintf(&w, "  (the buffer of %d MB is not twice the last cache of %d MB: memory may be slower)\n", c.BufferBytes>>20, c.CacheBytes>>20)
		}
		fmt.Fprintf(&w, "  float32 tiles              %8s Gop/s\n  int8 tiles                 %8s Gop/s\n", figure(c.F32), figure(c.Int8))
	}
	if p := r.Prefill; p != nil {
		fmt.Fprintf(&w, "\nprefill\n  %d prompts of %d tokens  %9.1f tokens/s  %7.1f Gop/s %s\n", p.Prompts, p.PromptTokens, p.Rate, p.Gops, percent("of peak", p.PeakShare))
	}
	if len(r.Decode) > 0 {
		fmt.Fprintf(&w, "\ndecode                tokens/s    Gop/s            weights GB/s            step p50    p99    max ms   allocations a step\n")
	}
	for _, d := range r.Decode {
		fmt.Fprintf(&w, "  %3d after %4d    %11.1f %8.1f %-14s %8.1f %-16s %7.2f %6.2f %6.2f   %.1f (%.0f bytes)\n", d.Seqs, d.Past, d.Rate, d.Gops, percent("of peak", d.PeakShare),
			d.Bandwidth, percent("of reads", d.BandwidthShare), d.StepP50, d.StepP99, d.StepMax, d.AllocsPerStep, d.BytesPerStep)
	}
	if p := r.Prefix; p != nil {
		fmt.Fprintf(&w, "\nshared prefixes\n  %d rows of %d common and %d own tokens: %.2f s against %.2f s, gain %.2f of %.2f possible (%.0f %%), %d tokens cached\n",
			p.Rows, p.PrefixTokens, p.OwnTokens, p.Shared, p.Apart, p.Gain, p.Analytic, 100*p.OfAnalytic, p.Cached)
	}
	if p := r.Speculation; p != nil {
		fmt.Fprintf(&w, "\nspeculation\n  a text that repeats itself: %.1f tokens/s against %.1f, gain %.2f; %d of %d drafted tokens were right\n", p.Rate, p.Plain, p.Gain, p.Accepted, p.Drafted)
	}
	if l := r.Long; l != nil {
		fmt.Fprintf(&w, "\nlong prompts\n  %d tokens  %9.1f tokens/s, %.0f %% of the %.1f at %d\n", l.PromptTokens, l.Rate, 100*l.Ratio, l.ShortRate, l.ShortTokens)
	}
	if len(r.Jobs) > 0 {
		fmt.Fprintf(&w, "\nwhole jobs            rows  tokens in      out        s   engine s   tokens/s    Gop/s\n")
	}
	for _, j := range r.Jobs {
		fmt.Fprintf(&w, "  %-16s %7d %10d %8d %8.1f %10.1f %10.1f %8.1f %s\n", j.Profile, j.Rows, j.PromptTokens, j.CompletionTokens, j.Seconds, j.EngineSeconds, j.TokensPerSecond, j.Gops, percent("of peak", j.PeakShare))
	}
	if r.PeakRSS != nil {
		fmt.Fprintf(&w, "\nmost memory held: %d MB\n", *r.PeakRSS/1e6)
	}
	_, err := io.WriteString(out, w.String())
	return err
}

// figure prints a ceiling that may not be known.
func figure(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.1f", *v)
}

// percent prints a share that may not be known.
func percent(what string, v *float64) string {
	if v == nil {
		return ""
	}
	return fmt.Sprintf("(%.0f %% %s)", 100**v, what)
}
