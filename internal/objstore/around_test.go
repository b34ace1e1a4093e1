package objstore

import (
	"context"
	"errors"
	"syscall"
	"testing"
)

// TestAround: a lost answer, a failure, and a write that lands late look to the caller as they would from a store.
func TestAround(t *testing.T) {
	ctx := context.Background()
	const url = "mem://b/k"
	var late Request
	fate := "lost"
	s := New(Options{Around: func(_ context.Context, r Request) error {
		if r.Op != "commit" {
			return r.Do()
		}
		switch f := fate; f {
		case "lost":
			fate = "done"
			if err := r.Do(); err != nil {
				t.Error(err)
			}
			return syscall.ECONNRESET
		case "failed":
			r.Drop()
			return errors.New("no luck")
		case "late":
			late = r
			return errors.New("no luck")
		}
		return r.Do()
	}})
	defer s.Close()
	put := func() error { return s.Put(ctx, url, []byte("x"), CreateOptions{IfAbsent: true}) }
	if err := put(); err != nil {
		t.Errorf("a put whose answer was lost, and that finds its own object on the next try: %v", err)
	}
	if err := put(); !errors.Is(err, ErrExists) {
		t.Errorf("a second put: %v", err)
	}
	if err := s.Delete(ctx, url); err != nil {
		t.Fatal(err)
	}
	for _, fate = range []string{"failed", "late"} {
		if err := put(); err == nil {
			t.Errorf("a put that is %s went well", fate)
		}
		if _, err := s.Stat(ctx, url); !errors.Is(err, ErrNotExist) {
			t.Errorf("after a put that is %s: %v", fate, err)
		}
	}
	if err := late.Do(); err != nil {
		t.Error(err)
	}
	if _, err := s.Stat(ctx, url); err != nil {
		t.Errorf("after it landed: %v", err)
	}
}
