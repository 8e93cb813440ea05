"""Stage 1: a set of objectives on the shared body; by default masked LM on the selection, and the task (TLM)."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from endtask.files.stage_folder import StageFolder
from endtask.models.flops import training_flops
from endtask.models.network import Network
from endtask.models.place import Place
from endtask.models.weights import save_weights
from endtask.objectives.base import Objective
from endtask.seeds import derive
from endtask.settings import Budget, Settings
from endtask.settings.uses import uses_of
from endtask.task import Task
from endtask.train.checkpoint import CHECKPOINT
from endtask.train.dev_scores import DevScores
from endtask.train.device import choose_place, move
from endtask.train.joint import joint_objectives, rho1_of, stage_1_head
from endtask.train.loop import Phase
from endtask.train.meta_cost import HeldOutCost, count_held_out, held_out_cost, with_held_out
from endtask.train.meta_folds import FOLD_STEPS, fold_steps, groups_in
from endtask.train.mix import Mix
from endtask.train.parts import Part, parts_of, total_memory
from endtask.train.phase_run import Memory, Pause, nothing_yet, run_phase
from endtask.train.plan import StepCost, measure_cost, parameters_of, split_budget, steps_for, with_scoring
from endtask.train.reselect import count_reselection, packed_round, reselection_of, with_reselection
from endtask.train.start import network_for
from endtask.train.trackers import open_trackers
from endtask.weighting.base import Weighting

WEIGHTS = "weights.safetensors"
BEST_STAGE_1 = "best.safetensors"


def pretrain(task: Task, packed: Path, settings: Settings, stage: StageFolder) -> dict[str, Any]:
    """Train the stage in its folder; returns counts for the manifest."""
    folder = stage.start()
    if settings.stage1 == "none":
        return _first_weights_as_they_are(task, packed, settings, folder)
    phase = pretrain_phase(task, packed, settings)
    if "steps" not in stage.plan:
        budget, _ = split_budget(settings)
        steps, cost = _plan(phase, task, packed, settings, budget)
        stage.set_plan(steps=steps, budget=str(budget), cost_per_step=vars(cost))
    steps = stage.plan["steps"]
    if settings.train.weighs_by_folds and fold_steps(settings.train.meta, steps) < FOLD_STEPS:
        phase = replace(phase, objectives=joint_objectives(task, packed, phase.network, settings, steps=steps))
    phase = replace(phase, steps=steps, weighting=_mix(phase, task, packed, settings).over(steps))
    phase = replace(phase, renewal=reselection_of(phase, task, packed, settings))
    parts = parts_of(phase, settings)
    memory = total_memory([_train(part, task, packed, settings, stage) for part in parts])
    save_weights(folder / WEIGHTS, phase.network)
    parameters, trained = parameters_of(phase), memory["tokens"]
    trained += count_held_out(memory, _look(phase, task, packed, settings), settings)
    trained += count_reselection(memory, phase.network)
    counts = {
        "planned_steps": phase.steps,
        "parameters": parameters,
        "device": str(phase.place.device),
        "attention": phase.network.backend,
        "flops": training_flops(parameters, trained),
        "uses": _uses(task, settings, phase),
        **memory,
    }
    # At the very end: whatever fails before can go on from them.
    for part in parts:
        (folder / part.name / CHECKPOINT).unlink(missing_ok=True)
    return counts


def _train(part: Part, task: Task, packed: Path, settings: Settings, stage: StageFolder) -> Memory:
    """Train a part of the stage, from its last checkpoint if it was begun; the network goes on to the next."""
    folder = stage.partial / part.name
    run = f"{Path(settings.output_dir).name} stage 1 {part.name}".rstrip()
    folder.mkdir(exist_ok=True)
    with open_trackers(settings.report_to, folder, run, settings.model_dump(mode="json")) as trackers:
        return run_phase(
            part.phase,
            folder,
            label=part.label,
            pause=_dev_pause(part.phase, task, packed, settings, stage.partial),
            on_checkpoint=stage.keep_time,
            max_skipped_steps=settings.max_skipped_steps,
            trackers=trackers,
        )


def _uses(task: Task, settings: Settings, phase: Phase | None) -> list[dict[str, Any]]:
    """Which split feeds what, without objectives that had no text."""
    absent = settings.used_objectives.keys() - (phase.objectives.keys() if phase is not None else ())
    return [asdict(use) for use in uses_of(settings, groups=groups_in(task.train), absent=absent)]


def _plan(phase: Phase, task: Task, packed: Path, settings: Settings, budget: Budget) -> tuple[int, StepCost]:
    """The steps that fit into the budget; once more if their number changes how often the task has its turn."""
    cost = _cost(phase, task, packed, settings, budget)
    steps = steps_for(budget, cost)
    examples = len(task.train)
    is_auto = settings.train.weighting == "interleave" and settings.train.rho1 == "auto"
    if is_auto and rho1_of(examples, settings, steps) != rho1_of(examples, settings, None):
        by_steps = replace(phase, weighting=_mix(phase, task, packed, settings).mean(steps))
        cost = _cost(by_steps, task, packed, settings, budget)
        steps = steps_for(budget, cost)
    return steps, cost


def _cost(phase: Phase, task: Task, packed: Path, settings: Settings, budget: Budget) -> StepCost:
    look, steps = _look(phase, task, packed, settings), settings.train.eval_steps
    cost = with_held_out(measure_cost(phase, budget), look, parameters_of(phase), settings)
    read = packed_round(packed, settings.train.reselect)
    cost = with_reselection(cost, phase.network, read, parameters_of(phase), settings)
    return cost if steps is None else with_scoring(cost, packed / "dev", every=steps)


def _look(phase: Phase, task: Task, packed: Path, settings: Settings) -> HeldOutCost | None:
    """The cost of a look at held-out texts; None where weights are not learned, and nobody need count groups."""
    if settings.train.weighting != "meta":
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
    place = choose_place(settings)
    network = move(network_for(task, packed, settings, least_vocabulary=least_vocabulary), settings, place)
    network.set_dropout(settings.train.dropout)
    objectives = joint_objectives(task, packed, network, settings)
    mix = Mix(objectives, task, packed, network, settings, place)
    return phase_of(network, objectives, mix.mean(steps=None), settings, place)


def _mix(phase: Phase, task: Task, packed: Path, settings: Settings) -> Mix:
    return Mix(phase.objectives, task, packed, phase.network, settings, phase.place)


def phase_of(
    network: Network, objectives: dict[str, Objective], weighting: Weighting, settings: Settings, place: Place
) -> Phase:
    """A phase of stage 1 over any objectives."""
    train = settings.train
    return Phase(
        network=network,
        objectives=objectives,
        weighting=weighting,
        steps=1,
        settings=train,
        learning_rate=train.learning_rate,
        seed=derive(settings.pretrain_seed, "pretrain"),
        place=place,
        accumulation=train.gradient_accumulation_steps,
        ramp_fraction=train.batch_ramp_fraction,
        idle_heads_move=train.idle_heads_move,
        head_weight_decay=train.head_weight_decay,
        clip_heads_apart=train.clip_heads_apart,
    )


def _dev_pause(phase: Phase, task: Task, packed: Path, settings: Settings, folder: Path) -> Pause | None:
    """Scores of the dev split by stage 1's own head, if asked for."""
    steps = settings.train.eval_steps
    used = settings.used_objectives
    if steps is None or not any(used[name].sees_labels for name in phase.objectives):
        return None
    scores = DevScores(
        phase.network,
        task,
        packed,
        settings,
        phase.place,
        folder / BEST_STAGE_1,
        patience=settings.train.early_stopping_patience,
        head=stage_1_head(settings),
    )
    return scores.pause(steps)
