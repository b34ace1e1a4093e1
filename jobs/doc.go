// Package jobs owns a job from its description to its committed output: the specification, the plan, shards, results on
// their way to disk, the commit of parts, and what a finished job says about itself.
//
// The contract: the data object under its final, deterministic name is the commit. A part appears whole or not at all,
// is never rewritten, and a second run of the same job does only what is missing. A plan fixes, once, everything that
// decides a result; a run that would decide differently is refused with the name of what differs.
//
// One part is made like this: records of the shard are read once for their prompts; results gather in a local spool, in
// any order; when all are there, the shard's records are read again with their carried columns and written beside their
// results in input order; the finished file is put under its final name if nothing is there yet.
package jobs
