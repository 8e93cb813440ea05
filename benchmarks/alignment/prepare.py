"""Prepare the evidence for aligned objectives where the text is; a GPU then trains.

    .venv/bin/python -m benchmarks.alignment.prepare                                              # here
    python3 -m benchmarks.alignment.train runs/alignment/alignment.tar.zst --out rows --seconds 560    # on a GPU
    .venv/bin/python -m benchmarks.alignment.page --results rows                                  # here again

All passages with links are read, and of Wikipedia's other pages as many as fit into the bundle. Pages are divided by
their titles: some are only there to be scored by masked LM and next sentences. One set of bodies serves both tasks, so
that the contamination filter keeps the scored texts of both out of all text.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from benchmarks.alignment.cases import case_tasks
from benchmarks.alignment.cells import SPELLED, STEPS, TASKS, base_settings
from benchmarks.alignment.data import SPLITS, build, write_task
from endtask.bundle import write_bundle
from endtask.config import Settings, SizeBudget
from endtask.config.overrides import with_values
from endtask.errors import InputError
from endtask.io.atomic import atomic_file
from endtask.io.tables import Row, read_rows
from endtask.pipeline.run import Run

ROOT = Path(__file__).resolve().parents[2]
BODY, HELD_OUT, CONTAMINATED = "body", "held_out", "guarded"
"""The run that all bodies start from, the run whose text is only scored, and the task that both guard."""
LINKS, WIKIPEDIA = "links", "wikipedia"
SHARES = {WIKIPEDIA: 0.2, SPELLED: 0.05, HELD_OUT: 0.01}
"""Parts of Wikipedia's pages."""
MAX_SIZE = "45MB"


@dataclass(frozen=True)
class Prepared:
    """The folder of everything: tasks, text, runs and the bundle."""

    folder: Path
    data: Path
    changes: dict[str, Any]
    shares: dict[str, float]

    def bundle(self, max_size: SizeBudget) -> Path:
        """Make what is not there yet, then one file of all runs."""
        self.tasks()
        self.texts()
        sources = [{"path": str(self.data / "corpus_links" / "*.jsonl.zst"), "name": LINKS}]
        sources += [{"path": str(self._text(name)), "name": name} for name in (WIKIPEDIA, SPELLED)]
        self._run(BODY, CONTAMINATED, sources, None)
        tokenizer = str(self.folder / "runs" / BODY / "pack" / "tokenizer")
        scored = [{"path": str(self._text(HELD_OUT)), "name": HELD_OUT}]
        self._run(HELD_OUT, CONTAMINATED, scored, tokenizer, leave_out=("hyperlinks", "acronyms"))
        for name in (*TASKS, *(f"{task}-cases" for task in TASKS)):
            self._task_run(name, tokenizer)
        return write_bundle(self.folder / "runs", self.folder / "alignment.tar.zst", max_size=int(max_size.amount)).file

    def tasks(self) -> None:
        """CT, AD, the same with the cases as test rows, and all texts that must stay out of pre-training."""
        build(self.data, self.folder)
        rows = {task: _splits(self.folder / task) for task in TASKS}
        write_task(guarded_rows(rows["ct"], rows["ad"]), self.folder / CONTAMINATED)
        for task, test in case_tasks().items():
            write_task({**rows[task], "test": test}, self.folder / f"{task}-cases")

    def texts(self) -> None:
        """Divide the pages of Wikipedia; those with a title among the links are never held out."""
        if all(self._text(name).exists() for name in self.shares):
            return
        linked = {row["title"] for file in self._files("corpus_links", "*") for _, row in read_rows(file)}
        found: dict[str, list[str]] = {name: [] for name in self.shares}
        for row in self._pages():
            part = part_of(row["title"], self.shares)
            if part is not None and not (part == HELD_OUT and row["title"] in linked):
                found[part].append(json.dumps(row, ensure_ascii=False) + "\n")
        for name, lines in found.items():
            self._text(name).parent.mkdir(parents=True, exist_ok=True)
            with atomic_file(self._text(name)) as aside:
                aside.write_text("".join(lines), encoding="utf-8")

    def _pages(self) -> Iterator[Row]:
        for file in self._files("corpus", "wikipedia*"):
            yield from (row for _, row in read_rows(file))

    def _files(self, place: str, pattern: str) -> list[Path]:
        files = sorted((self.data / place).glob(f"{pattern}.jsonl.zst"))
        if not files:
            raise InputError(
                "no file of the sample data there", path=self.data / place, hint="name its place by --data"
            )
        return files

    def _text(self, name: str) -> Path:
        return self.folder / "text" / f"{name}.jsonl"

    def _run(
        self,
        name: str,
        task: str,
        sources: list[dict[str, str]],
        tokenizer: str | None,
        leave_out: tuple[str, ...] = (),
    ) -> None:
        settings = Settings.model_validate(base_settings(str(self.folder / task), sources, tokenizer))
        values = {f"pretrain.objectives.{objective}.weight": 0 for objective in leave_out}
        self._go(with_values(settings, {**self.changes, **values, "output_dir": self._place(name)}, name))

    def _task_run(self, name: str, tokenizer: str) -> None:
        """A run that brings a task along; its own pre-training is never done."""
        tree = base_settings(str(self.folder / name), [], tokenizer)
        columns = {"group": "doc"} if name.startswith("ad") else {}
        tree["task"] |= {"columns": columns}
        tree["train"] |= {"objectives": {"mlm": {"kind": "mlm", "texts": "task"}}}
        self._go(with_values(Settings.model_validate(tree), {**self.changes, "output_dir": self._place(name)}, name))

    def _place(self, name: str) -> str:
        return str(self.folder / "runs" / name)

    def _go(self, settings: Settings) -> None:
        run = Run(settings)
        if run.first_clash() is not None:
            shutil.rmtree(run.folder)
        run.go(until="pack")


def part_of(title: str, shares: dict[str, float]) -> str | None:
    """The part that a page belongs to, by its title alone, so that no page stands in two.

    >>> part_of("Autism", {"first": 0.5, "second": 0.5}), part_of("Autism", {"first": 0.0})
    ('second', None)
    """
    place = int.from_bytes(blake2b(title.encode(), digest_size=8).digest()) / 2**64
    for name, share in shares.items():
        if place < share:
            return name
        place -= share
    return None


def guarded_rows(concepts: dict[str, list[Row]], acronyms: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """A task of plain texts whose dev and test hold all that is scored: of CT dev and test, of AD everything."""
    queries = {split: [_text_row(" ".join(row["tokens"]), "query") for row in concepts[split]] for split in SPLITS}
    snippets = list(dict.fromkeys(row["text_pair"] for split in SPLITS for row in acronyms[split]))
    scored = [_text_row(text, "snippet") for text in snippets]
    # The classes say nothing to anybody: no objective reads them, but a task has some in train.
    return {
        "train": queries["train"] + scored[:2],
        "dev": queries["dev"] + scored[:2],
        "test": queries["test"] + scored,
    }


def _text_row(text: str, label: str) -> Row:
    return {"text": text, "label": label}


def _splits(folder: Path) -> dict[str, list[Row]]:
    return {split: [row for _, row in read_rows(folder / f"{split}.jsonl")] for split in SPLITS}


def main() -> None:
    """Prepare and bundle what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=STEPS, help="of pre-training, for each body")
    parser.add_argument("--max-size", type=SizeBudget.parse, default=SizeBudget.parse(MAX_SIZE), help="of the bundle")
    parser.add_argument("--scale", type=float, default=1.0, help="how much of the usual share of Wikipedia to take")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", help="the sample data")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "alignment", help="where everything goes")
    given = parser.parse_args()
    shares = {name: given.scale * share for name, share in SHARES.items()}
    try:
        prepared = Prepared(given.out, given.data, {"budget": f"{given.steps}steps"}, shares)
        file = prepared.bundle(given.max_size)
        print(json.dumps({"file": str(file), "bytes": file.stat().st_size}))
    except InputError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
