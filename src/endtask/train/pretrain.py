"""Stage 1: masked LM on the selection, jointly with the task (TLM)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from endtask.files.stage_folder import StageFolder
from endtask.models.flops import training_flops
from endtask.models.network import Network
from endtask.models.place import Place
from endtask.models.weights import save_weights
from endtask.objectives.base import Objective
from endtask.progress import say
from endtask.seeds import derive
from endtask.settings import Budget, Settings
from endtask.task import Task
from endtask.train.checkpoint import CHECKPOINT
from endtask.train.dev_scores import DevScores
from endtask.train.device import choose_place, move
from endtask.train.joint import EXTERNAL, INTERNAL, joint_objectives, rho1_of, stage_1_head
from endtask.train.loop import Phase
from endtask.train.phase_run import Pause, nothing_yet, run_phase
from endtask.train.plan import StepCost, measure_cost, parameters_of, split_budget, steps_for, with_scoring
from endtask.train.start import network_for
from endtask.train.trackers import open_trackers
from endtask.weighting.annealed_interleave import AnnealedInterleave, MeanInterleave
from endtask.weighting.base import Weighting
from endtask.weighting.equal import Equal
from endtask.weighting.interleave import Interleave

WEIGHTS = "weights.safetensors"
BEST_STAGE_1 = "best.safetensors"


def pretrain(task: Task, packed: Path, settings: Settings, stage: StageFolder) -> dict[str, Any]:
    """Train the joint stage in the stage's folder; returns counts for the manifest."""
    folder = stage.start()
    if settings.stage1 == "none":
        return _first_weights_as_they_are(task, packed, settings, folder)
    phase = pretrain_phase(task, packed, settings)
    if "steps" not in stage.plan:
        budget, _ = split_budget(settings)
        steps, cost = _plan(phase, task, packed, settings, budget)
        stage.set_plan(steps=steps, budget=str(budget), cost_per_step=vars(cost))
    steps = stage.plan["steps"]
    phase = replace(phase, steps=steps, weighting=_mix(phase.objectives, task, settings, steps))
    with open_trackers(
        settings.report_to, folder, f"{Path(settings.output_dir).name} stage 1", settings.model_dump(mode="json")
    ) as trackers:
        memory = run_phase(
            phase,
            folder,
            label="pretrain",
            pause=_dev_pause(phase, task, packed, settings, folder),
            on_checkpoint=stage.keep_time,
            max_skipped_steps=settings.max_skipped_steps,
            trackers=trackers,
        )
    save_weights(folder / WEIGHTS, phase.network)
    (folder / CHECKPOINT).unlink(missing_ok=True)
    parameters = parameters_of(phase)
    return {
        "steps": phase.steps,
        "parameters": parameters,
        "device": str(phase.place.device),
        "attention": phase.network.backend,
        "flops": training_flops(parameters, memory["tokens"]),
        **memory,
    }


def _plan(phase: Phase, task: Task, packed: Path, settings: Settings, budget: Budget) -> tuple[int, StepCost]:
    """The steps that fit into the budget; once more if their number changes how often the task has its turn."""
    cost = _cost(phase, packed, settings, budget)
    steps = steps_for(budget, cost)
    examples = len(task.train)
    if settings.train.rho1 == "auto" and rho1_of(examples, settings, steps) != rho1_of(examples, settings, None):
        by_steps = replace(phase, weighting=_mean_mix(phase.objectives, task, settings, steps))
        cost = _cost(by_steps, packed, settings, budget)
        steps = steps_for(budget, cost)
    return steps, cost


def _cost(phase: Phase, packed: Path, settings: Settings, budget: Budget) -> StepCost:
    cost, steps = measure_cost(phase, budget), settings.train.eval_steps
    return cost if steps is None else with_scoring(cost, packed / "dev", every=steps)


def _first_weights_as_they_are(task: Task, packed: Path, settings: Settings, folder: Path) -> dict[str, Any]:
    network = network_for(task, packed, settings)
    save_weights(folder / WEIGHTS, network)
    parameters = sum(weight.numel() for weight in network.parameters())
    return {"steps": 0, "parameters": parameters, "device": "none", "flops": 0.0, **nothing_yet()}


def pretrain_phase(task: Task, packed: Path, settings: Settings) -> Phase:
    """The phase with its objectives and the mean of its mix; the plan puts in the steps, and the mix over them."""
    place = choose_place(settings)
    network = move(network_for(task, packed, settings), settings, place)
    network.set_dropout(settings.train.dropout)
    objectives = joint_objectives(task, packed, network, settings)
    return phase_of(network, objectives, _mean_mix(objectives, task, settings, steps=None), settings, place)


def _mix(objectives: Mapping[str, Objective], task: Task, settings: Settings, steps: int) -> Weighting:
    """Which objective has its turn at each of the steps."""
    if len(objectives) == 1:
        return Equal(*objectives)
    rho1, rho1_end = rho1_of(len(task.train), settings, steps), settings.train.rho1_end
    if rho1_end is None:
        mix = Interleave(EXTERNAL, INTERNAL, rho1)
    else:
        mix = AnnealedInterleave(EXTERNAL, INTERNAL, rho1, rho1_end, steps)
    if mix.internal_before(steps) == 0:
        say(f"warning: {steps} steps end before the first task batch (train.rho1 is {rho1})")
    return mix


def _mean_mix(objectives: Mapping[str, Objective], task: Task, settings: Settings, steps: int | None) -> Weighting:
    """A constant mix whose steps cost what those of the real one cost on average."""
    if len(objectives) == 1:
        return Equal(*objectives)
    rho1, rho1_end = rho1_of(len(task.train), settings, steps), settings.train.rho1_end
    return (
        Interleave(EXTERNAL, INTERNAL, rho1) if rho1_end is None else MeanInterleave(EXTERNAL, INTERNAL, rho1, rho1_end)
    )


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
    )


def _dev_pause(phase: Phase, task: Task, packed: Path, settings: Settings, folder: Path) -> Pause | None:
    """Scores of the dev split by stage 1's own head, if asked for."""
    steps = settings.train.eval_steps
    if steps is None or INTERNAL not in phase.objectives:
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
    return Pause(steps, scores.score)
