// Package infer is the inference engine: it takes tokenised requests from a source, packs their tokens into ragged
// batches, runs the model step by step over a paged KV cache, samples, turns ids into text and hands out completions.
//
// # Contract
//
// Every request that Run takes leaves it exactly once, as a Completion with or without an error, unless Run itself ends
// early (its context is cancelled, or the source or the sink fails): then requests on their way are dropped without a
// report, to be run again. A completion depends on its request alone (tokens, parameters, seed, mask) and on the model;
// never on the batch, the neighbours, the order, the memory for KV pages, or a preemption. The engine relies on the
// model for that: a token's logits must not depend on what else is in the batch or on how a prompt was cut.
//
// One bad row is one error: a parameter out of range, a prompt beyond the context, logits that are not finite. A step
// that fails as a whole (an error or panic of the forward pass) is repeated row by row, so that only the row at fault
// gets the error code internal, and its neighbours pay with time only.
//
// # A step
//
// The token budget (BatchTokens) goes to decoding rows first, one token each, oldest row first; then to prompts, in
// chunks, so that long prompts do not hold up rows that decode; then new rows are admitted while tokens, sequences and
// KV pages last. Only a row's last known token yields logits, so a chunk in the middle of a prompt samples nothing.
// Admission is optimistic: a row takes pages for the tokens it has, and waits only while a forecast, from the lengths of
// the rows that ended, says that pages would run out; it does not reserve all that max_tokens allows. When pages run out
// nevertheless, the youngest row gives its own back and computes its KV again later, keeping the tokens it chose. The
// oldest row can always go on, since Check proved that it fits the pool alone.
//
// # Shared prefixes
//
// A prefix that prompts of one tenant have in common is computed once, wherever in a page it ends, as far as pages last:
// of n prompts with p common and s own tokens, p + n*s tokens are computed. A row whose prefix another row is about to
// compute waits until that part of it is done, and is passed by rows that need not wait; then it takes full pages by
// reference and copies the last one's first tokens. The last token of a prompt is always computed, since its logits are
// needed. Prompts stay known after their rows ended, until the pool needs their pages (see kv.Prefixes); a row that was
// preempted takes its own prompt back that way. Sources do well to hand out rows with common prefixes one after another.
//
// In a step, sequences whose page tables begin with the same pages follow one another, the decoding ones first.
//
// # Speculation
//
// Where a step has few tokens, as at the end of a job, decoding rows get drafts behind their last token: tokens that
// followed the same words earlier in the row (see infer/draft). All are computed in one step, and sampled in order as long
// as each was foreseen; the rest is dropped, with its pages. A completion is the same either way, log-probabilities
// included, and so are masks' calls. Rows whose drafts fail make few, and a step that failed, or overflowed, with a draft
// is repeated without.
//
//	engine, err := infer.New(infer.Config{Model: infer.FromModel(m), Tokenizer: infer.FromTokenizer(tok), KVMemory: 1 << 30})
//	err = engine.Run(ctx, source, func(c infer.Completion) error { return write(c) })
package infer
