"""Pre-training: objectives on the shared encoder; by default masked LM on the selection, and the task (TLM)."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from endtask.config import Budget, Settings
from endtask.config.data_usage import data_usage
from endtask.encoders.flops import training_flops
from endtask.encoders.weights import save_weights
from endtask.io.stage_folder import StageFolder
from endtask.objectives.context import pretrain_head
from endtask.progress import warn
from endtask.task import Task
from endtask.training.budget_plan import StepCost, measure_cost, parameters_of, split_budget, steps_for, with_scoring
from endtask.training.checkpoint import CHECKPOINT
from endtask.training.dev_eval import DevScores
from endtask.training.initial_network import network_for
from endtask.training.loggers import open_trackers
from endtask.training.phase import Phase
from endtask.training.phase_runner import Callback, TrainState, nothing_yet, run_phase
from endtask.training.pretrain_phase import (
    Part,
    parts_of,
    pretrain_objectives,
    pretrain_phase,
    total_state,
    weighting_context,
)
from endtask.training.reselect import count_reselection, packed_round, reselection_of, with_reselection
from endtask.weighting.base import ExtraCost
from endtask.weighting.meta.folds import groups_in

WEIGHTS = "weights.safetensors"
BEST_PRETRAINED = "best.safetensors"


def pretrain(task: Task, packed: Path, settings: Settings, stage: StageFolder) -> dict[str, Any]:
    """Train the stage in its folder; returns counts for the manifest."""
    folder = stage.start()
    if settings.skip_pretraining:
        return _save_initial_weights(task, packed, settings, folder)
    weighting = settings.pretrain.weighting.part
    phase = pretrain_phase(task, packed, settings)
    if "steps" not in stage.plan:
        budget, _ = split_budget(settings)
        steps, cost = _plan(phase, task, packed, settings, budget)
        stage.set_plan(steps=steps, budget=str(budget), cost_per_step=vars(cost))
    steps = stage.plan["steps"]
    if weighting.folds(task, settings.pretrain_seed) is not None:  # their length depends on the steps
        phase = replace(phase, objectives=pretrain_objectives(task, packed, phase.network, settings, steps=steps))
    for warning in weighting.warnings(task, settings):
        warn(warning)
    rule = weighting.build(weighting_context(phase, task, packed, settings), steps)
    phase = replace(phase, steps=steps, weighting=rule)
    phase = replace(phase, refresh=reselection_of(phase, task, packed, settings))
    parts = parts_of(phase, settings)
    state = total_state([_train(part, task, packed, settings, stage) for part in parts])
    save_weights(folder / WEIGHTS, phase.network)
    parameters, trained = parameters_of(phase), state["tokens"]
    trained += _count_extra(state, _extra_cost(phase, task, packed, settings))
    trained += count_reselection(state, phase.network)
    counts = {
        "planned_steps": phase.steps,
        "parameters": parameters,
        "device": str(phase.context.device),
        "attention": phase.network.backend,
        "flops": training_flops(parameters, trained),
        "uses": _uses(task, settings, phase),
        **state,
    }
    # At the very end: a stage that fails before resumes from them.
    for part in parts:
        (folder / part.name / CHECKPOINT).unlink(missing_ok=True)
    return counts


def _train(part: Part, task: Task, packed: Path, settings: Settings, stage: StageFolder) -> TrainState:
    """Train a part of the stage, from its last checkpoint if there is one; the next part continues with the network."""
    folder = stage.partial / part.name
    run = f"{Path(settings.output_dir).name} pre-training {part.name}".rstrip()
    folder.mkdir(exist_ok=True)
    with open_trackers(settings.report_to, folder, run, settings.model_dump(mode="json")) as trackers:
        return run_phase(
            part.phase,
            folder,
            label=part.label,
            callback=_dev_callback(part.phase, task, packed, settings, stage.partial),
            on_checkpoint=stage.keep_time,
            trackers=trackers,
        )


def _uses(task: Task, settings: Settings, phase: Phase | None) -> list[dict[str, Any]]:
    """Return which split feeds what, without objectives that had no text."""
    absent = settings.used_objectives.keys() - (phase.objectives.keys() if phase is not None else ())
    return [asdict(use) for use in data_usage(settings, groups=groups_in(task.train), absent=absent)]


def _plan(phase: Phase, task: Task, packed: Path, settings: Settings, budget: Budget) -> tuple[int, StepCost]:
    """Return the steps that fit into the budget; planned again if their number changes the weighting."""
    cost = _cost(phase, task, packed, settings, budget)
    steps = steps_for(budget, cost)
    weighting = settings.pretrain.weighting.part
    if weighting.depends_on_steps(task, settings, steps):
        rule = weighting.mean(weighting_context(phase, task, packed, settings), steps)
        cost = _cost(replace(phase, weighting=rule), task, packed, settings, budget)
        steps = steps_for(budget, cost)
    return steps, cost


def _cost(phase: Phase, task: Task, packed: Path, settings: Settings, budget: Budget) -> StepCost:
    extra, steps = _extra_cost(phase, task, packed, settings), settings.pretrain.eval_steps
    cost = _with_extra(measure_cost(phase, budget), extra, parameters_of(phase))
    read = packed_round(packed, settings.pretrain.reselect)
    cost = with_reselection(cost, phase.network, read, parameters_of(phase), settings)
    return cost if steps is None else with_scoring(cost, packed / "dev", every=steps)


def _extra_cost(phase: Phase, task: Task, packed: Path, settings: Settings) -> ExtraCost | None:
    extra: ExtraCost | None = settings.pretrain.weighting.part.extra_cost(
        weighting_context(phase, task, packed, settings)
    )
    return extra


def _with_extra(cost: StepCost, extra: ExtraCost | None, parameters: int) -> StepCost:
    """Return the cost of a step with its share of what the weighting computes; seconds were measured with it."""
    if extra is None:
        return cost
    flops = cost.flops + training_flops(parameters, extra.trained_tokens / extra.every)
    return replace(cost, tokens=cost.tokens + extra.tokens / extra.every, flops=flops)


def _count_extra(state: TrainState, extra: ExtraCost | None) -> float:
    """Add what the weighting computed in all steps to the counts; returns the tokens that it trained on."""
    if extra is None:
        return 0.0
    updates: int = -(-state["steps"] // extra.every)
    tokens, flops = round(updates * extra.tokens), updates * extra.matmul_flops
    state["tokens"] += tokens
    state["padded_tokens"] += tokens
    state["matmul_flops"] += flops
    state["objectives"][extra.name] = {"steps": updates, "tokens": tokens, "matmul_flops": flops}
    return updates * extra.trained_tokens


def _save_initial_weights(task: Task, packed: Path, settings: Settings, folder: Path) -> dict[str, Any]:
    network = network_for(task, packed, settings)
    save_weights(folder / WEIGHTS, network)
    parameters = sum(weight.numel() for weight in network.parameters())
    counts = {"steps": 0, "parameters": parameters, "device": "none", "flops": 0.0, **nothing_yet()}
    return {**counts, "uses": _uses(task, settings, None)}


def _dev_callback(phase: Phase, task: Task, packed: Path, settings: Settings, folder: Path) -> Callback | None:
    """Return a callback that scores the dev split by pre-training's own head, if the settings have `eval_steps`."""
    steps = settings.pretrain.eval_steps
    used = settings.used_objectives
    if steps is None or not any(used[name].sees_labels for name in phase.objectives):
        return None
    scores = DevScores(
        phase.network,
        task,
        packed,
        settings,
        phase.context,
        folder / BEST_PRETRAINED,
        patience=settings.pretrain.early_stopping_patience,
        head=pretrain_head(settings),
    )
    return scores.callback(steps)
