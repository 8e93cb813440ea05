"""A small finished run, written by the package's writers without training."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from endtask.config import dump_yaml, resolve
from endtask.io.atomic import write_json, write_text
from endtask.io.run_layout import STAGES
from endtask.io.selection_table import write_selection
from endtask.io.stage_folder import StageFolder
from endtask.records import Document, Example, Selected
from endtask.task import Task, audit
from tests.edited import without_records

MakeRun = Callable[..., Path]


class SmallRun:
    """Writes the stages of a run: two labels, two sources, two seeds, test rows of which one stands in train."""

    def __init__(
        self,
        folder: Path,
        *,
        labels: Sequence[str] = ("cat", "dog"),
        text: str = "a purring thing",
        source: str = "books",
        seeds: Sequence[int] = (0, 1),
        split: str = "test",
        leak_free_rows: int = 3,
        corpus: bool = True,
        text_pair: str | None = None,
    ) -> None:
        self.folder, self.labels, self.text, self.source = folder, labels, text, source
        self.seeds, self.split, self.leak_free_rows, self.corpus = list(seeds), split, leak_free_rows, corpus
        self.text_pair = text_pair

    def write(self, stages: Sequence[str]) -> None:
        """Write the settings and the given stages."""
        self.folder.mkdir(parents=True, exist_ok=True)
        settings = resolve(
            {
                "output_dir": str(self.folder),
                "task": {"path": "data/pets"},
                "finetune": {"seeds": self.seeds},
                "evaluate": {"metric": "accuracy"},
            }
        )
        write_text(self.folder / "settings.yaml", dump_yaml(settings))
        for name in stages:
            stage = StageFolder(self.folder, name, f"mark-of-{name}", {}, {})
            working = stage.start()
            stage.set_plan(steps_per_epoch=5)
            stage.finish(getattr(self, name)(working))
        without_records(self.folder)

    def read(self, folder: Path) -> dict[str, Any]:
        """Audit and examples, as `endtask.pipeline.run` writes them."""
        texts = {"train": 6, "dev": 2, self.split: 4}
        splits = {
            split: [
                Example(f"{split}-{row}", f"{self.text} {split} {row}", self.labels[row % 2], self.text_pair)
                for row in range(rows)
            ]
            for split, rows in texts.items()
        }
        splits[self.split][0] = Example(f"{self.split}-0", f"{self.text} train 0", self.labels[0], self.text_pair)
        write_json(folder / "audit.json", audit(self._task(splits)).to_dict())
        for split, examples in splits.items():
            rows = ({"id": e.id, "text": e.text, "label": e.label} for e in examples)
            write_text(folder / f"{split}.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        return {split: len(examples) for split, examples in splits.items()}

    def _task(self, splits: dict[str, list[Example]]) -> Task:
        return Task.from_examples("pets", splits, task_type="pair" if self.text_pair else "text")

    def retrieve(self, folder: Path) -> dict[str, Any]:
        """Counts only: the report reads the selection, not what was retrieved."""
        if not self.corpus:
            return {"passages": 0, "corpus": {"passages": 0, "bytes": 0}}
        source = {"documents": 50, "empty": 0, "duplicates": 1, "unread_files": 0}
        sources = {
            self.source: {**source, "passages": 80, "bytes": 8000},
            "web": {**source, "passages": 20, "bytes": 2000},
        }
        return {
            "passages": 40,
            "queries": 6,
            "top_k": 10,
            "dropped_by_contamination_filter": 7,
            "corpus": {"passages": 100, "bytes": 10_000, "sources": sources},
        }

    def select(self, folder: Path) -> dict[str, Any]:
        """Three kept passages: two asked for by train-0, one by train-1."""
        asked = [("train-0", 1, 9.5), ("train-0", 2, 7.5), ("train-1", 1, 8.5)] if self.corpus else []
        kept = [
            Selected(
                Document(f"{self.source}:{place}", f"passage {place} on {self.text}", self.source, title="A title"),
                position=place,
                rank=rank,
                score=score,
                matched_count=3,
                matched_queries=(example,),
                reason=f"best_rank: rank {rank} for {example}",
            )
            for place, (example, rank, score) in enumerate(asked)
        ]
        write_selection(folder / "selection.parquet", kept)
        size = sum(len(item.document.text.encode()) for item in kept)
        return {"passages": len(kept), "bytes": size, "share_of_corpus": size / 10_000}

    def pack(self, folder: Path) -> dict[str, Any]:
        """Counts only."""
        return {"vocabulary": 300, "external": {"texts": 3, "tokens": 1000}, "pretrain": {"texts": 6, "tokens": 500}}

    def pretrain(self, folder: Path) -> dict[str, Any]:
        """Curves of two objectives."""
        rows = [
            {"step": 1, "learning_rate": 1e-3, "external/mlm": 6.0},
            {"step": 2, "learning_rate": 1e-3, "external/mlm": 5.0, "internal/mlm": 5.5, "internal/task": 0.7},
        ]
        write_text(folder / "metrics.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        return {"steps": 2, "parameters": 1_500_000, "flops": 9e12, "device": "cpu", "tokens": 1_000_000}

    def finetune(self, folder: Path) -> dict[str, Any]:
        """A curve with two epochs per seed; the later seed is better."""
        for seed in self.seeds:
            rows: list[dict[str, float]] = [{"step": 5, "task/task": 0.6}, {"step": 5, "dev/accuracy": 0.5}]
            rows.append({"step": 10, "dev/accuracy": 0.5 + 0.1 * seed})
            (folder / f"seed-{seed}").mkdir()
            write_text(folder / f"seed-{seed}" / "metrics.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        results = [
            {"seed": seed, "best_step": 10, "dev": {"accuracy": 0.5 + 0.1 * seed}, "tokens": 500, "flops": 1e9}
            for seed in self.seeds
        ]
        return {"steps_per_seed": 10, "tokens": 500 * len(results), "flops": 1e9 * len(results), "seeds": results}

    def evaluate(self, folder: Path) -> dict[str, Any]:
        """Seed 0 has two of four right, the others three; the leak-free rows are worse by a tenth."""
        right = {seed: 2 if seed == 0 else 3 for seed in self.seeds}
        rows: list[dict[str, Any]] = []
        for seed in self.seeds:
            row = {"seed": seed, "scores": {"accuracy": right[seed] / 4}}
            if self.leak_free_rows:
                row["leak_free_scores"] = {"accuracy": right[seed] / 4 - 0.1}
            rows.append(row)
        mean = sum(right.values()) / 4 / len(right)
        summary = {"metric": "accuracy", "mean": mean, "std": 0.125}
        if self.leak_free_rows:
            summary |= {"leak_free_mean": mean - 0.1, "leak_free_std": 0.025}
        shape = {"split": self.split, "rows": 4, "leak_free_rows": self.leak_free_rows}
        ends = {"difference": mean - 0.5, "interval": [mean - 0.75, mean - 0.25], "p_value": 0.5}
        majority = {"description": "majority class ('cat')", "score": 0.5, **ends}
        baselines = {"interval": [0.25, 1.0], "majority": majority}
        write_json(folder / "results.json", {**shape, "baselines": baselines, "summary": summary, "seeds": rows})
        lines = []
        for number in range(4):
            truth, other = self.labels[number % 2], self.labels[1 - number % 2]
            answers = {str(seed): truth if number < right[seed] else other for seed in self.seeds}
            lines.append(json.dumps({"id": f"{self.split}-{number}", "label": truth, "predicted": answers}))
        write_text(folder / "predictions.jsonl", "\n".join(lines) + "\n")
        return {**shape, **summary}

    def model(self, folder: Path) -> dict[str, Any]:
        """Counts only."""
        return {"seed": self.seeds[-1], "dev": {"accuracy": 0.6}}


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """Write a small run and give its folder; `until` names its last stage, the rest goes to `SmallRun`."""

    def make(until: str = "model", name: str = "run", **shape: Any) -> Path:
        folder = tmp_path / name
        SmallRun(folder, **shape).write(STAGES[: STAGES.index(until) + 1])
        return folder

    return make
