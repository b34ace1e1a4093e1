package jobs

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/batchmill/batchmill/infer/bundle"
	"github.com/batchmill/batchmill/infer/chat"
	"github.com/batchmill/batchmill/infer/model"
	"github.com/batchmill/batchmill/internal/jinja"
	"github.com/batchmill/batchmill/internal/objstore"
	"github.com/batchmill/batchmill/internal/row"
	"github.com/batchmill/batchmill/pipeline"
	"github.com/batchmill/batchmill/writers"
)

// Job is a job that is planned and can run.
type Job struct {
	spec   Spec
	store  *objstore.Store
	bundle *bundle.Bundle
	config model.Config // of the model, not loaded
	plan   *Plan
	layout layout
	schema *row.Schema
	prompt pipeline.Prompting
	runID  string
	start  time.Time
	events Events
	lost   bool // a run hangs in it: what it uses stays
}

// Prepare resolves the model, reads what the inputs are, and makes the plan. Nothing is written.
func Prepare(ctx context.Context, spec Spec, store *objstore.Store, ev Events) (*Job, error) {
	spec = spec.withDefaults()
	if err := spec.validate(); err != nil {
		return nil, err
	}
	j := &Job{spec: spec, store: store, runID: newRunID(), start: time.Now(), events: ev}
	var err error
	if j.prompt, err = j.templates(); err != nil {
		return nil, err
	}
	if j.bundle, err = OpenModel(ctx, spec.Model, store, nil); err != nil {
		return nil, err
	}
	if err := j.describe(); err != nil {
		return nil, err
	}
	if most := j.config.MaxPositions; spec.MaxModelLen > most {
		return nil, Errorf(Usage, "", "--max-model-len %d is beyond the %d positions that the model was made for", spec.MaxModelLen, most)
	}
	j.prompt.MaxLen = j.maxLen()
	decides, err := j.decides()
	if err != nil {
		return nil, err
	}
	p := &planner{store: store, spec: &j.spec, names: columnsOf(&j.prompt)}
	if err := p.makePlan(ctx, decides, j.runID, j.start); err != nil {
		return nil, err
	}
	j.plan, j.schema = p.plan, p.schema
	j.plan.ModelName = j.bundle.Name
	j.prompt.Batch = p.batchShape()
	return j, j.lay()
}

// describe reads what the model is, without loading it.
func (j *Job) describe() error {
	dev, err := newDevice(j.bundle, deviceOptions{threads: 1, isa: j.spec.ISA, activations: j.spec.Activations})
	if err != nil {
		return err
	}
	defer dev.Close()
	if j.config, err = j.bundle.Describe(dev); err != nil {
		return modelError(fmt.Errorf("model %s: %w", j.bundle.Name, err))
	}
	return nil
}

// Plan is the job's plan.
func (j *Job) Plan() *Plan { return j.plan }

// Close releases the model's files.
func (j *Job) Close() error {
	if j.lost {
		return nil
	}
	return j.bundle.Close()
}

// lay fixes what follows from the plan: names, the chat template with its clock.
func (j *Job) lay() error {
	var err error
	if j.layout, err = newLayout(j.spec.Output, j.plan.Decides.Format); err != nil {
		return err
	}
	j.layout.parts = len(j.plan.Shards)
	j.prompt.Now = j.plan.TemplateDate
	if src := j.plan.Decides.ChatTemplate; src != "" && !j.spec.Raw {
		j.prompt.Chat, err = chat.New(src, chat.Config{BOS: j.bundle.BOS, EOS: j.bundle.EOS, Now: j.plan.TemplateDate})
		if err != nil {
			if j.spec.ChatTemplate != "" {
				return Errorf(Usage, "templates are Jinja", "--chat-template: %w", err)
			}
			return Errorf(BadInput, "give another with --chat-template FILE, or use --raw", "the model's chat template: %w", err)
		}
	}
	return writersError(writers.Check(j.writerConfig()))
}

func writersError(err error) error {
	if err == nil {
		return nil
	}
	return Errorf(Usage, "rename ours with --output-prefix, or choose with --columns and --output-columns", "output columns: %w", err)
}

func (j *Job) templates() (p pipeline.Prompting, err error) {
	s := &j.spec
	parse := func(flag, src string) (*jinja.Template, error) {
		if src == "" {
			return nil, nil
		}
		t, err := jinja.Parse(flag, src, jinja.Options{Strict: true})
		if err != nil {
			return nil, Errorf(Usage, "templates are Jinja: {{ column }}", "%w", err)
		}
		return t, nil
	}
	if p.Prompt, err = parse("--prompt", s.Prompt); err != nil {
		return p, err
	}
	if p.System, err = parse("--system", s.System); err != nil {
		return p, err
	}
	p.PromptColumn, p.MessagesColumn, p.TokenIDsColumn, p.IDColumn = s.PromptColumn, s.MessagesColumn, s.TokenIDsColumn, s.IDColumn
	p.TenantColumn = s.TenantColumn
	p.Warn = func(message string) { j.events.warnf("%s", message) }
	p.Raw, p.Kwargs, p.Params, p.Seed, p.Samples = s.Raw, s.ChatTemplateKwargs, s.Params, s.Seed, s.Samples
	return p, nil
}

func (j *Job) decides() (Decides, error) {
	s, b := &j.spec, j.bundle
	given := map[string]any{}
	for k, v := range s.ChatTemplateKwargs {
		given[k] = plain(v)
	}
	kwargs, err := json.Marshal(given)
	if err != nil {
		return Decides{}, Errorf(Usage, "", "chat template kwargs: %w", err)
	}
	d := Decides{
		ResultVersion: resultVersion, ModelDigest: b.Digest, TokenizerDigest: b.Tokenizer.Digest(),
		ChatTemplate: s.ChatTemplate, ChatTemplateKwargs: kwargs, Prompt: s.Prompt, System: s.System,
		PromptColumn: s.PromptColumn, MessagesColumn: s.MessagesColumn, TokenIDsColumn: s.TokenIDsColumn, IDColumn: s.IDColumn,
		Raw: s.Raw, Params: s.Params, MaxModelLen: j.maxLen(), Seed: s.Seed, Samples: s.Samples,
		OutputPrefix: s.OutputPrefix, Columns: s.Columns, OutputColumns: s.OutputColumns,
		InputFormat: s.InputFormat, Limit: s.Limit, SplitBytes: s.SplitBytes, MaxLineBytes: s.MaxLineBytes,
		DeviceKind: "cpu", Activations: resolveActivations(b, s.Activations),
	}
	if d.ChatTemplate == "" {
		d.ChatTemplate = b.ChatTemplate
	}
	return d, nil
}

// maxLen is the longest sequence: the model's, or less if asked.
func (j *Job) maxLen() int {
	n := j.config.MaxPositions
	if m := j.spec.MaxModelLen; m > 0 && (n == 0 || m < n) {
		n = m
	}
	return n
}

func (j *Job) writerConfig() writers.Config {
	schema := *j.schema
	if j.plan.Columns != nil {
		schema.Columns = j.plan.Columns
	}
	s := &j.spec
	return writers.Config{
		Format: j.plan.Decides.Format, Source: &schema, Prefix: s.OutputPrefix, Carry: s.Columns, Own: s.OutputColumns,
		Provenance: writers.Provenance{Model: j.plan.ModelName, ModelDigest: j.bundle.Digest, RunID: j.runID, Created: j.plan.Created},
		Logprobs:   s.Params.Logprobs >= 0, TokenIDs: s.Params.ReturnTokenIDs,
		Footer: []row.KeyValue{{Key: footerPlan, Value: j.plan.Digest}},
	}
}

func newRunID() string {
	var b [8]byte
	rand.Read(b[:])
	return time.Now().UTC().Format("20060102T150405Z-") + hex.EncodeToString(b[:])
}
