package chaos

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/batchmill/batchmill/internal/faultproxy"
)

// What `make chaos` sets. Without them an ordinary test run does a few runs with a fixed seed.
const (
	runsVar  = "BATCHMILL_CHAOS_RUNS"
	seedVar  = "BATCHMILL_CHAOS_SEED"
	limitVar = "BATCHMILL_CHAOS_TIME" // a duration after which no new run begins
	placeVar = "BATCHMILL_CHAOS_ON"   // file, s3, or both if empty
)

// fewRuns is what an ordinary test run does: some seconds.
const fewRuns = 12

type settings struct {
	runs  int
	seed  uint64
	limit time.Duration
	on    string
	long  bool // asked for by `make chaos`
}

func readSettings(t *testing.T) settings {
	t.Helper()
	s := settings{runs: fewRuns, seed: 1, limit: time.Hour, on: os.Getenv(placeVar)}
	for name, set := range map[string]func(string) error{
		runsVar: func(v string) (err error) { s.runs, err = strconv.Atoi(v); s.long = true; return err },
		seedVar: func(v string) (err error) {
			if v == "random" {
				v = strconv.FormatInt(time.Now().UnixNano()%1_000_000*1000, 10)
			}
			s.seed, err = strconv.ParseUint(v, 10, 64)
			return err
		},
		limitVar: func(v string) (err error) { s.limit, err = time.ParseDuration(v); return err },
	} {
		if v := os.Getenv(name); v != "" {
			if err := set(v); err != nil {
				t.Fatalf("%s=%q: %v", name, v, err)
			}
		}
	}
	return s
}

// tally counts what was done to the program.
type tally struct {
	mu      sync.Mutex
	runs    map[string]int // by place
	jobs    map[string]int
	kills   map[string]int // by occasion
	lives   int            // starts of the program
	gaveUp  int            // lives that ended because the store failed for too long
	rows    int            // of outputs that were compared
	faults  map[faultproxy.Kind]int
	asked   int // requests through the proxy
	skipped int // runs that time did not allow
	slowest time.Duration
	slow    string // whose life that was, and how it ended
	began   time.Time
}

func newTally() *tally {
	return &tally{runs: map[string]int{}, jobs: map[string]int{}, kills: map[string]int{}, faults: map[faultproxy.Kind]int{}, began: time.Now()}
}

// String is the report.
func (c *tally) String() string {
	var b strings.Builder
	total := 0
	for _, n := range c.runs {
		total += n
	}
	kills := 0
	for _, n := range c.kills {
		kills += n
	}
	faults := 0
	for _, n := range c.faults {
		faults += n
	}
	fmt.Fprintf(&b, "%d runs (%s; jobs %s) in %.0f s", total, byName(c.runs), byName(c.jobs), time.Since(c.began).Seconds())
	if c.skipped > 0 {
		fmt.Fprintf(&b, "; %d more did not fit the time", c.skipped)
	}
	fmt.Fprintf(&b, "\n%d kills of %d lives (%s); %d lives ended because the store failed for too long\n", kills, c.lives, byName(c.kills), c.gaveUp)
	fmt.Fprintf(&b, "the longest life took %.1f s (%s)\n", c.slowest.Seconds(), c.slow)
	fmt.Fprintf(&b, "%d faults in %d requests (%s)\n%d rows compared\n", faults, c.asked, byName(c.faults), c.rows)
	return b.String()
}

// byName prints counts in a stable order.
func byName[K ~string](counts map[K]int) string {
	var out []string
	for _, name := range sortedKeys(counts) {
		out = append(out, fmt.Sprintf("%s %d", name, counts[name]))
	}
	return strings.Join(out, ", ")
}
