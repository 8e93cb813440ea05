"""Make the texts of the benchmark: real text, tokenized once, small enough to copy to another machine.

    .venv/bin/python -m benchmarks.training.prepare [--data ../shared/data] [--out FOLDER]

For each vocabulary there are `tokenizer/`, `full/` (text of all corpus sources mixed, end to end in rows of exactly 128
tokens) and `task/` (the single train texts of three tasks, truncated to 128 tokens).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress, islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.training.cases import LENGTH, SMALL_VOCABULARY, VOCABULARY
from benchmarks.training.inputs import ROOT, SEED, TEXTS, vocabulary_folder
from endtask.config import TokenizerSettings
from endtask.io.atomic import write_json
from endtask.io.tables import read_rows
from endtask.seeds import generator
from endtask.tokenization.packed_texts import PackedTexts, pack_examples, pack_passages
from endtask.tokenization.tokenizer import save_tokenizer, train_tokenizer

TASKS = ("chemprot", "sciie", "agnews")
SMALL_TOKENS = 1_000_000
"""The tokens for the small vocabulary, which is measured on a CPU only."""

_TOKENIZER_PASSAGES = 20_000
_PASSAGES_JOINED = 50


def prepare(data: Path, out: Path, tokens: int, share: float) -> None:
    """Write the texts and tokenizers of both vocabularies."""
    passages = draw_passages(sorted((data / "corpus").glob("*.jsonl.zst")), share)
    examples = task_texts([data / "tasks" / task / "train.jsonl.zst" for task in TASKS])
    counts = {
        str(vocabulary): _prepare_vocabulary(passages, examples, vocabulary, most, vocabulary_folder(out, vocabulary))
        for vocabulary, most in ((VOCABULARY, tokens), (SMALL_VOCABULARY, min(tokens, SMALL_TOKENS)))
    }
    write_json(out / "counts.json", {"seed": SEED, "passages": len(passages), "vocabularies": counts})


def draw_passages(paths: Sequence[Path], share: float, seed: int = SEED) -> list[str]:
    """Return a random sample of the same share of every source, mixed."""
    drawn: list[str] = []
    for path in paths:
        texts = [row["text"] for _, row in read_rows(path)]
        mask = generator(seed, "training benchmark", path.name).random(len(texts)) < share
        drawn += compress(texts, mask)
    return [drawn[index] for index in generator(seed, "training benchmark", "mix").permutation(len(drawn))]


def task_texts(paths: Sequence[Path]) -> list[str]:
    """Return the texts of several tasks."""
    return [row["text"] for path in paths for _, row in read_rows(path)]


def joined(passages: Iterable[str], count: int) -> Iterator[str]:
    """Yield `count` passages at a time as one text, so that few of its rows are short.

    >>> list(joined(["a", "b", "c"], 2))
    ['a b', 'c']
    """
    stream = iter(passages)
    while group := list(islice(stream, count)):
        yield " ".join(group)


def full_rows(texts: PackedTexts, length: int) -> NDArray[np.int64]:
    """Return the texts of exactly `length` tokens as rows of a table."""
    return np.stack([texts[int(position)] for position in np.flatnonzero(texts.lengths == length)])


def write_rows(rows: NDArray[np.int64], folder: Path) -> PackedTexts:
    """Write rows of token ids as packed texts."""
    count, length = rows.shape
    folder.mkdir(parents=True, exist_ok=True)
    rows.astype(np.uint16).tofile(folder / "tokens.bin")
    np.save(folder / "offsets.npy", np.arange(count + 1, dtype=np.int64) * length)
    np.save(folder / "second.npy", np.full(count, length, dtype=np.int32))
    write_json(folder / "shape.json", {"tokens": rows.size, "texts": count, "dtype": "uint16"})
    return PackedTexts(folder)


def _prepare_vocabulary(
    passages: list[str], examples: list[str], vocabulary: int, tokens: int, folder: Path
) -> dict[str, dict[str, float]]:
    settings = TokenizerSettings(vocab_size=vocabulary)
    tokenizer = train_tokenizer([*examples, *passages[:_TOKENIZER_PASSAGES]], settings, LENGTH, seed=SEED)
    if len(tokenizer) != vocabulary:
        raise SystemExit(f"the vocabulary has {len(tokenizer)} tokens, not {vocabulary}: too little text")
    save_tokenizer(tokenizer, folder / "tokenizer")
    rows = full_rows(pack_passages(joined(passages, _PASSAGES_JOINED), tokenizer, LENGTH, folder / "full"), LENGTH)
    if rows.size < tokens:
        print(f"vocabulary {vocabulary}: {rows.size} tokens of full sequences, not {tokens}; give a larger --share")
    parts = {
        "full": write_rows(rows[: tokens // LENGTH], folder / "full"),
        "task": pack_examples(((text, None) for text in examples), tokenizer, LENGTH, folder / "task"),
    }
    return {name: _counts(texts) for name, texts in parts.items()}


def _counts(texts: PackedTexts) -> dict[str, float]:
    lengths = texts.lengths
    return {
        "texts": len(texts),
        "tokens": int(lengths.sum()),
        "mean_length": round(float(lengths.mean()), 2),
        "median_length": float(np.median(lengths)),
    }


def main() -> None:
    """Make the texts."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training.prepare", description="Make the texts.")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", help="the sample data")
    parser.add_argument("--out", type=Path, default=TEXTS, help="where the texts go")
    parser.add_argument("--tokens", type=int, default=12_000_000, help="of full sequences")
    parser.add_argument("--share", type=float, default=0.16, help="of the corpus that is drawn")
    args = parser.parse_args()
    if not (args.data / "corpus").is_dir():
        parser.error(f"{args.data}: no sample data there (folders `corpus` and `tasks`); give its folder with --data")
    prepare(args.data, args.out, args.tokens, args.share)
    print((args.out / "counts.json").read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
