"""Stages that cost nothing: real run folders, with a dev score that is a plain function of the settings."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from endtask.files.atomic import write_json, write_text
from endtask.files.run_layout import RESULTS, STAGES
from endtask.files.stage_folder import StageFolder
from endtask.settings import Settings, resolve
from endtask.stages import WORK, RunData
from tests.toy_run import toy_settings

Made = dict[str, Path]
Score = Callable[[Settings], float]


def best_in_the_middle(settings: Settings) -> float:
    """Highest at a rate of 1e-3, rho1 = 19 and half of the tokens masked."""
    rho1 = settings.train.rho1
    assert isinstance(rho1, int)
    away = abs(math.log10(settings.train.learning_rate) + 3) + abs(math.log10(rho1 + 1) - math.log10(20))
    return round(0.9 / (1 + away + abs(settings.train.mask_probability - 0.5)), 6)


class Stubs:
    """Stands in for all stages but `read` and for reports; notes every call as `folder stage`."""

    def __init__(self, score: Score = best_in_the_middle) -> None:
        self.score = score
        self.calls: list[str] = []
        self.trouble: dict[str, BaseException] = {}

    def install(self, monkeypatch: pytest.MonkeyPatch) -> Stubs:
        for name in STAGES[1:]:
            monkeypatch.setitem(WORK, name, self._work(name))
        monkeypatch.setattr("endtask.report.page.write_report", lambda folder: folder / "report.html")
        return self

    def of(self, stage: str) -> list[str]:
        """The folders in which a stage was done."""
        return [call.split(" ")[0] for call in self.calls if call.endswith(f" {stage}")]

    def _work(self, name: str) -> Callable[[RunData, StageFolder, Made], dict[str, Any]]:
        def work(data: RunData, stage: StageFolder, made: Made) -> dict[str, Any]:
            folder = stage.start()
            call = f"{stage.final.parent.name} {name}"
            self.calls.append(call)
            write_text(folder / "output.txt", f"{name}\n")
            if call in self.trouble:
                stage.set_plan(steps=1)
                raise self.trouble.pop(call)
            counts: dict[str, Any] = getattr(self, f"_{name}")(data.settings, folder)
            return counts

        return work

    def _retrieve(self, settings: Settings, folder: Path) -> dict[str, Any]:
        return {"corpus": {"bytes": 100}}

    def _select(self, settings: Settings, folder: Path) -> dict[str, Any]:
        return {"passages": 0, "bytes": 0}

    def _pack(self, settings: Settings, folder: Path) -> dict[str, Any]:
        (folder / "tokenizer").mkdir()
        write_text(folder / "tokenizer" / "words.txt", "words\n")
        return {"vocabulary": 64}

    def _pretrain(self, settings: Settings, folder: Path) -> dict[str, Any]:
        return {"steps": 3, "parameters": 10, "device": "cpu", **_cost(100, 6000.0)}

    def _finetune(self, settings: Settings, folder: Path) -> dict[str, Any]:
        score = self.score(settings)
        seeds = [
            {"seed": seed, "dev": {_metric(settings): score + gap}, "best_step": 1}
            for seed, gap in ((0, -0.01), (1, 0.01))
        ]
        return {"steps_per_seed": 2, **_cost(50, 3000.0), "seeds": seeds}

    def _evaluate(self, settings: Settings, folder: Path) -> dict[str, Any]:
        summary = {"metric": _metric(settings), "mean": 0.25, "std": 0.01}
        counts = {"split": "test", "rows": 18, "leak_free_rows": 18}
        write_json(folder / RESULTS, {**counts, "summary": summary, "seeds": [{"seed": 0}, {"seed": 1}]})
        return {**counts, **summary}

    def _model(self, settings: Settings, folder: Path) -> dict[str, Any]:
        return {"seed": 0}


def _metric(settings: Settings) -> str:
    """That of tasks with classes, as the toy task is."""
    return "macro_f1" if settings.evaluate.metric == "auto" else settings.evaluate.metric


def _cost(tokens: int, flops: float) -> dict[str, float]:
    return {"tokens": tokens, "padded_tokens": tokens, "flops": flops, "matmul_flops": flops}


def toy(data: Path, output: Path, **changes: Any) -> Settings:
    """Settings of a search over the toy data; no device is named, since asking for one imports PyTorch."""
    return resolve(toy_settings(data, output, **{"device": "auto", **changes}))
