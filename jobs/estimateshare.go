package jobs

import "github.com/batchmill/batchmill/pipeline"

// maxFingerprints bounds the requests that an estimate remembers: 32 bytes each and as much for the table.
const maxFingerprints = 1 << 20

// sharingEstimate foresees how much work rows will share. Prefixes are compared within windows of as many rows as a run
// sorts at once, so that memory is bounded; a run finds a little more, since the engine remembers prefixes longer.
type sharingEstimate struct {
	spec   *Spec
	rows   int // of a window
	window []*pipeline.Unit
	bytes  int // about, of the window
	seen   map[pipeline.Fingerprint]struct{}

	shared, copies, copied int64
}

func newSharingEstimate(s *Spec) *sharingEstimate {
	e := &sharingEstimate{spec: s, rows: s.WindowRows, seen: map[pipeline.Fingerprint]struct{}{}}
	if e.rows <= 0 {
		e.rows = pipeline.DefaultWindowRows
	}
	return e
}

// add takes a unit of the sample.
func (e *sharingEstimate) add(u *pipeline.Unit) {
	if !e.spec.NoDedup {
		if key, ok := pipeline.FingerprintOf(u); ok {
			if _, twice := e.seen[key]; twice {
				e.copies++
				e.copied += int64(len(u.Request.Tokens))
				return
			}
			if len(e.seen) < maxFingerprints {
				e.seen[key] = struct{}{}
			}
		}
	}
	if e.spec.NoPrefixSharing {
		return
	}
	e.window = append(e.window, u)
	e.bytes += 4 * len(u.Request.Tokens)
	if len(e.window) >= e.rows || e.bytes >= pipeline.DefaultWindowBytes {
		e.flush()
	}
}

func (e *sharingEstimate) flush() {
	e.shared += pipeline.SharedTokens(e.window)
	e.window, e.bytes = e.window[:0], 0
}

// close returns the tokens that come from shared prefixes, the copies, and their tokens.
func (e *sharingEstimate) close() (shared, copies, copied int64) {
	e.flush()
	return e.shared, e.copies, e.copied
}
