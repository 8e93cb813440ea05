"""Build the two tasks of the alignment evidence from the sample data, as folders that endtask reads.

    .venv/bin/python -m benchmarks.alignment.data [--data ../shared/data] [--out runs/alignment]

`ct` is concept tagging (SNIPS, ATIS and CrossNER, types dropped), `ad` acronym detection (gold pairs of biomedical
abstracts). `facts.json` beside them says what is in them and what surface rules reach on `ad`. The same data gives the
same files. Nothing of them belongs into the repository: the texts have their own licences.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.alignment.acronyms import acronym_rows, chosen, snippets_of
from benchmarks.alignment.concepts import Splits, divide, shared_words, shares_of_classes, unique_rows
from benchmarks.alignment.surface import surface_accuracies
from endtask.errors import InputError
from endtask.io.atomic import write_json, write_text
from endtask.io.tables import read_rows
from endtask.task.split_tables import split_files

ROOT = Path(__file__).resolve().parents[2]
CONCEPTS = {
    "snips": ("concept_tagging_snips",),
    "atis": ("concept_tagging_atis",),
    "crossner": tuple(
        f"concept_tagging_crossner_{domain}" for domain in ("ai", "literature", "music", "politics", "science")
    ),
}
ACRONYMS = "acronym_biomedical"
SPLITS = ("train", "dev", "test")


def read_splits(folder: Path) -> Splits:
    """The rows of a task's files by split."""
    files = split_files(folder) if folder.is_dir() else {}
    if missing := [split for split in SPLITS if split not in files]:
        raise InputError(f"no {missing[0]} file of the sample data there", path=folder, hint="name its place by --data")
    return {split: [row for _, row in read_rows(files[split])] for split in SPLITS}


def concept_splits(tasks: Path, *, test: int = 150, dev: int = 100, train: int = 400, seed: int = 0) -> Splits:
    """CT, with so many rows of each source at most; the splits of the sources are mixed and made anew."""
    sources = {
        name: [row for folder in folders for rows in read_splits(tasks / folder).values() for row in rows]
        for name, folders in CONCEPTS.items()
    }
    return divide(unique_rows(sources), test=test, dev=dev, train=train, handful=20, seed=seed)


def acronym_splits(tasks: Path, *, seed: int = 0) -> Splits:
    """AD, with the documents of each split as they are in the source."""
    source = read_splits(tasks / ACRONYMS)
    split_of = {row["doc"]: split for split, rows in source.items() for row in rows}
    snippets = chosen(one for split in reversed(SPLITS) for row in source[split] for one in snippets_of(row))
    rows = acronym_rows(snippets, seed=seed)
    return {split: [row for row in rows if split_of[row["doc"]] == split] for split in SPLITS}


def write_task(splits: Splits, folder: Path) -> None:
    """A file for each split."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, rows in splits.items():
        write_text(folder / f"{split}.jsonl", "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def concept_facts(splits: Splits) -> dict[str, Any]:
    """Rows by source, shares of classes, and how many content words test shares with the rest: none."""
    return {
        "rows": {split: _counts(row["source"] for row in rows) for split, rows in splits.items()},
        "classes": {split: dict(shares_of_classes(rows)) for split, rows in splits.items()},
        "content_words_in_test_and_elsewhere": len(shared_words(splits)),
    }


def acronym_facts(splits: Splits) -> dict[str, Any]:
    """Rows by how they were made, documents that stand in two splits (none), and what surface rules reach."""
    documents = {split: {row["doc"] for row in rows} for split, rows in splits.items()}
    return {
        "rows": {split: _counts(row["made"] for row in rows) for split, rows in splits.items()},
        "documents_in_two_splits": _in_two(list(documents.values())),
        "surface_accuracy": surface_accuracies(splits["train"], splits["test"]),
    }


def _counts(values: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(values).items()))


def _in_two(sets: Sequence[set[str]]) -> int:
    return sum(count > 1 for count in Counter(one for some in sets for one in some).values())


def build(data: Path, out: Path) -> dict[str, Any]:
    """Write both tasks and the facts about them."""
    concepts, acronyms = concept_splits(data / "tasks"), acronym_splits(data / "tasks")
    write_task(concepts, out / "ct")
    write_task(acronyms, out / "ad")
    facts = {"ct": concept_facts(concepts), "ad": acronym_facts(acronyms)}
    write_json(out / "facts.json", facts)
    return facts


def main() -> None:
    """Build them where the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", help="the sample data")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "alignment", help="where the folders go")
    given = parser.parse_args()
    try:
        facts = build(given.data, given.out)
    except InputError as error:
        parser.error(str(error))
    print(json.dumps(facts, indent=2))


if __name__ == "__main__":
    main()
