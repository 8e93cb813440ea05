"""Make the inputs of studies/alignment.yaml from the sample data: two tasks, and parts of Wikipedia.

    python -m studies.alignment_data [--data ../shared/data] [--out runs/alignment-data]

`ct` is concept tagging (SNIPS, ATIS and CrossNER without types), `ad` acronym detection (annotated pairs of biomedical
abstracts). `text` has disjoint parts of Wikipedia's pages, divided by title. The same data gives the same files. Do not
commit them: the texts have their own licences.
"""

from __future__ import annotations

import argparse
import json
from hashlib import blake2b
from pathlib import Path

from endtask.errors import InputError
from endtask.io.atomic import atomic_file, write_text
from endtask.io.tables import read_rows
from endtask.task.split_tables import split_files
from studies.acronym_task import acronym_rows, distinct_snippets, snippets_of
from studies.concept_task import Splits, divide, unique_rows

ROOT = Path(__file__).resolve().parents[1]
CONCEPTS = {
    "snips": ("concept_tagging_snips",),
    "atis": ("concept_tagging_atis",),
    "crossner": tuple(
        f"concept_tagging_crossner_{domain}" for domain in ("ai", "literature", "music", "politics", "science")
    ),
}
ACRONYMS = "acronym_biomedical"
SPLITS = ("train", "dev", "test")
_DATA_HINT = "give the folder of the sample data by --data"
SHARES = {"wikipedia": 0.2, "spelled": 0.05, "held_out": 0.01}
"""Parts of Wikipedia's pages: for training, for training with randomly cut words, and held out."""


def read_splits(folder: Path) -> Splits:
    """Return the rows of a task's files by split."""
    files = split_files(folder) if folder.is_dir() else {}
    if missing := [split for split in SPLITS if split not in files]:
        raise InputError(f"no {missing[0]} file of the sample data there", path=folder, hint=_DATA_HINT)
    return {split: [row for _, row in read_rows(files[split])] for split in SPLITS}


def concept_splits(tasks: Path, *, test: int = 150, dev: int = 100, train: int = 400, seed: int = 0) -> Splits:
    """Return CT in new splits, with at most so many rows of each source."""
    sources = {
        name: [row for folder in folders for rows in read_splits(tasks / folder).values() for row in rows]
        for name, folders in CONCEPTS.items()
    }
    return divide(unique_rows(sources), test=test, dev=dev, train=train, draws=20, seed=seed)


def acronym_splits(tasks: Path, *, seed: int = 0) -> Splits:
    """Return AD; each document stays in the split of the source."""
    source = read_splits(tasks / ACRONYMS)
    split_of = {row["doc"]: split for split, rows in source.items() for row in rows}
    snippets = (snippet for split in reversed(SPLITS) for row in source[split] for snippet in snippets_of(row))
    rows = acronym_rows(distinct_snippets(snippets), seed=seed)
    return {split: [row for row in rows if split_of[row["doc"]] == split] for split in SPLITS}


def write_task(splits: Splits, folder: Path) -> None:
    """Write a file for each split."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, rows in splits.items():
        write_text(folder / f"{split}.jsonl", "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def write_texts(data: Path, out: Path) -> None:
    """Divide the pages of Wikipedia; a page whose title is among the linked pages is never held out."""
    linked = {row["title"] for file in _files(data / "corpus_links", "*") for _, row in read_rows(file)}
    parts: dict[str, list[str]] = {name: [] for name in SHARES}
    for file in _files(data / "corpus", "wikipedia*"):
        for _, row in read_rows(file):
            part = part_of(row["title"], SHARES)
            if part is not None and not (part == "held_out" and row["title"] in linked):
                parts[part].append(json.dumps(row, ensure_ascii=False) + "\n")
    out.mkdir(parents=True, exist_ok=True)
    for name, lines in parts.items():
        with atomic_file(out / f"{name}.jsonl") as partial:
            partial.write_text("".join(lines), encoding="utf-8")


def part_of(title: str, shares: dict[str, float]) -> str | None:
    """Return the part of a page, by its title alone, so that no page is in two parts.

    >>> part_of("Autism", {"first": 0.5, "second": 0.5}), part_of("Autism", {"first": 0.0})
    ('second', None)
    """
    position = int.from_bytes(blake2b(title.encode(), digest_size=8).digest()) / 2**64
    for name, share in shares.items():
        if position < share:
            return name
        position -= share
    return None


def _files(folder: Path, pattern: str) -> list[Path]:
    files = sorted(folder.glob(f"{pattern}.jsonl.zst"))
    if not files:
        raise InputError("no file of the sample data there", path=folder, hint=_DATA_HINT)
    return files


def main() -> None:
    """Make the tasks and texts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", help="the sample data")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "alignment-data", help="where the folders go")
    args = parser.parse_args()
    try:
        write_task(concept_splits(args.data / "tasks"), args.out / "ct")
        write_task(acronym_splits(args.data / "tasks"), args.out / "ad")
        write_texts(args.data, args.out / "text")
    except InputError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
