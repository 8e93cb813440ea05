"""Stages without training whose predictions are a function of settings and seeds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from endtask.config import Settings
from endtask.io.atomic import write_text
from endtask.io.run_layout import DEV_PREDICTIONS, PREDICTIONS
from endtask.pipeline.stage import RunData
from endtask.seeds import generator
from tests.stub_stages import Made as Made
from tests.stub_stages import StubStages
from tests.stub_stages import toy as toy


def share_right(settings: Settings) -> float:
    """How many rows a stub gets right: more with a higher rate, fewer without a corpus."""
    rate = min(settings.pretrain.learning_rate * 100, 0.3)
    return 0.4 + rate + {"best_rank": 0.2, "random": 0.1}.get(settings.select.name, 0.0)


class Stubs(StubStages):
    """Runs are noted as `CELL/seed-N`; predictions are written as well."""

    def name_of(self, run: Path) -> str:
        return f"{run.parent.name}/{run.name}"

    def dev_score(self, data: RunData, seed: int, folder: Path) -> float:
        predicted = self._predicted(data, "dev", seed)
        write_text(folder / DEV_PREDICTIONS, json.dumps(predicted))
        return float(np.mean([a == b for a, b in zip(predicted, data.task.label_numbers("dev"), strict=True)]))

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
        return super()._evaluate(data, folder)

    def _predicted(self, data: RunData, split: str, seed: int) -> list[int]:
        """Right with the share that the settings earn, wrong by one class else."""
        random = generator(data.settings.pretrain_seed, split, seed)
        truth = np.asarray(data.task.label_numbers(split))
        right = random.random(len(truth)) < share_right(data.settings)
        answers: list[int] = np.where(right, truth, (truth + 1) % len(data.task.labels)).tolist()
        return answers
