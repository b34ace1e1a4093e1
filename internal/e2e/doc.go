// Package e2e runs the whole program as a user does: the built binary, real files, a real model, a real S3 server, and other
// people's readers (pyarrow, DuckDB) to look at what came out. It has no code of its own; `make e2e` runs it alone, and
// `make test` with everything else.
//
// It needs what `make tools model` fetches, by the environment variables that the Makefile sets; without them its tests are
// skipped with the reason.
package e2e
