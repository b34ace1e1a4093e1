package objstore

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

const (
	firstPause = 100 * time.Millisecond
	longPause  = 10 * time.Second // more would waste the end of a store's outage
)

// pauseBefore is the wait before the n-th retry (from 0): exponential with full jitter, so that a thousand workers that
// failed together do not come back together.
func pauseBefore(n int) time.Duration {
	d := longPause
	if n < 10 {
		d = min(d, firstPause<<n)
	}
	return time.Duration(rand.Int64N(int64(d))) + time.Millisecond
}

// sleep waits or returns the context's error.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// retry runs f until it succeeds, fails for good, or RetryFor is over. Each try ends at the total deadline. The error is
// classified.
func retry[T any](ctx context.Context, o Options, op, url string, f func(context.Context) (T, error)) (T, error) {
	deadline := time.Now().Add(o.RetryFor)
	for n := 0; ; n++ {
		tryCtx, cancel := context.WithDeadline(ctx, deadline)
		v, err := f(tryCtx)
		cancel()
		if err == nil {
			return v, nil
		}
		if ctx.Err() != nil {
			return v, ctx.Err()
		}
		err = wrap(op, url, err)
		pause := pauseBefore(n)
		if !errors.Is(err, ErrTemporary) || time.Now().Add(pause).After(deadline) {
			return v, err
		}
		if err := sleep(ctx, pause); err != nil {
			return v, err
		}
	}
}
