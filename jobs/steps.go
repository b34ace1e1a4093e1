package jobs

import "fmt"

// Step names a moment of the commit protocol at which a process may die. Events.Reached is called there, so that tests can
// kill a run between any two of them.
type Step string

// The steps, in the order in which a job comes by them. Those of a chunk come many times a shard, those from the seal to
// the cleaning once a shard, those of overwriting only with --overwrite, before all others.
const (
	WipeStarted   Step = "wipe-started"   // --overwrite: nothing is removed yet
	WipedSuccess  Step = "wiped-success"  // _SUCCESS is gone
	WipedParts    Step = "wiped-parts"    // and the parts
	WipedSides    Step = "wiped-sides"    // and what lies beside them
	WipedSeals    Step = "wiped-seals"    // and the seals
	WipedJournal  Step = "wiped-journal"  // and the journal
	WipedPlan     Step = "wiped-plan"     // and the plan, last
	Planned       Step = "planned"        // the plan is stored, or the stored one is there
	StoreChecked  Step = "store-checked"  // the store refused to store it twice
	ChunkBefore   Step = "chunk-before"   // a chunk of the journal is about to be stored
	ChunkAfter    Step = "chunk-after"    // it is stored
	SealBefore    Step = "seal-before"    // every unit of a shard is journalled
	SealAfter     Step = "seal-after"     // its seal is stored, or another's is found
	SidesBefore   Step = "sides-before"   // dead letters are about to be stored
	SidesAfter    Step = "sides-after"    // they are, or there are none
	PartBefore    Step = "part-before"    // the part is about to be stored
	PartAfter     Step = "part-after"     // it is stored, or another's is found
	CleanBefore   Step = "clean-before"   // the shard's chunks are about to be removed
	CleanAfter    Step = "clean-after"    // they are
	SuccessBefore Step = "success-before" // all parts are there
	SuccessAfter  Step = "success-after"  // _SUCCESS is stored
)

// Steps lists all steps.
func Steps() []Step {
	return []Step{WipeStarted, WipedSuccess, WipedParts, WipedSides, WipedSeals, WipedJournal, WipedPlan, Planned, StoreChecked,
		ChunkBefore, ChunkAfter, SealBefore, SealAfter, SidesBefore, SidesAfter, PartBefore, PartAfter, CleanBefore, CleanAfter,
		SuccessBefore, SuccessAfter}
}

// reached tells whoever listens that a step is reached.
func (e *Events) reached(s Step) {
	if e.Reached != nil {
		e.Reached(s)
	}
}

// warnf tells whoever listens what a person should know.
func (e *Events) warnf(format string, args ...any) {
	if e.Warn != nil {
		e.Warn(fmt.Sprintf(format, args...))
	}
}
