package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// marks are the lines of the page between which the tables stand; what is there is replaced.
func marks(name string) (begin, end string) {
	return "<!-- " + name + ": begin (written by make figures) -->", "<!-- " + name + ": end -->"
}

// writeReport puts the tables of the results in dir into a page, or prints them.
func writeReport(dir, page, mark string) error {
	names, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return err
	}
	var all []*result
	for _, name := range names {
		r, err := readResult(name)
		if err != nil {
			return err
		}
		if r.Part != "" {
			all = append(all, r)
		}
	}
	if len(all) == 0 {
		return fmt.Errorf("there are no results in %s: measure first", dir)
	}
	text := tables(all)
	if page == "-" {
		_, err := os.Stdout.WriteString(text)
		return err
	}
	data, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	beginMark, endMark := marks(mark)
	before, rest, ok1 := strings.Cut(string(data), beginMark)
	_, after, ok2 := strings.Cut(rest, endMark)
	if !ok1 || !ok2 {
		return fmt.Errorf("%s has no lines %q and %q", page, beginMark, endMark)
	}
	return os.WriteFile(page, []byte(before+beginMark+"\n\n"+text+"\n"+endMark+after), 0o644)
}

// order of types in tables.
var typeOrder = []string{"Q4_0", "Q8_0", "Q4_K_M", "Q4_1", "F16"}

// tables are all tables of which there are results.
func tables(all []*result) string {
	slices.SortFunc(all, func(a, b *result) int {
		ka, kb := strings.Split(a.Part, "/"), strings.Split(b.Part, "/")
		return cmp.Or(cmp.Compare(ka[0], kb[0]), cmp.Compare(typeRank(ka), typeRank(kb)), cmp.Compare(a.Part, b.Part))
	})
	var w strings.Builder
	heading(&w, all)
	for _, section := range []struct{ kind, title, unit string }{
		{"prefill", "Prefill", "tokens/s, prompts of 512 tokens one after another"},
		{"decode", "Decode", fmt.Sprintf("tokens/s of all sequences together, after %d tokens each, head included", decodePast)},
		{"work", "Token workloads", "seconds; less is better"},
		{"job", "The whole job", "seconds from the first row read to the last byte written, or the last answer; less is better"},
		{"long", "Long prompts", "tokens/s"},
	} {
		compare(&w, pick(all, section.kind), section.title, section.unit)
	}
	prefixTable(&w, pick(all, "prefix"))
	insideTables(&w, pick(all, "bench"))
	qualityTable(&w, pick(all, "quality"))
	notes(&w, all)
	return w.String()
}

func typeRank(parts []string) int {
	if i := slices.Index(typeOrder, parts[len(parts)-1]); i >= 0 {
		return i
	}
	return len(typeOrder)
}

func pick(all []*result, kind string) (some []*result) {
	for _, r := range all {
		if head, _, _ := strings.Cut(r.Part, "/"); head == kind {
			some = append(some, r)
		}
	}
	return some
}

// heading says where and with what the figures came about.
func heading(w *strings.Builder, all []*result) {
	cpus, dates, versions := map[string]bool{}, map[string]bool{}, map[string]bool{}
	threads := map[int]bool{}
	for _, r := range all {
		cpu := r.CPU
		if r.ISA != "" && r.ISA != "auto" {
			cpu += ", engines held to " + r.ISA
		}
		cpus[cpu], dates[r.Date], threads[r.Threads] = true, true, true
		for engine, v := range r.Versions {
			versions[engine+": "+v] = true
		}
	}
	fmt.Fprintf(w, "Processor: %s. Threads: %s. Date: %s.\n\n", strings.Join(sorted(cpus), "; "), joinInts(threads), strings.Join(sorted(dates), ", "))
	for _, v := range sorted(versions) {
		fmt.Fprintf(w, "* %s\n", v)
	}
	w.WriteString("\n")
}

func sorted(set map[string]bool) []string {
	var list []string
	for v := range set {
		list = append(list, v)
	}
	slices.Sort(list)
	return list
}

func joinInts(set map[int]bool) string {
	var list []string
	for v := range set {
		list = append(list, fmt.Sprint(v))
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// compare is a table of measures by engines, with the ratio of ours to the best of the others.
func compare(w *strings.Builder, some []*result, title, unit string) {
	var engines, measures []string
	table := map[[2]string]entry{}
	for _, r := range some {
		for _, e := range r.Entries {
			if strings.HasSuffix(e.Measure, probed) {
				continue
			}
			if !slices.Contains(measures, e.Measure) {
				measures = append(measures, e.Measure)
			}
			if e.Engine != ours && !slices.Contains(engines, e.Engine) {
				engines = append(engines, e.Engine)
			}
			key := [2]string{e.Measure, e.Engine}
			if old, ok := table[key]; !ok || better(e, old) {
				table[key] = e
			}
		}
	}
	if len(measures) == 0 {
		return
	}
	slices.Sort(engines)
	fmt.Fprintf(w, "### %s\n\n%s%s.\n\n| | batchmill |", title, strings.ToUpper(unit[:1]), unit[1:])
	for _, e := range engines {
		fmt.Fprintf(w, " %s |", e)
	}
	w.WriteString(" times the best of them |\n|---|---|" + strings.Repeat("---|", len(engines)) + "---|\n")
	for _, m := range measures {
		mine, have := table[[2]string{m, ours}]
		fmt.Fprintf(w, "| %s | %s |", m, number(mine.Value, have))
		var best entry
		found := false
		for _, engine := range engines {
			e, ok := table[[2]string{m, engine}]
			fmt.Fprintf(w, " %s |", number(e.Value, ok))
			if ok && (!found || better(e, best)) {
				best, found = e, true
			}
		}
		ratio := 0.0
		if have && found {
			if ratio = mine.Value / best.Value; mine.Unit == "s" {
				ratio = best.Value / mine.Value
			}
		}
		fmt.Fprintf(w, " %s |\n", number(ratio, ratio > 0))
	}
	w.WriteString("\n")
	settings(w, measures, append([]string{ours}, engines...), table)
}

// settings names the setting of each engine's best figure.
func settings(w *strings.Builder, measures, engines []string, table map[[2]string]entry) {
	var list []string
	for _, engine := range engines {
		var said []string
		for _, m := range measures {
			if e, ok := table[[2]string{m, engine}]; ok && e.Setting+e.Note != "" {
				said = append(said, fmt.Sprintf("%s: %s", m, strings.TrimSpace(strings.Join([]string{e.Setting, e.Note}, " "))))
			}
		}
		if len(said) > 0 {
			list = append(list, fmt.Sprintf("* %s: %s", engine, strings.Join(said, "; ")))
		}
	}
	if len(list) > 0 {
		fmt.Fprintf(w, "<details><summary>Settings of the best figures</summary>\n\n%s\n\n</details>\n\n", strings.Join(list, "\n"))
	}
}

// number prints three or four digits.
func number(v float64, ok bool) string {
	switch {
	case !ok:
		return "-"
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

func optional(v *float64, format string) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf(format, *v)
}

func share(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.0f %%", 100**v)
}

// benches reads what `batchmill bench` printed.
func benches(some []*result) (list []*benchResult, parts []string) {
	for _, r := range some {
		for _, raw := range r.Raw {
			b := &benchResult{}
			if json.Unmarshal(raw, b) == nil {
				list, parts = append(list, b), append(parts, r.Part[strings.LastIndexByte(r.Part, '/')+1:])
			}
		}
	}
	return list, parts
}

func prefixTable(w *strings.Builder, some []*result) {
	best := map[string]*prefixResult{}
	var order []string
	list, types := benches(some)
	for i, b := range list {
		p := b.Prefix
		if p == nil {
			continue
		}
		old, ok := best[types[i]]
		if !ok {
			order = append(order, types[i])
			best[types[i]] = p
			continue
		}
		// The best time of each side, which may be of different rounds.
		old.Shared, old.Apart, old.Equal = min(old.Shared, p.Shared), min(old.Apart, p.Apart), old.Equal && p.Equal
	}
	if len(order) == 0 {
		return
	}
	w.WriteString("### Shared prefixes\n\nSeconds for rows that begin alike, each with one completion token, with prefixes shared and with sharing switched off.\n\n" +
		"| | rows | common | own | shared | not shared | gain | possible | reached | equal results |\n|---|---|---|---|---|---|---|---|---|---|\n")
	for _, t := range order {
		p := best[t]
		gain := p.Apart / p.Shared
		fmt.Fprintf(w, "| %s | %d | %d | %d | %.2f | %.2f | %.2f | %.2f | %.0f %% | %v |\n", t, p.Rows, p.Prefix, p.Own, p.Shared, p.Apart, gain, p.Analytic, 100*gain/p.Analytic, p.Equal)
	}
	w.WriteString("\n")
}

// insideTables show what bounds the engine and what it reaches.
func insideTables(w *strings.Builder, some []*result) {
	list, types := benches(some)
	if len(list) == 0 {
		return
	}
	w.WriteString("### Ceilings and what is reached of them\n\n| | float32 Gop/s | int8 Gop/s | reads, one thread | all threads | the weights | prefill Gop/s | of the tile | weights in memory |\n|---|---|---|---|---|---|---|---|---|\n")
	for i, b := range list {
		c, p := b.Ceilings, b.Prefill
		if c == nil || p == nil {
			continue
		}
		fmt.Fprintf(w, "| %s, %s | %s | %s | %.1f GB/s | %.1f GB/s | %.1f GB/s | %.0f | %s | %.2f of the file's |\n", types[i], b.Activations,
			optional(c.F32, "%.0f"), optional(c.Int8, "%.0f"), c.ReadOne, c.ReadAll, c.ReadWeights, p.Gops, share(p.Share), b.WeightBytes/b.FileBytes)
	}
	w.WriteString("\n### Decode steps\n\n| | sequences | tokens/s | of the tile | weights read | of reads | step p50 | p99 | allocations a step |\n|---|---|---|---|---|---|---|---|---|\n")
	for i, b := range list {
		for _, d := range b.Decode {
			fmt.Fprintf(w, "| %s | %d | %s | %s | %.1f GB/s | %s | %.2f ms | %.2f ms | %.1f (%.0f bytes) |\n", types[i], d.Seqs, number(d.Rate, true), share(d.Share), d.Bandwidth, share(d.BandwidthShare), d.P50, d.P99, d.Allocs, d.Bytes)
		}
	}
	w.WriteString("\n### Whole jobs by profile\n\n| | profile | rows | tokens in | out | seconds | tokens/s |\n|---|---|---|---|---|---|---|\n")
	for i, b := range list {
		for _, j := range b.Jobs {
			fmt.Fprintf(w, "| %s | %s | %d | %d | %d | %.1f | %.0f |\n", types[i], j.Profile, j.Rows, j.Prompt, j.Completion, j.Seconds, j.Rate)
		}
	}
	w.WriteString("\n")
}

// qualityTable shows what bench/quality printed, and llama.cpp's perplexity over the same windows.
func qualityTable(w *strings.Builder, some []*result) {
	if len(some) == 0 {
		return
	}
	w.WriteString("### Quality of the modes\n\nAgainst the same file in float32. The last two columns count the later halves of windows of 512 tokens, as llama-perplexity does.\n\n" +
		"| | mode | perplexity | change | KL mean | KL max | same first choice | by windows | llama.cpp |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, r := range some {
		for _, raw := range r.Raw {
			var q struct {
				File       string  `json:"file"`
				Mode       string  `json:"mode"`
				Perplexity float64 `json:"perplexity"`
				Change     float64 `json:"change"`
				MeanKL     float64 `json:"kl_mean"`
				MaxKL      float64 `json:"kl_max"`
				Agreement  float64 `json:"top1_agreement"`
				Windows    float64 `json:"windows_perplexity"`
			}
			if json.Unmarshal(raw, &q) != nil {
				continue
			}
			stem := strings.TrimSuffix(filepath.Base(q.File), ".gguf")
			t := stem[strings.LastIndexByte(stem, '.')+1:]
			theirs, ok := r.best("perplexity, "+t, "llama.cpp")
			peer := "-"
			if ok {
				peer = fmt.Sprintf("%.3f", theirs.Value)
			}
			windows := "-" // a text of less than a window has none
			if q.Windows > 0 {
				windows = fmt.Sprintf("%.3f", q.Windows)
			}
			fmt.Fprintf(w, "| %s | %s | %.3f | %+.2f %% | %.1e | %.1e | %.2f %% | %s | %s |\n", t, q.Mode, q.Perplexity, 100*q.Change, q.MeanKL, q.MaxKL, 100*q.Agreement, windows, peer)
		}
	}
	w.WriteString("\n")
}

// notes say under what load and how often was measured, and what did not run.
func notes(w *strings.Builder, all []*result) {
	w.WriteString("<details><summary>Rounds, load averages before each, and what did not run</summary>\n\n")
	for _, r := range all {
		state := ""
		if !r.Whole {
			state = ", not finished"
		}
		fmt.Fprintf(w, "* %s: %d rounds in %.0f s, load %s%s", r.Part, r.Rounds, r.Seconds, strings.Join(r.Loads, ", "), state)
		for _, f := range r.Failed {
			fmt.Fprintf(w, "; failed: %s", f)
		}
		w.WriteString("\n")
	}
	w.WriteString("\n</details>\n")
}
