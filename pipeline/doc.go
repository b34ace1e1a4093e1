// Package pipeline carries rows through the engine: records become prompts, prompts become token ids, equal requests are
// put together, the rest waits in a bounded window that puts them in order, the engine runs them, and completions come
// back as results.
//
//	feed -> Preparer (validate, render, tokenise) -> dedup -> window (bounded, in order) -> infer.Engine -> sink
//
// The contract: every record that the feed yields reaches the sink exactly once per sample (an unusable record once),
// as a completion or as an error with a code, in any order; what a result says depends on its row alone. Memory is
// bounded by the window and the results kept for copies, whatever the size of the input.
package pipeline
