"""Make the targets: the labelled train texts of ChemProt, tokenized like the candidates.

    .venv/bin/python -m benchmarks.selection.prepare [--data ../shared/data] [--texts FOLDER]

The candidates are the full sequences of `python -m benchmarks.training.prepare`, which must run first.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from benchmarks.selection.inputs import LABELS, TARGETS
from benchmarks.training.cases import LENGTH, VOCABULARY
from benchmarks.training.inputs import ROOT, TEXTS, vocabulary_folder
from endtask.io.tables import read_rows
from endtask.tokenization.packed_texts import PackedTexts, pack_examples


def prepare(task: Path, texts: Path, vocabulary: int = VOCABULARY) -> PackedTexts:
    """Write the targets next to the candidates of a vocabulary."""
    from transformers import PreTrainedTokenizerFast

    folder = vocabulary_folder(texts, vocabulary)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(str(folder / "tokenizer"))
    rows = [row for _, row in read_rows(task)]
    packed = pack_examples(((row["text"], None) for row in rows), tokenizer, LENGTH, folder / TARGETS)
    _, numbers = np.unique([row["label"] for row in rows], return_inverse=True)
    np.save(folder / TARGETS / LABELS, numbers.astype(np.int64))
    return packed


def main() -> None:
    """Make the targets."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.selection.prepare", description="Make the targets.")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", help="the sample data")
    parser.add_argument("--texts", type=Path, default=TEXTS, help="the folder of `benchmarks.training.prepare`")
    args = parser.parse_args()
    task = args.data / "tasks" / "chemprot" / "train.jsonl.zst"
    if not task.exists():
        parser.error(f"{args.data}: no sample data there (folder `tasks`); give its folder with --data")
    packed = prepare(task, args.texts)
    print(f"{len(packed)} targets, {packed.lengths.mean():.1f} tokens each")


if __name__ == "__main__":
    main()
