"""Keep fine-tunings within a time budget: each gets an equal part of the time that is left when it starts."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from endtask.config import Settings
from endtask.io.atomic import write_json
from endtask.io.parsing import read_json
from endtask.io.stage_folder import StageFolder
from endtask.tokenization.packed_texts import PackedTexts
from endtask.training.budget_plan import StepCost
from endtask.training.pacing import Pacer, Scoring

PLAN = "plan.json"


@dataclass
class RunPlan:
    """The decisions about one fine-tuning, in a file of its folder: processes fine-tune apart."""

    stage: StageFolder
    path: Path
    plan: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.plan = read_json(self.path) if self.path.exists() else {}

    @property
    def seconds(self) -> float:
        """The seconds that the stage has used so far."""
        return self.stage.seconds

    def set_plan(self, **decisions: Any) -> None:
        """Write decisions to the file before they are acted on."""
        self.plan.update(decisions)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_json(self.path, self.plan)


def pacer_of_run(
    stage: StageFolder, folder: Path, *, runs_left: int, most_steps: int, scoring: Scoring
) -> Pacer | None:
    """Return what keeps the time of one fine-tuning in `folder`, one of `runs_left`; None without a time budget."""
    if "ends" not in stage.plan:
        return None
    run = RunPlan(stage, folder / PLAN)
    if "ends" not in run.plan:
        left = max(0.0, stage.plan["ends"] - stage.seconds)
        run.set_plan(ends=stage.seconds + left / runs_left)
    return Pacer(run, run.plan["ends"], most_steps, scoring)


def scoring_of(stage: StageFolder, packed: Path, settings: Settings) -> Scoring:
    """Return what the dev scores of fine-tuning cost by the plan: a forward pass takes a third of a training step."""
    cost = StepCost(**stage.plan["cost_per_step"]) if "cost_per_step" in stage.plan else None
    every = settings.finetune.eval_steps or stage.plan["steps_per_epoch"]
    if cost is None:
        return Scoring(every=every)
    return Scoring(float(PackedTexts(packed / "dev").lengths.sum()) / (3 * cost.tokens), every)
