package hub

import (
	"path"
	"slices"
	"strings"

	"github.com/batchmill/batchmill/infer/gguf"
)

// The files of a model in the Hugging Face layout.
const (
	configFile       = "config.json"
	generationFile   = "generation_config.json"
	tokenizerFile    = "tokenizer.json"
	tokenizerConfig  = "tokenizer_config.json"
	chatTemplateFile = "chat_template.jinja"
	weightsFile      = "model.safetensors"
	indexFile        = "model.safetensors.index.json"
)

// sidecars are the files beside the weights that decide results.
var sidecars = []string{configFile, generationFile, tokenizerFile, tokenizerConfig, chatTemplateFile}

// layout is which files of a listing make up a model, as paths from the listing.
type layout struct {
	gguf     []string // the file, or all parts in order
	weights  string   // Hugging Face: model.safetensors, or "" if index is set
	index    string   // Hugging Face: model.safetensors.index.json
	shards   []string // the files that the index names, once it is read
	sidecars []string // Hugging Face: those of sidecars that there are
}

// files lists all files known so far.
func (l layout) files() []string {
	all := slices.Clone(l.gguf)
	for _, f := range []string{l.weights, l.index} {
		if f != "" {
			all = append(all, f)
		}
	}
	all = append(all, l.shards...)
	return append(all, l.sidecars...)
}

// choose finds the model among files: names are slash paths. want, if given, is the path or the unique base name of a
// GGUF file, or of the folder that holds the model. Folders below the top are looked at where deep is set.
func choose(names []string, want string, deep bool) (layout, error) {
	names = slices.DeleteFunc(slices.Clone(names), func(n string) bool {
		return !cleanPath(n) || !deep && want == "" && strings.Contains(n, "/")
	})
	slices.Sort(names)
	names = slices.Compact(names)
	if want != "" {
		return chooseNamed(names, want)
	}
	var folders []string
	for _, n := range names {
		if base := path.Base(n); base == weightsFile || base == indexFile {
			folders = append(folders, path.Dir(n))
		}
	}
	folders = slices.Compact(folders)
	if len(folders) == 1 {
		return chooseFolder(names, folders[0])
	}
	if sets := ggufSets(names); len(folders) == 0 && len(sets) == 1 {
		return layout{gguf: sets[0]}, nil
	} else if len(sets)+len(folders) > 1 {
		var options []string
		for _, s := range sets {
			options = append(options, s[0])
		}
		return layout{}, failure(Usage, "add :FILE to the reference, or give the path of the one you mean", "it holds several models: %s", few(append(options, folders...)))
	}
	for _, n := range names {
		if base := path.Base(n); base == "pytorch_model.bin" || strings.HasPrefix(base, "pytorch_model-") {
			return layout{}, failure(Damaged, "convert it to safetensors; pickled weights can run code and are not read", "it has only pickled weights (%s)", n)
		}
		if strings.HasSuffix(n, ".safetensors") {
			return layout{}, failure(Damaged, "weights are looked for as "+weightsFile+" or "+indexFile, "its weights have an unusual name (%s)", n)
		}
	}
	return layout{}, failure(Missing, "a model is a .gguf file, or config.json with model.safetensors", "it holds no model; there is %s", few(names))
}

func chooseNamed(names []string, want string) (layout, error) {
	var hits []string
	for _, n := range names {
		if n == want {
			hits = []string{n}
			break
		}
		if path.Base(n) == want {
			hits = append(hits, n)
		}
	}
	switch {
	case len(hits) > 1:
		return layout{}, failure(Usage, "give the whole path", "several files are called %s: %s", want, few(hits))
	case len(hits) == 0 && slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, want+"/") }):
		return chooseFolder(names, want)
	case len(hits) == 0:
		return layout{}, failure(Missing, "check the name", "it has no file %s; there is %s", want, few(names))
	case !strings.HasSuffix(hits[0], ".gguf"):
		return layout{}, failure(Usage, "leave the file out to take the whole model", "%s is not a .gguf file", hits[0])
	}
	parts, err := ggufParts(names, hits[0])
	return layout{gguf: parts}, err
}

func chooseFolder(names []string, dir string) (layout, error) {
	at := func(base string) string {
		if p := path.Join(dir, base); slices.Contains(names, p) {
			return p
		}
		return ""
	}
	l := layout{weights: at(weightsFile)}
	if l.weights == "" {
		l.index = at(indexFile)
	}
	if l.weights == "" && l.index == "" {
		return layout{}, failure(Missing, "", "folder %s holds neither %s nor %s", dir, weightsFile, indexFile)
	}
	for _, base := range sidecars {
		if p := at(base); p != "" {
			l.sidecars = append(l.sidecars, p)
		}
	}
	if at(configFile) == "" {
		return layout{}, failure(Missing, "fetch it from where the weights came from", "it has weights, but no %s", configFile)
	}
	return l, nil
}

// ggufParts gives the file, or all parts of the split file that it belongs to.
func ggufParts(names []string, file string) ([]string, error) {
	parts, ok := gguf.SplitNames(path.Base(file))
	if !ok {
		return []string{file}, nil
	}
	for i, p := range parts {
		parts[i] = path.Join(path.Dir(file), p)
		if !slices.Contains(names, parts[i]) {
			return nil, failure(Missing, "", "part %s of the split file is missing", parts[i])
		}
	}
	return parts, nil
}

// ggufSets groups GGUF files: parts of a split file are one set. Projectors of multimodal models are no models.
func ggufSets(names []string) [][]string {
	var sets [][]string
	for _, n := range names {
		base := path.Base(n)
		if !strings.HasSuffix(base, ".gguf") || strings.HasPrefix(base, "mmproj") {
			continue
		}
		if parts, ok := gguf.SplitNames(base); ok && parts[0] != base {
			continue // the set is led by its first part
		}
		if parts, err := ggufParts(names, n); err == nil {
			sets = append(sets, parts)
		} else {
			sets = append(sets, []string{n})
		}
	}
	return sets
}

// few lists names for a message.
func few(names []string) string {
	const most = 12
	if len(names) == 0 {
		return "nothing"
	}
	if len(names) > most {
		return strings.Join(names[:most], ", ") + ", ..."
	}
	return strings.Join(names, ", ")
}
