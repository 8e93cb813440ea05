"""Prepare the evidence for selection by influence where the corpus is; a GPU then scores, and later trains.

    .venv/bin/python -m benchmarks.influence.prepare candidates chemprot      # here: retrieval, tokens, half an hour
    python -m benchmarks.influence.score runs/influence/chemprot/scoring.tar.zst --out scores/chemprot.npz      # GPU
    .venv/bin/python -m benchmarks.influence.prepare bundle chemprot main --scores scores/chemprot.npz          # here
    endtask compare --bundle runs/influence/chemprot/main.tar.zst --results chemprot-main.json                  # GPU

Candidates are the best-ranked 34% of the corpus. All arms share one tokenizer, learned from all candidates, so that
they differ in what is read and in nothing else. Bundles: main, larger, net, others, all, sizes, eighty, layers,
embedding and steps (see `cells.py`).
"""

from __future__ import annotations

import argparse
import json
import shutil
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.influence.cells import AGAINST, SCORINGS, STEPS, TABLES, TOGETHER, Arm, base_settings, cells
from benchmarks.influence.score import CANDIDATES, FOLDS, SETTINGS, TASK
from endtask.bundle import write_bundle
from endtask.config import SelectSettings, Settings, dump_yaml
from endtask.config.overrides import with_values
from endtask.errors import InputError
from endtask.experiments import ComparisonResult, compare
from endtask.io.atomic import atomic_file, link_or_copy, write_json, write_text
from endtask.io.compression import zstd
from endtask.io.run_layout import RETRIEVED, SELECTION
from endtask.io.selection_table import read_statistics
from endtask.pipeline.run import Run
from endtask.seeds import generator
from endtask.selectors.base import RunContext, by_score, ranks_of, write_rows
from endtask.selectors.fusion import fused
from endtask.selectors.influence import influence_config
from endtask.selectors.influence.scorer import pack_candidates
from endtask.selectors.influence.scoring_model import TOKENIZER, folds_of, prepare_folds, scoring_settings
from endtask.task.task import task_files
from endtask.tokenization.tokenizer import load_tokenizer

ROOT = Path(__file__).resolve().parents[2]
BUDGET = f"{STEPS}steps"
_LEVEL = 15


class Prepared:
    """The folder of a task: a run up to its tokens, the scoring archive, orders, comparisons and bundles."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.folder, self.settings = folder, settings
        self.run = Run(settings.model_copy(update={"output_dir": str(folder / "base")}))

    @property
    def table(self) -> Path:
        """The candidates."""
        return self.folder / "candidates" / RETRIEVED

    @property
    def tokenizer(self) -> Path:
        """What all arms read with."""
        return self.folder / "base" / "pack" / "tokenizer"

    def candidates(self) -> Path:
        """Retrieve, tokenise, and write what scoring needs; what is there already stays."""
        self.run.go(until="pack")
        self.table.parent.mkdir(parents=True, exist_ok=True)
        if not self.table.exists():
            link_or_copy(self.folder / "base" / "select" / SELECTION, self.table)
        archive = self.folder / "scoring.tar.zst"
        if not archive.exists():
            self._write_archive(archive)
        for name in ("best_rank", "dsir", "random"):
            self.order(name)
        return archive

    def _write_archive(self, archive: Path) -> None:
        folder = self.folder / "scoring.partial"
        shutil.rmtree(folder, ignore_errors=True)
        settings = with_values(self.settings, {"tokenizer.path": str(self.tokenizer)}, "scoring")
        task, scoring = self.run.task, scoring_settings(settings)
        parts = folds_of(task, influence_config(settings), settings.seed)
        prepare_folds(task, parts, self.table, scoring, folder)
        tokenizer = load_tokenizer(folder / TOKENIZER)
        pack_candidates(self.table, tokenizer, scoring.pretrain.max_length, folder / CANDIDATES)
        ids = [{split: [row.id for row in rows] for split, rows in part.splits.items()} for part in parts]
        write_json(folder / FOLDS, ids)
        (folder / TASK).mkdir()
        for name, content in task_files(task).items():
            (folder / TASK / name).write_bytes(content)
        write_text(folder / SETTINGS, dump_yaml(with_values(settings, {"tokenizer.path": TOKENIZER}, "scoring")))
        _archive(folder, archive)
        shutil.rmtree(folder)

    def order(self, name: str, scores: np.ndarray | None = None) -> Path:
        """The candidates with their ranks in an order; a table that `select.name: imported` reads."""
        path = self.folder / "orders" / f"{name}.parquet"
        if path.exists():
            return path
        path.parent.mkdir(exist_ok=True)
        statistics = read_statistics(self.table)
        if scores is not None:
            order, score = by_score(scores.astype(np.float64), statistics), scores.astype(np.float64)
        elif name == "together":
            score = fused([read_statistics(self.order(one)).rank for one in TOGETHER])
            order = by_score(score, statistics)
        elif name == "random":
            order = generator(self.settings.seed, "random of the candidates").permutation(len(statistics.rank))
            score = np.zeros(len(order))
        else:
            section = SelectSettings(name=name)
            context = RunContext(section, self.table.parent, seed=self.settings.seed, examples=self.run.task.train)
            ranking = section.part.rank(statistics, context)
            order, score = ranking.order, ranking.score
        with atomic_file(path) as aside:
            write_rows(self.table, order, aside, new_values={"rank": ranks_of(order), "score": score})
        return path

    def orders(self, arms: Sequence[Arm], scores: Path | None) -> dict[str, str]:
        """The tables that some arms need."""
        given = read_scores(scores) if scores is not None else {}
        names = {arm.order for arm in arms}
        names |= set(TOGETHER) if "together" in names else set()
        for name in sorted(names & set(SCORINGS)):
            if name not in given and not (self.folder / "orders" / f"{name}.parquet").exists():
                raise InputError(
                    f"the order {name} needs scores", key="--scores", hint="see benchmarks.influence.score"
                )
        return {name: str(self.order(name, given.get(name))) for name in sorted(names)}

    def compared(self, name: str, arms: Sequence[Arm], scores: Path | None, **asked: Any) -> ComparisonResult:
        """A comparison of some arms, up to their tokens or, with `until`, another stage."""
        if not self.table.exists():
            raise InputError("no candidates there", path=self.folder, hint="the step `candidates` comes first")
        size = int(read_statistics(self.table).bytes.sum())
        values = {"output_dir": str(self.folder / name), "tokenizer.path": str(self.tokenizer), "select.budget": None}
        comparison: dict[str, Any] = {
            "variants": cells(tuple(arms), self.orders(arms, scores), size),
            "seeds": [0, 1, 2],
            "baselines": [],
        }
        if AGAINST in comparison["variants"]:
            comparison["against"] = AGAINST
        until = asked.pop("until", "pack")
        return compare(with_values(self.settings, values, name), comparison | asked, until=until)

    def chosen(self) -> Path:
        """What the arms that were prepared so far chose, in figures that need no training, as `chosen.json`."""
        manifests = sorted(self.folder.glob("*/variants/*/seed-0/select/manifest.json"))
        counts = {path.parents[2].name: json.loads(path.read_text(encoding="utf-8"))["counts"] for path in manifests}
        found = {
            name: {
                "passages": one["passages"],
                "kl": one["quality"]["kl"],
                "label_words": one["quality"]["label_words"]["share"],
            }
            for name, one in counts.items()
        }
        path = self.folder / "chosen.json"
        known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        write_json(path, known | found)
        return path


def read_scores(path: Path) -> Mapping[str, np.ndarray]:
    """The scores by the name of their order."""
    with np.load(path) as file:
        return {name: file[name] for name in file.files if name != "facts"}


def _archive(folder: Path, archive: Path) -> None:
    with (
        atomic_file(archive) as aside,
        zstd.open(aside, "wb", level=_LEVEL) as stream,
        tarfile.open(fileobj=stream, mode="w|") as tar,
    ):
        for path in sorted(folder.rglob("*")):
            tar.add(path, str(path.relative_to(folder)), recursive=False, filter=_plain)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Without dates and owners, so that the same run gives the same bytes."""
    member.mtime = member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def prepared(task: str, data: Path, out: Path, budget: str = BUDGET) -> Prepared:
    """The folder of a task of the sample data."""
    texts, rows = str(data / "corpus" / "*.jsonl.zst"), str(data / "tasks" / task)
    return Prepared(out / task, base_settings(task, texts, rows, None, budget=budget))


def main() -> None:
    """Do the step that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("candidates", "bundle"))
    parser.add_argument("task", choices=("chemprot", "sciie"))
    parser.add_argument("tables", nargs="*", help=f"of a bundle: {', '.join(TABLES)}")
    parser.add_argument("--scores", type=Path, help="what benchmarks.influence.score wrote")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", help="the sample data")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "influence", help="where everything goes")
    given = parser.parse_args()
    found = prepared(given.task, given.data, given.out)
    try:
        if given.step == "candidates":
            print(found.candidates())
        for table in given.tables:
            if table not in TABLES:
                raise InputError(f"no table is named {table!r}", hint=f"known: {', '.join(TABLES)}")
            found.compared(table, TABLES[table], given.scores)
            bundle = write_bundle(found.folder / table, found.folder / f"{table}.tar.zst")
            print(json.dumps({"file": str(bundle.file), "bytes": bundle.bytes, "chosen": str(found.chosen())}))
    except InputError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
