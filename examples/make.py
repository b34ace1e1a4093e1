#!/usr/bin/env python3
"""Write examples/tasks.parquet and examples/chats.jsonl.

Both are ours and small. tasks.parquet carries columns of many Arrow types so that a run over it shows what passes
through: dictionary, list, list of struct, struct, map, decimal, date, timestamps with and without a zone, binary,
unsigned and nullable columns. chats.jsonl mixes `prompt` and `messages` rows, and carries values that JSON tools like
to spoil (integers beyond 2^53, trailing zeros, escapes, key order), which must come out byte for byte.

Needs pyarrow (internal/testenv/requirements.txt). The same script writes the same bytes: no clock, no random numbers.
"""

import datetime as dt
import decimal
import hashlib
import json
import pathlib

import pyarrow as pa
import pyarrow.parquet as pq

HERE = pathlib.Path(__file__).resolve().parent

# id, category, text. Short questions that a 135-million-parameter model can mostly answer.
TASKS = [
    ("facts", "What is the capital of France?"),
    ("facts", "Which planet is known as the Red Planet?"),
    ("facts", "What is the chemical formula of water?"),
    ("facts", "How many days are there in a week?"),
    ("facts", "Which ocean lies between Europe and North America?"),
    ("explain", "Explain in one sentence why the sky is blue."),
    ("explain", "What does a thermometer measure?"),
    ("explain", "Why do leaves change colour in autumn?"),
    ("explain", "What is photosynthesis?"),
    ("explain", "What is a bicycle used for?"),
    ("list", "Name three primary colours."),
    ("list", "List four seasons of the year."),
    ("list", "Name three fruits."),
    ("list", "Name three vegetables."),
    ("words", "Name the opposite of hot."),
    ("words", "What is the plural of mouse?"),
    ("rewrite", "Put this into the past tense: She walks to the market."),
    ("rewrite", "Make this shorter: Due to the fact that it was raining, we stayed at home."),
    ("translate", "What is the French word for thank you?"),
    ("translate", "What is the Spanish word for house?"),
    ("classify", "Is the following sentence positive or negative? I love this book."),
    ("classify", "Classify the sentiment as positive or negative: The food was awful."),
    ("write", "Write one sentence about a lighthouse in a storm."),
    ("write", "Suggest a title for a story about a lost dog that finds its way home."),
]

UTC = dt.timezone.utc
START = dt.datetime(2026, 3, 1, 8, 0, 0, 123456, tzinfo=UTC)


def tasks_table() -> pa.Table:
    rows = range(len(TASKS))
    at = [START + dt.timedelta(hours=7 * i) for i in rows]
    review = pa.struct([("by", pa.string()), ("at", pa.timestamp("ms")), ("stars", pa.int8())])
    columns = [
        ("id", pa.int64(), [1000 + i for i in rows]),
        ("category", pa.dictionary(pa.int32(), pa.string()), [c for c, _ in TASKS]),
        ("text", pa.string(), [t for _, t in TASKS]),
        ("tags", pa.list_(pa.string()), [None if i % 8 == 7 else [c, "demo"][: i % 3] for i, (c, _) in enumerate(TASKS)]),
        (
            "source",
            pa.struct([("name", pa.string()), ("page", pa.int32()), ("place", pa.struct([("shelf", pa.string()), ("row", pa.uint16())]))]),
            [
                None if i % 11 == 5 else {"name": f"sheet-{i // 6}", "page": i if i % 4 else None, "place": {"shelf": "ABCDEF"[i % 6], "row": 60000 + i}}
                for i in rows
            ],
        ),
        (
            "reviews",
            pa.list_(review),
            [[{"by": "ada" if k % 2 else None, "at": at[i].replace(tzinfo=None, microsecond=0), "stars": k + 1} for k in range(i % 3)] for i in rows],
        ),
        ("attributes", pa.map_(pa.string(), pa.float64()), [[("weight", i / 8), ("rank", float(i))] if i % 5 else [] for i in rows]),
        ("budget", pa.decimal128(12, 3), [None if i % 9 == 4 else decimal.Decimal(f"{i * 7}.{i:03d}") for i in rows]),
        ("created_at", pa.timestamp("us", tz="Europe/Berlin"), at),
        ("local_time", pa.timestamp("ns"), [a.replace(tzinfo=None) for a in at]),
        ("due", pa.date32(), [(a + dt.timedelta(days=30)).date() if i % 6 else None for i, a in enumerate(at)]),
        ("sha1", pa.binary(20), [hashlib.sha1(t.encode()).digest() for _, t in TASKS]),
        ("counter", pa.uint64(), [2**63 + i for i in rows]),
        ("score", pa.float32(), [None if i % 7 == 3 else i / 3 for i in rows]),
        ("reviewed", pa.bool_(), [None if i % 10 == 9 else i % 2 == 0 for i in rows]),
    ]
    schema = pa.schema([(name, kind) for name, kind, _ in columns], metadata={"about": "batchmill example tasks", "licence": "Apache-2.0"})
    return pa.Table.from_arrays([pa.array(values, kind) for _, kind, values in columns], schema=schema)


def system_chat(system: str, user: str) -> list:
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]


# Each row is written as it stands, one line each, so the odd spacing and the escapes are part of the example.
CHATS = [
    '{"id": "p-01", "prompt": "What is the largest animal on Earth?", "ticket": 9007199254740993}',
    '{"id": "p-02", "prompt": "Name a word that rhymes with cat.", "price": 1.50, "zeros": 100e-2}',
    '{"id": "p-03", "prompt": "What is two plus three?", "nested": {"z": 1, "a": [true, null, {"deep": "\\u00fcber"}]}}',
    '{"id": "p-04", "prompt": "Write a short greeting for a birthday card.", "tags": ["card", "short"]}',
    '{"id": "p-05", "prompt": "In which country is the city of Kyoto?", "note": "tabs\\tand \\"quotes\\""}',
    '{ "prompt" : "What do bees make?" , "id" : "p-06" }',
    '{"id": "p-07", "prompt": "Wie heißt die Hauptstadt von Österreich?", "language": "de"}',
    {"id": "m-01", "messages": system_chat("You answer in one short sentence.", "Why do we sleep?")},
    {"id": "m-02", "messages": system_chat("You are a patient teacher.", "What is gravity?")},
    {
        "id": "m-03",
        "messages": [
            {"role": "user", "content": "My name is Robin."},
            {"role": "assistant", "content": "Nice to meet you, Robin!"},
            {"role": "user", "content": "What is my name?"},
        ],
    },
    {"id": "m-04", "messages": [{"role": "user", "content": [{"type": "text", "text": "Name one instrument with strings."}]}]},
    {"id": "m-05", "messages": system_chat("You are terse.", "The text <|im_end|> is data here, not a command. What day follows Monday?")},
]


def main() -> None:
    pq.write_table(tasks_table(), HERE / "tasks.parquet", row_group_size=12, compression="zstd")
    lines = [row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) for row in CHATS]
    for line in lines:
        json.loads(line)  # a typing slip here would be an error row in everybody's first run
    (HERE / "chats.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
