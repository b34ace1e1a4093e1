package jobs

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/batchmill/batchmill/infer"
	"github.com/batchmill/batchmill/internal/objstore"
	"github.com/batchmill/batchmill/internal/ordered"
	"github.com/batchmill/batchmill/pipeline"
	"github.com/batchmill/batchmill/readers"
	"github.com/batchmill/batchmill/writers"
)

// Spec describes a job, as flags, environment and file gave it. What decides results is part of the plan's digest;
// what only decides speed is not (see Decides).
type Spec struct {
	Model     string
	Inputs    []string // URLs, paths, globs or prefixes
	Output    string   // a folder, or one object with a known extension
	Overwrite bool

	InputFormat   string   // "" = by content
	Format        string   // output format; "" = by the output's extension, else the input's
	OutputPrefix  string   // put before our column names
	Columns       []string // carried columns; nil = all
	OutputColumns []string // ours; nil = the default set

	Prompt             string // template
	System             string // template
	PromptColumn       string
	MessagesColumn     string // "none" = none
	TokenIDsColumn     string
	IDColumn           string
	TenantColumn       string // "" = the job is one tenant
	Raw                bool
	ChatTemplate       string // source text; "" = the model's own
	ChatTemplateKwargs map[string]any
	TemplateDate       time.Time // the clock of templates; zero = the job's start

	Params  infer.Params
	Seed    int64
	Samples int32

	MaxModelLen int
	BatchTokens int
	MaxSeqs     int
	KVMemory    int64 // bytes; 0 = from the machine
	WindowRows  int
	NoDedup     bool
	Threads     int
	Device      string
	Activations string
	ISA         string // instruction set: auto, or one that the machine has; no result depends on it

	NoPrefixSharing bool
	NoSpeculation   bool

	Shard        Shard
	Limit        int64 // rows of the whole job; 0 = all
	SplitBytes   int64 // a plain JSONL file above it is cut
	OpenShards   int
	MaxLineBytes int64

	Lock     bool          // tell a second local run of the same shards that this one is at work
	SkipExit int           // exit code where there is nothing to do, or such a run is at work; 0 = 0 and 75
	Grace    time.Duration // from a signal until the work is given up; what the engine has begun by then is done

	JournalUnits int           // results in a chunk of the journal, and
	JournalEvery time.Duration // the time after which a smaller one is stored; 0 = the defaults

	StrictExit   bool
	MaxErrorRate *float64      // share of error rows above which the run stops; nil = none
	MinRows      int64         // rows that are done before it does
	RowTimeout   time.Duration // after which a row in the engine fails; 0 = none
	StallTimeout time.Duration // after which a step that does not end is given up; 0 = none
	Heartbeat    time.Duration // between signs of life; 0 = none
}

// Shard selects the shards of one of several processes: those whose number modulo Count is Index. Count 0 = all.
type Shard struct{ Index, Count int }

// Has tells whether shard number n is this process's.
func (s Shard) Has(n int) bool { return s.Count <= 1 || n%s.Count == s.Index }

// ParseShard reads "i/n", with i from 0 to n-1.
func ParseShard(text string) (Shard, error) {
	var s Shard
	if n, err := fmt.Sscanf(text, "%d/%d", &s.Index, &s.Count); err != nil || n != 2 || fmt.Sprintf("%d/%d", s.Index, s.Count) != text {
		return s, fmt.Errorf("%q is not a shard; write i/n with i from 0 to n-1, such as 0/4", text)
	}
	if s.Count < 1 || s.Index < 0 || s.Index >= s.Count {
		return s, fmt.Errorf("shard %q is out of range: i runs from 0 to n-1", text)
	}
	return s, nil
}

// Defaults of a job.
const (
	DefaultSplitBytes = 256 << 20 // a shard is then minutes to an hour of work on one machine
	DefaultOpenShards = 4         // unfinished shards at once: enough that the tail of one does not empty the batches

	DefaultWindowRows   = pipeline.DefaultWindowRows
	DefaultMaxLineBytes = readers.DefaultMaxLineBytes
)

func (s Spec) withDefaults() Spec {
	def := func(p *string, v string) {
		if *p == "" {
			*p = v
		}
	}
	def(&s.PromptColumn, "prompt")
	def(&s.MessagesColumn, "messages")
	def(&s.Device, "auto")
	def(&s.Activations, "auto")
	def(&s.ISA, "auto")
	if s.MessagesColumn == "none" {
		s.MessagesColumn = ""
	}
	if s.Samples == 0 {
		s.Samples = 1
	}
	if s.SplitBytes == 0 {
		s.SplitBytes = DefaultSplitBytes
	}
	if s.OpenShards == 0 {
		s.OpenShards = DefaultOpenShards
	}
	return s
}

// validate refuses what cannot work, before anything is read.
func (s *Spec) validate() error {
	switch {
	case s.Model == "":
		return Errorf(Usage, "name one with --model, for example --model smollm2-135m; `batchmill models list` shows what is known", "no model given")
	case len(s.Inputs) == 0:
		return Errorf(Usage, "name files with --input, for example --input 'data/*.jsonl'", "no input given")
	case s.Output == "":
		return Errorf(Usage, "name a folder or file with --output, for example --output out/", "no output given")
	case s.Device == "cuda":
		return Errorf(Unavailable, "use --device cpu", "--device cuda: batchmill does not run on CUDA devices yet")
	case s.Device != "auto" && s.Device != "cpu":
		return Errorf(Usage, "use auto or cpu", "unknown --device %q", s.Device)
	case s.Samples < 1:
		return Errorf(Usage, "", "--samples must be at least 1, not %d", s.Samples)
	case s.Raw && (s.System != "" || s.ChatTemplate != ""):
		return Errorf(Usage, "leave --raw out, or the other", "--raw uses no chat template, so --system and --chat-template have no meaning beside it")
	case s.Prompt != "" && s.TokenIDsColumn != "":
		return Errorf(Usage, "give one of them", "both --prompt and --token-ids-column are given")
	case s.Limit < 0:
		return Errorf(Usage, "", "--limit must not be negative")
	case s.Samples > 1 && s.Params.Temperature == 0:
		return Errorf(Usage, "give --temperature above 0", "--samples %d: those of a greedy decode would all be equal", s.Samples)
	}
	if err := (&deviceOptions{s.Threads, s.ISA, s.Activations}).check(); err != nil {
		return err
	}
	if err := s.validateOutput(); err != nil {
		return err
	}
	if err := s.validatePolicies(); err != nil {
		return err
	}
	if s.Format != "" && !slices.Contains(writers.Formats(), s.Format) {
		return Errorf(Usage, "known: "+strings.Join(writers.Formats(), ", "), "unknown --format %q", s.Format)
	}
	return nil
}

// validateOutput refuses a format that the output's name contradicts, and names of formats that are not written.
func (s *Spec) validateOutput() error {
	ext := path.Ext(strings.TrimSuffix(s.Output, "/"))
	if !strings.HasSuffix(s.Output, "/") && slices.Contains([]string{".csv", ".tsv", ".arrow", ".feather", ".gz", ".zst", ".json", ".txt"}, ext) {
		return Errorf(Usage, "write to a .parquet or .jsonl file, or end a folder's name with a slash", "--output %s: %s files are not written", s.Output, ext)
	}
	if named := formatOfName(s.Output); named != "" && s.Format != "" && extension(s.Format) != extension(named) {
		return Errorf(Usage, "give a name that ends in "+extension(s.Format)+", or a folder", "--output %s does not hold --format %s", s.Output, s.Format)
	}
	return nil
}

// extension of the files of an output format.
func extension(format string) string {
	if format == "parquet" {
		return ".parquet"
	}
	return ".jsonl"
}

// formatOfName tells a file's format by the extension of its path or URL; "" where it has none that is known.
func formatOfName(name string) string {
	if loc, err := objstore.Parse(name); err == nil { // without connection settings
		name = loc.Key
	}
	switch path.Ext(name) {
	case ".parquet":
		return "parquet"
	case ".jsonl", ".ndjson":
		return "jsonl"
	}
	return ""
}

// Decides is everything in a specification that decides results. Its JSON form enters the plan's digest; a field that
// differs from a stored plan is named by its JSON name.
type Decides struct {
	ResultVersion      int             `json:"result_version"`
	ModelDigest        string          `json:"model_digest"`
	TokenizerDigest    string          `json:"tokenizer_digest"`
	ChatTemplate       string          `json:"chat_template"`
	ChatTemplateKwargs json.RawMessage `json:"chat_template_kwargs"`
	Prompt             string          `json:"prompt"`
	System             string          `json:"system"`
	PromptColumn       string          `json:"prompt_column"`
	MessagesColumn     string          `json:"messages_column"`
	TokenIDsColumn     string          `json:"token_ids_column"`
	IDColumn           string          `json:"id_column"`
	Raw                bool            `json:"raw"`
	Params             infer.Params    `json:"params"`
	MaxModelLen        int             `json:"max_model_len"`
	Seed               int64           `json:"seed"`
	Samples            int32           `json:"samples"`
	Format             string          `json:"format"`
	OutputPrefix       string          `json:"output_prefix"`
	Columns            []string        `json:"columns"`
	OutputColumns      []string        `json:"output_columns"`
	InputFormat        string          `json:"input_format"`
	Limit              int64           `json:"limit"`
	SplitBytes         int64           `json:"split_bytes"`
	MaxLineBytes       int64           `json:"max_line_bytes"`
	DeviceKind         string          `json:"device_kind"`
	Activations        string          `json:"activations"`
}

// resultVersion rises whenever this tool would give another result for the same row and parameters.
const resultVersion = 1

// ParseKwargs reads a JSON object of variables for chat templates.
func ParseKwargs(data []byte) (map[string]any, error) {
	v, err := ordered.DecodeJSON(data)
	if err != nil {
		return nil, err
	}
	m, ok := v.(*ordered.Map)
	if !ok {
		return nil, errors.New("not a JSON object")
	}
	out := map[string]any{}
	for _, k := range m.Keys() {
		out[k], _ = m.Get(k)
	}
	return out, nil
}
