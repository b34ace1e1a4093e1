package chaos

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/batchmill/batchmill/internal/faultproxy"
)

// TestUploadsOfTheDead: uploads that a killed life had begun, of a part and of its dead letters, are gone when the job is
// done, also if the life that committed the part was killed right behind that.
func TestUploadsOfTheDead(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the built program: not a short test")
	}
	l := newLab(t, s3Place(t), newTally())
	var w *work
	for i := range l.works {
		if l.works[i].name == "uploads" {
			w = &l.works[i]
		}
	}
	isLetters := func(path string) bool { return strings.Contains(path, "/_errors/") }
	for _, of := range []string{"letters", "part"} {
		prefix := "out/dead-" + of
		var mu sync.Mutex
		var p *process
		begun, finished := false, false
		proxy, err := faultproxy.Start(faultproxy.Config{Target: l.place.srv.Endpoint, Watch: func(op faultproxy.Op, path string, landed bool) {
			mu.Lock()
			defer mu.Unlock()
			if p == nil || begun && finished {
				return
			}
			if !begun && op == faultproxy.Part && !landed && isLetters(path) == (of == "letters") { // the first life, in the middle
				begun = true
				p.kill()
			} else if begun && op == faultproxy.Complete && landed && !isLetters(path) { // the second, behind its commit
				finished = true
				p.kill()
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		for life := range 2 {
			mu.Lock()
			p, err = launch(l.bin, l.tmp, l.place.env(proxy.URL), w.args(l.place, prefix, nil)...)
			mu.Unlock()
			if err != nil {
				t.Fatal(err)
			}
			if code, err := p.wait(context.Background()); code != -1 || err != nil {
				t.Fatalf("%s: life %d was to be killed, and ended with %d, %v:\n%s", of, life, code, err, p.stderr.String())
			}
			proxy.Settle()
			if left, err := l.place.uploads(prefix + "/"); life == 0 && (err != nil || len(left) == 0) {
				t.Fatalf("%s: the first life left no upload (%v): this test proves nothing", of, err)
			}
		}
		if err := proxy.Close(); err != nil {
			t.Error(err)
		}
		if err := l.simply(w.args(l.place, prefix, nil), l.place.env("")); err != nil {
			t.Fatal(err)
		}
		if left, err := strays(l.place, w.folder(prefix)); err != nil || len(left) > 0 {
			t.Errorf("%s: left %q, %v", of, left, err)
		}
	}
}
