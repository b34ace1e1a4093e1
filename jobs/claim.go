package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/batchmill/batchmill/internal/objstore"
)

// claim makes the stored plan and this job's plan one: it stores ours if there is none, takes the stored one if it
// decides the same, and refuses otherwise. It returns the numbers of the shards that this process still has to do, and the
// seals of those whose part alone is missing.
func (r *runState) claim(ctx context.Context) (todo []int, sealed []*Seal, err error) {
	j := r.job
	if err := r.clear(ctx); err != nil {
		return nil, nil, err
	}
	stored, err := putJSON(ctx, j.store, j.layout.plan(), j.plan)
	if err != nil {
		return nil, nil, err
	}
	j.events.reached(Planned)
	if err := checkStore(ctx, j.store, j.layout.plan(), j.plan); err != nil {
		return nil, nil, err
	}
	j.events.reached(StoreChecked)
	info, err := j.store.Stat(ctx, j.layout.plan())
	if err != nil {
		return nil, nil, classify(err)
	}
	r.planTag = info.ETag
	if !stored {
		if err := r.adopt(ctx); err != nil {
			return nil, nil, err
		}
	}
	if todo, sealed, err = r.missing(ctx); err != nil {
		return nil, nil, err
	}
	return todo, sealed, sweepJournal(ctx, j.store, j.layout, func(n int) bool { return r.facts[n] != nil }, &j.events)
}

// clearTries is how often an output is cleared: a run that is still at work there may commit one more part, but then
// finds its plan gone.
const (
	clearTries = 5
	clearPause = 200 * time.Millisecond
)

// clear removes what is in the way, if that was asked for, and refuses what is left.
func (r *runState) clear(ctx context.Context) error {
	j := r.job
	for try := 1; ; try++ {
		if j.spec.Overwrite {
			if err := wipe(ctx, j.store, j.layout, j.events.reached); err != nil {
				return err
			}
		}
		err := refuseStray(ctx, j.store, j.layout)
		if err == nil || !j.spec.Overwrite || try == clearTries {
			return err
		}
		select {
		case <-time.After(clearPause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// planned tells whether a plan is stored.
func (r *runState) planned(ctx context.Context) (bool, error) {
	return hasPlan(ctx, r.job.store, r.job.layout)
}

func hasPlan(ctx context.Context, store *objstore.Store, l layout) (bool, error) {
	_, err := store.Stat(ctx, l.plan())
	if errors.Is(err, objstore.ErrNotExist) {
		return false, nil
	}
	return err == nil, classify(err)
}

// errForeignPlan ends a run whose output somebody else has taken over.
var errForeignPlan = errors.New("the stored plan was removed or replaced by another run with --overwrite")

// guard is asked before every commit: is the stored plan still the one that this run goes by?
func (r *runState) guard(ctx context.Context) error {
	info, err := r.job.store.Stat(ctx, r.job.layout.plan())
	if err != nil && !errors.Is(err, objstore.ErrNotExist) {
		return classify(err)
	}
	if err != nil || info.ETag != r.planTag {
		return Errorf(BadInput, "only one job may use an output; run this one to another --output", "%s: %w", r.job.layout.shown(), errForeignPlan)
	}
	return nil
}

// storeChecks is how often an unclear answer of the store is asked again.
const storeChecks = 3

// checkStore repeats the conditional put of the plan: a store that accepts it cannot commit anything exactly once.
func checkStore(ctx context.Context, store *objstore.Store, url string, plan *Plan) error {
	data, err := encodeJSON(plan)
	if err != nil {
		return err
	}
	for range storeChecks {
		if err = putOnce(ctx, store, url, data); err == nil {
			return Errorf(Config, "use a store with conditional writes (If-None-Match)", "%s accepted a second conditional write: nothing can be committed exactly once there", url)
		}
		if errors.Is(err, objstore.ErrExists) || errors.Is(err, objstore.ErrConflict) {
			return nil
		}
	}
	return classifyPut(fmt.Errorf("check that %s refuses a second write: %w", url, err))
}

// putOnce tries one conditional put, without the read-back and the retries of Store.Put: here the refusal is what counts.
func putOnce(ctx context.Context, store *objstore.Store, url string, data []byte) error {
	w, err := store.Create(ctx, url, objstore.CreateOptions{IfAbsent: true, ContentType: jsonType})
	if err != nil {
		return err
	}
	if _, err := w.Write(data); err != nil {
		w.Abort()
		return err
	}
	return w.Commit()
}

// adopt takes the stored plan in place of ours, if it decides the same.
func (r *runState) adopt(ctx context.Context) error {
	j := r.job
	stored := &Plan{}
	if err := getJSON(ctx, j.store, j.layout.plan(), stored); err != nil {
		return classify(err)
	}
	if stored.Version != planVersion {
		return Errorf(BadInput, "use the version that made it, or write to another --output", "%s has version %d, this program reads %d", j.layout.plan(), stored.Version, planVersion)
	}
	if err := stored.compareParents(j.plan); err != nil {
		return err
	}
	if err := stored.compare(j.plan); err != nil {
		return err
	}
	if date := j.spec.TemplateDate; !date.IsZero() && !date.Equal(stored.TemplateDate) {
		return Errorf(BadInput, "leave --template-date out to go on, or write to another --output", "%w",
			differs("template_date", stored.TemplateDate.Format(time.RFC3339), date.Format(time.RFC3339)))
	}
	if fresh := newInputs(stored, j.plan); len(fresh) > 0 {
		for _, url := range fresh {
			if slices.ContainsFunc(j.spec.Inputs, func(named string) bool { n, err := objstore.Normalize(named); return err == nil && n == url }) {
				return Errorf(BadInput, "run it as a job of its own to another --output, or start anew with --overwrite", "input %s is not part of the stored plan", url)
			}
		}
		r.leftOut = len(fresh)
		if j.events.Warn != nil {
			j.events.Warn(fmt.Sprintf("%d files that match now were not there when the job was planned, and are left out: %s", len(fresh), few(fresh)))
		}
	}
	digest := stored.Digest
	if err := stored.seal(); err != nil {
		return err
	}
	if stored.Digest != digest {
		return Errorf(BadInput, "start anew with --overwrite", "%s was changed by hand: its digest does not fit", j.layout.plan())
	}
	j.plan = stored
	return j.lay()
}

// newInputs are the inputs that a stored plan does not have.
func newInputs(stored, now *Plan) []string {
	known := map[string]bool{}
	for _, in := range stored.Inputs {
		known[in.URL] = true
	}
	var fresh []string
	for _, in := range now.Inputs {
		if !known[in.URL] {
			fresh = append(fresh, in.URL)
		}
	}
	return fresh
}

// few joins the first of many names.
func few(names []string) string {
	const shown = 3
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
}

// missing lists the shards of this process without a part, apart those that are sealed, and collects the facts of those
// that have one.
func (r *runState) missing(ctx context.Context) (todo []int, sealed []*Seal, err error) {
	j := r.job
	parts, err := existingParts(ctx, j.store, j.layout)
	if err != nil {
		return nil, nil, err
	}
	infos, err := j.store.List(ctx, j.layout.seals())
	if err != nil {
		return nil, nil, classify(err)
	}
	there := map[string]bool{}
	for _, info := range infos {
		there[info.URL] = true
	}
	seals := make([]*Seal, len(j.plan.Shards))
	err = each(len(seals), func(n int) (err error) {
		info, done := parts[j.layout.part(n)]
		switch {
		case !j.spec.Shard.Has(n):
		case done:
			seals[n], err = trust(ctx, j.store, j.layout, j.plan, n, info)
		case there[j.layout.seal(n)]:
			seals[n], err = readSeal(ctx, j.store, j.layout, j.plan, n)
		}
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	for n, s := range seals {
		_, done := parts[j.layout.part(n)]
		switch {
		case !j.spec.Shard.Has(n):
		case done:
			r.facts[n] = &s.Facts
		case s != nil:
			sealed = append(sealed, s)
		default:
			todo = append(todo, n)
		}
	}
	return todo, sealed, nil
}

// existingParts lists the committed parts of an output by URL.
func existingParts(ctx context.Context, store *objstore.Store, l layout) (map[string]objstore.Info, error) {
	found := map[string]objstore.Info{}
	if l.single != "" {
		info, err := store.Stat(ctx, l.single)
		if errors.Is(err, objstore.ErrNotExist) {
			return found, nil
		}
		if err != nil {
			return nil, classify(err)
		}
		found[info.URL] = info
		return found, nil
	}
	infos, err := store.List(ctx, l.base)
	if err != nil {
		return nil, classify(err)
	}
	for _, info := range infos {
		if isPart(l, info.URL) {
			found[info.URL] = info
		}
	}
	return found, nil
}

// isPart tells whether a URL is a part directly in the output folder, of any plan.
func isPart(l layout, url string) bool {
	name := objstore.Base(url)
	return objstore.Join(l.base, name) == url && strings.HasPrefix(name, "part-") && formatOfName(name) != ""
}

// refuseStray ends a run whose output holds parts but no plan: they cannot be trusted, and ours would mix with them.
func refuseStray(ctx context.Context, store *objstore.Store, l layout) error {
	if there, err := hasPlan(ctx, store, l); there || err != nil {
		return err
	}
	parts, err := existingParts(ctx, store, l)
	if err != nil {
		return err
	}
	letters, err := store.List(ctx, objstore.Join(l.base, "_errors/"))
	if err != nil {
		return classify(err)
	}
	for _, info := range letters {
		if ownName(info.URL) {
			parts[info.URL] = info
		}
	}
	for url := range parts {
		if there, err := hasPlan(ctx, store, l); there || err != nil { // a process beside this one has begun meanwhile
			return err
		}
		return Errorf(BadInput, "choose another --output, or remove what is there with --overwrite", "the output holds %s, but no plan that tells where it comes from", url)
	}
	return nil
}

// ownName tells whether an object has the name of a part, or of what belongs to one.
func ownName(url string) bool { return strings.HasPrefix(objstore.Base(url), "part-") }

// wipe removes a job's output, the plan last: whatever interrupts it, a new run finds the plan and goes on removing or
// refuses.
func wipe(ctx context.Context, store *objstore.Store, l layout, reached func(Step)) error {
	reached(WipeStarted)
	remove := func(urls ...string) error {
		for _, url := range urls {
			if err := store.Delete(ctx, url); err != nil {
				return classify(fmt.Errorf("remove %s: %w", url, err))
			}
		}
		return nil
	}
	folder := func(url string, own func(url string) bool) error {
		infos, err := store.List(ctx, url)
		if err != nil {
			return classify(err)
		}
		for _, info := range infos {
			if own(info.URL) {
				err = errors.Join(err, remove(info.URL))
			}
		}
		return err
	}
	steps := []struct {
		then Step
		do   func() error
	}{
		{WipedSuccess, func() error { return remove(l.success()) }},
		{WipedParts, func() error {
			parts, err := existingParts(ctx, store, l)
			for url := range parts {
				err = errors.Join(err, remove(url))
			}
			return err
		}},
		{WipedSides, func() error { return folder(objstore.Join(l.base, "_errors/"), ownName) }},
		{WipedSeals, func() error { return folder(l.seals(), l.isSeal) }},
		{WipedJournal, func() error { return folder(l.journals(), isChunk) }},
		{WipedPlan, func() error { return remove(l.plan()) }},
	}
	for _, s := range steps {
		if err := s.do(); err != nil {
			return err
		}
		reached(s.then)
	}
	return nil
}
