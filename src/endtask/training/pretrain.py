"""Pre-training: a set of objectives on the shared encoder; by default masked LM on the selection, and the task (TLM)."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from endtask.config import Budget, Settings
from endtask.config.data_usage import data_usage
from endtask.encoders.device_context import DeviceContext
from endtask.encoders.flops import training_flops
from endtask.encoders.network import Network
from endtask.encoders.weights import save_weights
from endtask.io.stage_folder import StageFolder
from endtask.objectives.base import Objective
from endtask.seeds import derive
from endtask.task import Task
from endtask.training.budget_plan import StepCost, measure_cost, parameters_of, split_budget, steps_for, with_scoring
from endtask.training.checkpoint import CHECKPOINT
from endtask.training.dev_eval import DevScores
from endtask.training.device import choose_device_context, move
from endtask.training.initial_network import network_for
from endtask.training.loggers import open_trackers
from endtask.training.loop import Phase
from endtask.training.phase_runner import Callback, TrainState, nothing_yet, run_phase
from endtask.training.pretrain_objectives import joint_objectives, pretrain_head, rho1_of
from endtask.training.reselect import count_reselection, packed_round, reselection_of, with_reselection
from endtask.training.sequence import Part, parts_of, total_state
from endtask.training.weighting_plan import WeightingPlan
from endtask.weighting.base import Weighting
from endtask.weighting.meta.cost import HeldOutCost, count_held_out, held_out_cost, with_held_out
from endtask.weighting.meta.folds import FOLD_STEPS, fold_steps, groups_in

WEIGHTS = "weights.safetensors"
BEST_PRETRAINED = "best.safetensors"


def pretrain(task: Task, packed: Path, settings: Settings, stage: StageFolder) -> dict[str, Any]:
    """Train the stage in its folder; returns counts for the manifest."""
    folder = stage.start()
    if settings.skip_pretraining:
        return _first_weights_as_they_are(task, packed, settings, folder)
    phase = pretrain_phase(task, packed, settings)
    if "steps" not in stage.plan:
        budget, _ = split_budget(settings)
        steps, cost = _plan(phase, task, packed, settings, budget)
        stage.set_plan(steps=steps, budget=str(budget), cost_per_step=vars(cost))
    steps = stage.plan["steps"]
    if settings.pretrain.weighs_by_folds and fold_steps(settings.pretrain.meta, steps) < FOLD_STEPS:
        phase = replace(phase, objectives=joint_objectives(task, packed, phase.network, settings, steps=steps))
    phase = replace(phase, steps=steps, weighting=_mix(phase, task, packed, settings).over(steps))
    phase = replace(phase, refresh=reselection_of(phase, task, packed, settings))
    parts = parts_of(phase, settings)
    memory = total_state([_train(part, task, packed, settings, stage) for part in parts])
    save_weights(folder / WEIGHTS, phase.network)
    parameters, trained = parameters_of(phase), memory["tokens"]
    trained += count_held_out(memory, _look(phase, task, packed, settings), settings)
    trained += count_reselection(memory, phase.network)
    counts = {
        "planned_steps": phase.steps,
        "parameters": parameters,
        "device": str(phase.context.device),
        "attention": phase.network.backend,
        "flops": training_flops(parameters, trained),
        "uses": _uses(task, settings, phase),
        **memory,
    }
    # At the very end: whatever fails before can go on from them.
    for part in parts:
        (folder / part.name / CHECKPOINT).unlink(missing_ok=True)
    return counts


def _train(part: Part, task: Task, packed: Path, settings: Settings, stage: StageFolder) -> TrainState:
    """Train a part of the stage, from its last checkpoint if it was begun; the network goes on to the next."""
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
            max_skipped_steps=settings.max_skipped_steps,
            trackers=trackers,
        )


def _uses(task: Task, settings: Settings, phase: Phase | None) -> list[dict[str, Any]]:
    """Which split feeds what, without objectives that had no text."""
    absent = settings.used_objectives.keys() - (phase.objectives.keys() if phase is not None else ())
    return [asdict(use) for use in data_usage(settings, groups=groups_in(task.train), absent=absent)]


def _plan(phase: Phase, task: Task, packed: Path, settings: Settings, budget: Budget) -> tuple[int, StepCost]:
    """The steps that fit into the budget; once more if their number changes how often the task has its turn."""
    cost = _cost(phase, task, packed, settings, budget)
    steps = steps_for(budget, cost)
    examples = len(task.train)
    is_auto = settings.pretrain.weighting == "interleave" and settings.pretrain.rho1 == "auto"
    if is_auto and rho1_of(examples, settings, steps) != rho1_of(examples, settings, None):
        by_steps = replace(phase, weighting=_mix(phase, task, packed, settings).mean(steps))
        cost = _cost(by_steps, task, packed, settings, budget)
        steps = steps_for(budget, cost)
    return steps, cost


def _cost(phase: Phase, task: Task, packed: Path, settings: Settings, budget: Budget) -> StepCost:
    look, steps = _look(phase, task, packed, settings), settings.pretrain.eval_steps
    cost = with_held_out(measure_cost(phase, budget), look, parameters_of(phase), settings)
    read = packed_round(packed, settings.pretrain.reselect)
    cost = with_reselection(cost, phase.network, read, parameters_of(phase), settings)
    return cost if steps is None else with_scoring(cost, packed / "dev", every=steps)


def _look(phase: Phase, task: Task, packed: Path, settings: Settings) -> HeldOutCost | None:
    """The cost of a look at held-out texts; None where weights are not learned, and nobody need count groups."""
    if settings.pretrain.weighting != "meta":
        return None
    return held_out_cost(phase.network, packed, settings, groups=groups_in(task.train))


def _first_weights_as_they_are(task: Task, packed: Path, settings: Settings, folder: Path) -> dict[str, Any]:
    network = network_for(task, packed, settings)
    save_weights(folder / WEIGHTS, network)
    parameters = sum(weight.numel() for weight in network.parameters())
    counts = {"steps": 0, "parameters": parameters, "device": "none", "flops": 0.0, **nothing_yet()}
    return {**counts, "uses": _uses(task, settings, None)}


def pretrain_phase(task: Task, packed: Path, settings: Settings, *, least_vocabulary: int = 0) -> Phase:
    """The phase with its objectives and the mean of its mix; the plan puts in the steps, and the mix over them."""
    context = choose_device_context(settings)
    network = move(network_for(task, packed, settings, least_vocabulary=least_vocabulary), settings, context)
    network.set_dropout(settings.pretrain.dropout)
    objectives = joint_objectives(task, packed, network, settings)
    mix = WeightingPlan(objectives, task, packed, network, settings, context)
    return phase_of(network, objectives, mix.mean(steps=None), settings, context)


def _mix(phase: Phase, task: Task, packed: Path, settings: Settings) -> WeightingPlan:
    return WeightingPlan(phase.objectives, task, packed, phase.network, settings, phase.context)


def phase_of(
    network: Network, objectives: dict[str, Objective], weighting: Weighting, settings: Settings, context: DeviceContext
) -> Phase:
    """A phase of pre-training over any objectives."""
    train = settings.pretrain
    return Phase(
        network=network,
        objectives=objectives,
        weighting=weighting,
        steps=1,
        settings=train,
        learning_rate=train.learning_rate,
        seed=derive(settings.pretrain_seed, "pretrain"),
        context=context,
        accumulation=train.gradient_accumulation_steps,
        ramp_fraction=train.batch_ramp_fraction,
        update_unused_heads=train.update_unused_heads,
        head_weight_decay=train.head_weight_decay,
        clip_heads_apart=train.clip_heads_apart,
    )


def _dev_callback(phase: Phase, task: Task, packed: Path, settings: Settings, folder: Path) -> Callback | None:
    """Scores of the dev split by pre-training's own head, if asked for."""
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
