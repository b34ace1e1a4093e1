// Package archtest holds the rules that keep the tree as docs/ARCHITECTURE.md describes it. It has no code of its own: its
// tests parse every Go file of the module and fail on
//
//   - an import against the arrows cmd -> jobs -> pipeline -> {readers, writers, infer}, infer -> {cpu, cuda} -> device,
//     all -> internal; on gocloud.dev outside internal/objstore; on Parquet or Flight from the Arrow module (parquet-go owns
//     every Parquet byte);
//   - a file over 600 lines, a package without a comment, a leftover note to ourselves, a test that is skipped in silence.
package archtest
