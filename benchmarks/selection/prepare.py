"""Make the targets: the labelled train texts of ChemProt, tokenised as the candidates are.

    .venv/bin/python -m benchmarks.selection.prepare [--data ../shared/data] [--texts FOLDER]

The candidates are the full sequences that `python -m benchmarks.training.prepare` made before.
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
    """Write the targets beside the candidates of that vocabulary."""
    from transformers import PreTrainedTokenizerFast

    folder = vocabulary_folder(texts, vocabulary)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(str(folder / "tokenizer"))
    rows = [row for _, row in read_rows(task)]
    packed = pack_examples(((row["text"], None) for row in rows), tokenizer, LENGTH, folder / TARGETS)
    _, numbers = np.unique([row["label"] for row in rows], return_inverse=True)
    np.save(folder / TARGETS / LABELS, numbers.astype(np.int64))
    return packed


def main() -> None:
    """Make them as asked for on the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.selection.prepare", description="Targets to score by.")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", help="the sample data")
    parser.add_argument("--texts", type=Path, default=TEXTS, help="what `benchmarks.training.prepare` made")
    given = parser.parse_args()
    task = given.data / "tasks" / "chemprot" / "train.jsonl.zst"
    if not task.exists():
        parser.error(f"{given.data}: no sample data there (folder `tasks`); name its place with --data")
    packed = prepare(task, given.texts)
    print(f"{len(packed)} targets, {packed.lengths.mean():.1f} tokens each")


if __name__ == "__main__":
    main()
