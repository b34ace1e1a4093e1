package jobs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/batchmill/batchmill/internal/objstore"
)

// output is what a job's output says about itself: its plan and its names. It is read from storage alone, so that any
// machine can ask.
type output struct {
	store  *objstore.Store
	layout layout
	plan   *Plan
}

// openOutput reads the plan of an output and checks that it is whole.
func openOutput(ctx context.Context, store *objstore.Store, url string) (*output, error) {
	l, err := newLayout(url, formatOfName(url))
	if err != nil {
		return nil, err
	}
	plan := &Plan{}
	if err := getJSON(ctx, store, l.plan(), plan); err != nil {
		if errors.Is(err, objstore.ErrNotExist) {
			return nil, Errorf(NoInput, "name what was given to run as --output", "there is no job's output at %s: %w", l.shown(), err)
		}
		return nil, classify(err)
	}
	if plan.Version != planVersion {
		return nil, Errorf(BadInput, "use the version that made it", "%s has version %d, this program reads %d", l.plan(), plan.Version, planVersion)
	}
	digest := plan.Digest
	if err := plan.seal(); err != nil {
		return nil, err
	}
	if plan.Digest != digest {
		return nil, Errorf(BadInput, "", "%s was changed by hand: its digest does not fit", l.plan())
	}
	if l, err = newLayout(url, plan.Decides.Format); err != nil {
		return nil, err
	}
	l.parts = len(plan.Shards)
	return &output{store: store, layout: l, plan: plan}, nil
}

// success reads the marker of a complete job, nil where there is none.
func (o *output) success(ctx context.Context) (*success, error) {
	s := &success{}
	err := getJSON(ctx, o.store, o.layout.success(), s)
	if errors.Is(err, objstore.ErrNotExist) {
		return nil, nil
	}
	return s, classify(err)
}

// partName is the name of part n as facts give it.
func (o *output) partName(n int) string { return o.layout.partName(n) + o.layout.ext }

// factsOf reads what was sealed of parts that are there, by shard number. A part that does not fit its seal is left out; why
// says so.
func (o *output) factsOf(ctx context.Context, parts map[string]objstore.Info) (facts map[int]*Facts, why map[int]error, err error) {
	facts, why = map[int]*Facts{}, map[int]error{}
	var mu sync.Mutex
	err = each(len(o.plan.Shards), func(n int) error {
		info, ok := parts[o.layout.part(n)]
		if !ok {
			return nil
		}
		s, err := readSeal(ctx, o.store, o.layout, o.plan, n)
		switch {
		case err != nil && KindOf(err) != BadInput:
			return err
		case err == nil:
			err = s.fits(o.layout, n, info)
		}
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			why[n] = err
		} else {
			facts[n] = &s.Facts
		}
		return nil
	})
	return facts, why, err
}

// strangers lists what lies among the data, or among the dead letters, and is not the plan's: whoever reads the folder
// would take it for results.
func (o *output) strangers(ctx context.Context) ([]string, error) {
	own := map[string]bool{}
	for n := range o.plan.Shards {
		own[o.layout.part(n)], own[o.layout.errors(n)] = true, true
	}
	letters := objstore.Join(o.layout.base, "_errors/")
	prefix := o.layout.base
	if o.layout.single != "" {
		prefix = letters
	}
	infos, err := o.store.List(ctx, prefix)
	if err != nil {
		return nil, classify(fmt.Errorf("list %s: %w", prefix, err))
	}
	base, err := objstore.Parse(o.layout.base)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, info := range infos {
		loc, err := objstore.Parse(info.URL)
		if err != nil {
			return nil, err
		}
		name := strings.TrimPrefix(loc.Key, base.Key)
		if own[info.URL] || hidden(name) && !strings.HasPrefix(name, "_errors/") {
			continue
		}
		out = append(out, info.URL)
	}
	return out, nil
}

// hidden tells whether a name below an output is not data: one of its elements starts with "_" or ".".
func hidden(name string) bool {
	for elem := range strings.SplitSeq(name, "/") {
		if strings.HasPrefix(elem, "_") || strings.HasPrefix(elem, ".") {
			return true
		}
	}
	return false
}
