"""Stages that cost nothing: real run folders whose predictions are a plain function of the settings and seeds."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from endtask.evaluate.measures import measure_of
from endtask.files.atomic import write_json, write_text
from endtask.files.run_layout import DEV_PREDICTIONS, PREDICTIONS, RESULTS, STAGES
from endtask.files.stage_folder import StageFolder
from endtask.seeds import generator
from endtask.settings import Settings, resolve
from endtask.stages import WORK, RunData
from tests.toy_run import toy_settings

Made = dict[str, Path]


def share_right(settings: Settings) -> float:
    """How many rows a stub gets right: more with a higher rate, fewer without a corpus."""
    rate = min(settings.train.learning_rate * 100, 0.3)
    return 0.4 + rate + {"best_rank": 0.2, "random": 0.1}.get(settings.select.selector, 0.0)


class Stubs:
    """Stands in for all stages but `read` and for reports; notes every call as `CELL/seed-N stage`."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.trouble: dict[str, BaseException] = {}

    def install(self, monkeypatch: pytest.MonkeyPatch) -> Stubs:
        for name in STAGES[1:]:
            monkeypatch.setitem(WORK, name, self._work(name))
        monkeypatch.setattr("endtask.report.page.write_report", lambda folder: folder / "report.html")
        return self

    def of(self, stage: str) -> list[str]:
        """The runs in which a stage was done."""
        return [call.split(" ")[0] for call in self.calls if call.endswith(f" {stage}")]

    def _work(self, name: str) -> Callable[[RunData, StageFolder, Made], dict[str, Any]]:
        def work(data: RunData, stage: StageFolder, made: Made) -> dict[str, Any]:
            folder, run = stage.start(), stage.final.parent
            call = f"{run.parent.name}/{run.name} {name}"
            self.calls.append(call)
            write_text(folder / "output.txt", f"{name}\n")
            if call in self.trouble:
                stage.set_plan(steps=1)
                raise self.trouble.pop(call)
            counts: dict[str, Any] = getattr(self, f"_{name}")(data, folder)
            return counts

        return work

    def _retrieve(self, data: RunData, folder: Path) -> dict[str, Any]:
        return {"corpus": {"bytes": 100}}

    def _select(self, data: RunData, folder: Path) -> dict[str, Any]:
        kept = 0 if data.settings.select.selector == "none" else 50
        return {"passages": kept, "bytes": kept, "share_of_corpus": 0.5}

    def _pack(self, data: RunData, folder: Path) -> dict[str, Any]:
        (folder / "tokenizer").mkdir()
        write_json(folder / "tokenizer" / "tokenizer.json", {"words": data.settings.tokenizer.vocab_size})
        return {"vocabulary": 64}

    def _pretrain(self, data: RunData, folder: Path) -> dict[str, Any]:
        return {"steps": 3, "parameters": 10, "device": "cpu", **_cost(100)}

    def _finetune(self, data: RunData, folder: Path) -> dict[str, Any]:
        seeds = []
        for seed in data.settings.model_seeds:
            predicted = self._predicted(data, "dev", seed)
            (folder / f"seed-{seed}").mkdir()
            write_text(folder / f"seed-{seed}" / DEV_PREDICTIONS, json.dumps(predicted))
            right = np.mean([a == b for a, b in zip(predicted, data.task.label_numbers("dev"), strict=True)])
            seeds.append({"seed": seed, "dev": {_metric(data): float(right)}, "best_step": 1})
        return {"steps_per_seed": 2, **_cost(50), "seeds": seeds}

    def _evaluate(self, data: RunData, folder: Path) -> dict[str, Any]:
        task, seeds = data.task, data.settings.model_seeds
        answers = {seed: self._predicted(data, "test", seed) for seed in seeds}
        lines = [
            {
                "id": example.id,
                "label": example.label,
                "predicted": {seed: task.labels[answers[seed][place]] for seed in seeds},
            }
            for place, example in enumerate(task.splits["test"])
        ]
        write_text(folder / PREDICTIONS, "".join(f"{json.dumps(line)}\n" for line in lines))
        summary = {"metric": _metric(data), "mean": 0.5, "std": 0.0}
        counts = {"split": "test", "rows": len(lines), "leak_free_rows": len(lines)}
        write_json(folder / RESULTS, {**counts, "summary": summary, "seeds": [{"seed": seed} for seed in seeds]})
        return {**counts, **summary}

    def _model(self, data: RunData, folder: Path) -> dict[str, Any]:
        return {"seed": 0}

    def _predicted(self, data: RunData, split: str, seed: int) -> list[int]:
        """Right with the share that the settings earn, wrong by one class else."""
        random = generator(data.settings.pretrain_seed, split, seed)
        truth = np.asarray(data.task.label_numbers(split))
        right = random.random(len(truth)) < share_right(data.settings)
        answers: list[int] = np.where(right, truth, (truth + 1) % len(data.task.labels)).tolist()
        return answers


def _metric(data: RunData) -> str:
    return measure_of(data.task, data.settings.evaluate).name


def _cost(tokens: int) -> dict[str, float]:
    return {"tokens": tokens, "padded_tokens": tokens, "flops": 60.0 * tokens, "matmul_flops": 50.0 * tokens}


def toy(data: Path, output: Path, **changes: Any) -> Settings:
    """Settings of a comparison over the toy data; no device is named, since asking for one imports PyTorch."""
    return resolve(toy_settings(data, output, **{"device": "auto", **changes}))
