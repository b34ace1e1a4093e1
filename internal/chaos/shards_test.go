package chaos

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// TestProcessesShareAPlan: several processes start at once on one output, each with its share of the shards. One plan wins,
// the output is that of a single process, and whoever comes last says that it is complete.
func TestProcessesShareAPlan(t *testing.T) {
	if testing.Short() {
		t.Skip("starts the built program many times: not a short test")
	}
	for name, makePlace := range map[string]func(*testing.T) *place{"file": localPlace, "s3": s3Place} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, makePlace(t), newTally())
			w := &l.works[0]
			ref, err := l.reference(w)
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range []int{2, 8} {
				prefix := fmt.Sprintf("out/shared-%d", n)
				var all []*process
				for i := range n {
					p, err := launch(l.bin, l.tmp, l.place.env(""), append(w.args(l.place, prefix, nil), "--shard", fmt.Sprintf("%d/%d", i, n))...)
					if err != nil {
						t.Fatal(err)
					}
					all = append(all, p)
				}
				for i, p := range all {
					if code, err := p.wait(context.Background()); code != 0 || err != nil {
						t.Errorf("process %d of %d ended with %d, %v:\n%s", i, n, code, err, p.stderr.String())
					}
				}
				out, err := readOutput(l.place, w, prefix)
				if err == nil {
					err = out.sameAs(ref.output, w)
				}
				if err != nil {
					t.Errorf("%d processes: %v", n, err)
				}
				if left, err := strays(l.place, w.folder(prefix)); err != nil || len(left) > 0 {
					t.Errorf("%d processes left %s (%v)", n, strings.Join(left, ", "), err)
				}
			}
		})
	}
}
