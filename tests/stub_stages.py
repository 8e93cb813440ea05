"""Stages without training: real run folders with made-up numbers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest

from endtask.config import Settings, resolve
from endtask.evaluation.task_metrics import measure_of
from endtask.io.atomic import write_json, write_text
from endtask.io.run_layout import RESULTS
from endtask.io.stage_folder import StageFolder
from endtask.pipeline.stage import RunData
from endtask.pipeline.stages import STAGES
from tests.toy_run import toy_settings

Made = dict[str, Path]


def _write_report(folder: Path) -> Path:
    write_text(folder / "report.html", "a report")
    return folder / "report.html"


class StubStages:
    """Replaces all stages except `read`, and reports; records every call as `RUN stage`.

    Subclasses define `dev_score` and write the other files that their tests need.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.trouble: dict[str, BaseException] = {}

    def install(self, monkeypatch: pytest.MonkeyPatch) -> Self:
        for name in list(STAGES)[1:]:
            monkeypatch.setattr(STAGES[name], "run", self._stub(name))
        monkeypatch.setattr("endtask.reporting.page.write_report", _write_report)
        return self

    def of(self, stage: str) -> list[str]:
        """Return the runs in which a stage was done."""
        return [call.split(" ")[0] for call in self.calls if call.endswith(f" {stage}")]

    def name_of(self, run: Path) -> str:
        """Return the name of a run."""
        return run.name

    def dev_score(self, data: RunData, seed: int, folder: Path) -> float:
        """Return the dev score of fine-tuning with a seed; `folder` is the seed's."""
        raise NotImplementedError

    def _stub(self, name: str) -> Callable[[RunData, StageFolder, Made], dict[str, Any]]:
        def run(data: RunData, stage: StageFolder, made: Made) -> dict[str, Any]:
            folder = stage.start()
            call = f"{self.name_of(stage.final.parent)} {name}"
            self.calls.append(call)
            write_text(folder / "output.txt", f"{name}\n")
            if call in self.trouble:
                stage.set_plan(steps=1)
                raise self.trouble.pop(call)
            counts: dict[str, Any] = getattr(self, f"_{name}")(data, folder)
            return counts

        return run

    def _retrieve(self, data: RunData, folder: Path) -> dict[str, Any]:
        return {"corpus": {"bytes": 100}}

    def _select(self, data: RunData, folder: Path) -> dict[str, Any]:
        selected = 0 if not data.settings.select.part.selects else 50
        return {"passages": selected, "bytes": selected, "share_of_corpus": 0.5}

    def _pack(self, data: RunData, folder: Path) -> dict[str, Any]:
        (folder / "tokenizer").mkdir()
        write_json(folder / "tokenizer" / "tokenizer.json", {"words": data.settings.tokenizer.vocab_size})
        return {"vocabulary": 64}

    def _pretrain(self, data: RunData, folder: Path) -> dict[str, Any]:
        return {"steps": 3, "parameters": 10, "device": "cpu", **_cost(100)}

    def _finetune(self, data: RunData, folder: Path) -> dict[str, Any]:
        seeds = []
        for seed in data.settings.model_seeds:
            (folder / f"seed-{seed}").mkdir()
            score = self.dev_score(data, seed, folder / f"seed-{seed}")
            seeds.append({"seed": seed, "dev": {_metric(data): score}, "best_step": 1})
        return {"steps_per_seed": 2, **_cost(50), "seeds": seeds}

    def _evaluate(self, data: RunData, folder: Path) -> dict[str, Any]:
        rows = len(data.task.splits["test"])
        counts = {"split": "test", "rows": rows, "leak_free_rows": rows}
        summary = {"metric": _metric(data), "mean": 0.25, "std": 0.01}
        seeds = [{"seed": seed} for seed in data.settings.model_seeds]
        write_json(folder / RESULTS, {**counts, "summary": summary, "seeds": seeds})
        return {**counts, **summary}

    def _model(self, data: RunData, folder: Path) -> dict[str, Any]:
        return {"seed": 0}


def _metric(data: RunData) -> str:
    return measure_of(data.task, data.settings.evaluate).name


def _cost(tokens: int) -> dict[str, float]:
    return {"tokens": tokens, "padded_tokens": tokens, "flops": 60.0 * tokens, "matmul_flops": 50.0 * tokens}


def toy(data: Path, output: Path, **changes: Any) -> Settings:
    """Return settings over the toy data without a device, since naming one imports PyTorch."""
    return resolve(toy_settings(data, output, **{"device": "auto", **changes}))
