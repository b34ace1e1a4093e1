// Package chaos kills the program and harms its storage, and then asks for an output as if nothing had happened. It has no
// code of its own: its tests build the program once and treat it as a black box that promises what docs/ARCHITECTURE.md says.
//
// A run takes a small job over a tiny model, on local files or on a real S3 server behind internal/faultproxy, kills it with
// SIGKILL one to five times, and then starts it until it is done. What must hold then:
//
//   - the result columns of all rows, and each part's result digest, equal those of an unbroken run;
//   - every row stands in the output once, in input order;
//   - parts have the size, hash and counts that _SUCCESS says, and as many dead letters as error rows;
//   - no temporary file, no journal and no unfinished upload is left.
//
// `make chaos` does CHAOSRUNS of them from CHAOSSEED on; run number i has the seed CHAOSSEED+i and is repeated alone by
// CHAOSRUNS=1 and that seed. (Faults and jobs repeat exactly; an instant in a process's life only about.) An ordinary test
// run does a few, with a fixed seed.
package chaos
