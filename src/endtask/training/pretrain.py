"""Pre-training: objectives on a shared encoder; by default masked LM on the selection and the task (TLM)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from endtask.config import Budget, ObjectiveSettings, PhaseSettings, Settings
from endtask.config.data_usage import data_usage
from endtask.encoders.device_context import DeviceContext
from endtask.encoders.flops import training_flops
from endtask.encoders.network import Network
from endtask.encoders.weights import save_weights
from endtask.errors import InputError
from endtask.io.stage_folder import StageFolder
from endtask.objectives.base import Batch, BuiltObjective, Loss
from endtask.objectives.context import BuildContext, masking_of, pretrain_head
from endtask.processes import ALONE, current_processes
from endtask.progress import say, warn
from endtask.seeds import derive
from endtask.task import Task
from endtask.tokenization.packed_texts import PackedTexts
from endtask.training.budget_plan import (
    StepCost,
    leaves_out_pretraining,
    measure_cost,
    most_for_finetuning,
    parameters_of,
    split_budget,
    steps_for,
    with_scoring,
    without_seconds_used,
)
from endtask.training.checkpoint import remove_checkpoints
from endtask.training.dev_eval import DevScores
from endtask.training.device import check_arithmetic, choose_device_context, move
from endtask.training.distributed import distribution, is_sharded, shard, start_together
from endtask.training.finetune_phase import amount_for_all_epochs, plan_in_words, tokens_to_read
from endtask.training.initial_network import network_for
from endtask.training.pacing import Pacer
from endtask.training.phase import Phase
from endtask.training.phase_runner import Callback, TrainState, initial_state, run_stage_phase
from endtask.training.reselect import count_reselection, packed_round, reselection_of, with_reselection
from endtask.weighting.base import ExtraCost, Rule, WeightingContext, left_out_of_batches
from endtask.weighting.equal import Equal
from endtask.weighting.folds import groups_in
from endtask.weighting.sequence import split_steps

WEIGHTS = "weights.safetensors"
BEST_PRETRAINED = "best.safetensors"


def pretrain(task: Task, packed: Path, settings: Settings, stage: StageFolder) -> dict[str, Any]:
    """Run pre-training in the stage's folder, and return counts for the manifest."""
    folder = start_together(stage)
    if settings.skip_pretraining:
        return _save_initial_weights(task, packed, settings, folder)
    weighting = settings.pretrain.weighting.part
    phase, processes = pretrain_phase(task, packed, settings), current_processes()
    phase = replace(phase, context=replace(phase.context, processes=processes))
    is_planned = "steps" in stage.plan
    share = None if is_planned else processes.shared(_finetuning_share(phase, task, packed, settings))
    if share == 1.0:
        stage.set_plan(**processes.shared({"steps": 0, "finetuning_share": share}))
    if stage.plan.get("steps") == 0:
        return {**_save_initial_weights(task, packed, settings, folder), "finetuning_share": 1.0}
    if is_sharded(settings, processes):
        shard(phase.network)
    if not is_planned:
        budget, _ = split_budget(settings, share)
        steps, cost = _plan(phase, task, packed, settings, without_seconds_used(budget, stage))
        plan = {"steps": steps, "budget": str(budget), "cost_per_step": vars(cost), "finetuning_share": share}
        stage.set_plan(**processes.shared(plan))
    if processes.is_first:
        check_arithmetic(stage, phase.context)
    steps = stage.plan["steps"]
    if weighting.folds(task, settings.pretrain_seed) is not None:  # the length of a fold depends on the steps
        phase = replace(phase, objectives=pretrain_objectives(task, packed, phase.network, settings, steps=steps))
    for warning in weighting.warnings(task, settings):
        warn(warning)
    rule = weighting.build(weighting_context(phase, task, packed, settings), steps)
    phase = replace(phase, steps=steps, weighting=rule)
    phase = replace(phase, refresh=reselection_of(phase, task, packed, settings))
    subphases = split_phase(phase, settings)
    pacer = _pacer(phase, subphases, task, settings, stage)
    states = []
    for position, subphase in enumerate(subphases, start=1):
        later = sum(other.phase.steps for other in subphases[position:])
        steps_after = later + _finetuning_in_steps(phase, packed, settings, stage)
        states.append(_train(subphase, task, packed, settings, stage, pacer, steps_after))
    state = total_state(states)
    save_weights(folder / WEIGHTS, phase.network, writes=processes.is_first)
    parameters, trained_tokens = parameters_of(phase), state["tokens"]
    trained_tokens += _count_extra(state, _extra_cost(phase, task, packed, settings))
    trained_tokens += count_reselection(state, phase.network)
    counts = {
        "planned_steps": stage.plan.get("replans", [(0, phase.steps)])[-1][1],
        "finetuning_share": stage.plan.get("finetuning_share"),
        "parameters": parameters,
        "device": str(phase.context.device),
        "attention": phase.network.backend,
        **distribution(phase.network, processes),
        "flops": training_flops(parameters, trained_tokens),
        "uses": _data_usage(task, settings, phase),
        **state,
        **_selection_passes(state, phase, packed, settings),
    }
    # At the very end: a stage that fails before resumes from its checkpoints.
    for subphase in subphases if processes.is_first else ():
        remove_checkpoints(folder / subphase.name)
    return counts


def _selection_passes(state: TrainState, phase: Phase, packed: Path, settings: Settings) -> dict[str, float]:
    """Return how often the selection was read, by tokens; empty where no objective reads it."""
    used, folder = settings.used_objectives, packed / "selection"
    names = [name for name in phase.objectives if used[name].reads == "selection"]
    if not names or not folder.exists():
        return {}
    tokens = sum(state["objectives"].get(name, {}).get("tokens", 0) for name in names)
    return {"selection_passes": tokens / max(1.0, float(PackedTexts(folder).lengths.sum()))}


def _train(
    subphase: Subphase,
    task: Task,
    packed: Path,
    settings: Settings,
    stage: StageFolder,
    pacer: Pacer | None,
    steps_after: float,
) -> TrainState:
    """Train from the last checkpoint if there is one; the next subphase continues with the same network."""
    phase, folder = subphase.phase, stage.partial / subphase.name
    callback = _dev_callback(phase, task, packed, settings, stage.partial)
    return run_stage_phase(
        phase,
        folder,
        stage,
        settings,
        label=subphase.label,
        callback=callback,
        pacer=pacer,
        steps_after=steps_after,
    )


def _finetuning_in_steps(phase: Phase, packed: Path, settings: Settings, stage: StageFolder) -> float:
    """Return how many steps of pre-training take as long as all fine-tunings, for the time left of the run."""
    if settings.skip_finetuning:
        return 0.0
    _, budget = split_budget(settings, stage.plan.get("finetuning_share"))
    if budget is None:
        cost = stage.plan.get("cost_per_step")
        return tokens_to_read(packed, settings) / max(1.0, float(cost["tokens"])) if cost else 0.0
    share = budget.amount / settings.budget.amount
    return phase.steps * share / max(1e-3, 1 - share)


def _pacer(
    phase: Phase, subphases: Sequence[Subphase], task: Task, settings: Settings, stage: StageFolder
) -> Pacer | None:
    """Return what keeps a time budget; None where schedules of other things depend on the number of steps."""
    budget, _ = split_budget(settings, stage.plan.get("finetuning_share"))
    depends = settings.pretrain.weighting.part.folds(task, settings.pretrain_seed) is not None
    if budget.seconds is None or depends or phase.refresh is not None or len(subphases) > 1:
        return None
    return Pacer(stage, budget.seconds)


def _finetuning_share(phase: Phase, task: Task, packed: Path, settings: Settings) -> float | None:
    """Return the share of the budget that all epochs of all fine-tunings need, up to a limit; say what a budget buys.

    None where the settings have a share, or where the budget does not limit fine-tuning; 1 leaves no pre-training.
    """
    if settings.finetune.budget_share != "auto" or split_budget(settings)[1] is None:
        return None
    alone = replace(phase.context, processes=ALONE)  # each process fine-tunes seeds of its own
    amount = amount_for_all_epochs(phase.network, task, packed, settings, alone)
    say(f"pretrain: {plan_in_words(settings, amount)}")
    share = amount / settings.budget.amount
    return 1.0 if leaves_out_pretraining(settings, share) else min(most_for_finetuning(settings), share)


def _data_usage(task: Task, settings: Settings, phase: Phase | None) -> list[dict[str, Any]]:
    """Return which objective reads which split, without objectives that have no text."""
    absent = settings.used_objectives.keys() - (phase.objectives.keys() if phase is not None else ())
    return [asdict(use) for use in data_usage(settings, groups=groups_in(task.train), absent=absent)]


def _plan(phase: Phase, task: Task, packed: Path, settings: Settings, budget: Budget) -> tuple[int, StepCost]:
    """Return the steps that fit into the budget and their cost; plan twice if the weighting depends on the steps."""
    cost = _cost(phase, task, packed, settings, budget)
    steps = steps_for(budget, cost)
    weighting = settings.pretrain.weighting.part
    if weighting.depends_on_steps(task, settings, steps):
        rule = weighting.mean(weighting_context(phase, task, packed, settings), steps)
        cost = _cost(replace(phase, weighting=rule), task, packed, settings, budget)
        steps = steps_for(budget, cost)
    return steps, cost


def _cost(phase: Phase, task: Task, packed: Path, settings: Settings, budget: Budget) -> StepCost:
    """Return the cost of a step, with its shares of the weighting, of re-selection and of dev scoring."""
    extra, eval_steps = _extra_cost(phase, task, packed, settings), settings.pretrain.eval_steps
    cost = _with_extra(measure_cost(phase, budget), extra, parameters_of(phase))
    tokens = packed_round(packed, settings.pretrain.reselect)
    cost = with_reselection(cost, phase.network, tokens, parameters_of(phase), settings)
    return cost if eval_steps is None else with_scoring(cost, packed / "dev", every=eval_steps)


def _extra_cost(phase: Phase, task: Task, packed: Path, settings: Settings) -> ExtraCost | None:
    extra: ExtraCost | None = settings.pretrain.weighting.part.extra_cost(
        weighting_context(phase, task, packed, settings)
    )
    return extra


def _with_extra(cost: StepCost, extra: ExtraCost | None, parameters: int) -> StepCost:
    """Return the cost of a step with its share of the weighting's updates, which the seconds include already."""
    if extra is None:
        return cost
    flops = cost.flops + training_flops(parameters, extra.trained_tokens / extra.every)
    return replace(cost, tokens=cost.tokens + extra.tokens / extra.every, flops=flops)


def _count_extra(state: TrainState, extra: ExtraCost | None) -> float:
    """Add the weighting's updates to the counts; return the tokens of training with the same FLOPs."""
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
    save_weights(folder / WEIGHTS, network, writes=current_processes().is_first)
    parameters = sum(weight.numel() for weight in network.parameters())
    counts = {"steps": 0, "parameters": parameters, "device": "none", "flops": 0.0, **initial_state()}
    return {**counts, "uses": _data_usage(task, settings, None)}


def _dev_callback(phase: Phase, task: Task, packed: Path, settings: Settings, folder: Path) -> Callback | None:
    """Return a callback that scores the dev split by pre-training's task head, or None without `eval_steps`."""
    eval_steps, used = settings.pretrain.eval_steps, settings.used_objectives
    if eval_steps is None or not any(used[name].sees_labels for name in phase.objectives):
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
    return scores.callback(eval_steps)


def pretrain_phase(task: Task, packed: Path, settings: Settings, *, least_vocabulary: int = 0) -> Phase:
    """Return the phase with its objectives, one step and the weighting's mean rule; planning replaces the last two."""
    if is_sharded(settings, current_processes()):
        settings = settings.model_copy(update={"compile": False})  # the encoder would be one graph, and need all layers
    context = choose_device_context(settings)
    network = move(network_for(task, packed, settings, least_vocabulary=least_vocabulary), settings, context)
    network.set_dropout(settings.pretrain.dropout)
    objectives = pretrain_objectives(task, packed, network, settings)
    run = WeightingContext(tuple(objectives), task, packed, network, settings, context)
    return phase_of(network, objectives, settings.pretrain.weighting.part.mean(run, None), settings, context)


def phase_of(
    network: Network, objectives: Mapping[str, BuiltObjective], rule: Rule, settings: Settings, context: DeviceContext
) -> Phase:
    """Return a pre-training phase over any objectives."""
    train = settings.pretrain
    return Phase(
        network=network,
        objectives=objectives,
        weighting=rule,
        steps=1,
        settings=train,
        learning_rate=train.learning_rate,
        seed=derive(settings.pretrain_seed, "pretrain"),
        context=context,
        accumulation=train.gradient_accumulation_steps,
        ramp_fraction=train.batch_ramp_fraction,
        update_unused_heads=train.task_head == "tlm",
        head_weight_decay=train.head_weight_decay,
        clip_heads_apart=train.clip_heads_apart,
    )


def weighting_context(phase: Phase, task: Task, packed: Path, settings: Settings) -> WeightingContext:
    """Return the context from which the weighting of a phase builds its rule."""
    return WeightingContext(tuple(phase.objectives), task, packed, phase.network, settings, phase.context)


def pretrain_objectives(
    task: Task, packed: Path, network: Network, settings: Settings, *, steps: int | None = None
) -> dict[str, BuiltObjective]:
    """Return the objectives of pre-training by name; of TLM's two only those that have text.

    `steps` is the number of steps of the phase, None before the plan.
    """
    weighting = settings.pretrain.weighting.part
    folds = weighting.folds(task, settings.pretrain_seed, steps)
    run = BuildContext(
        task,
        packed,
        network,
        settings,
        masking_of(packed, settings),
        derive(settings.pretrain_seed, "pretrain", "data"),
        None if folds is None else left_out_of_batches(folds, settings),
    )
    sections = {name: item for name, item in settings.used_objectives.items() if _has_text(name, item, run)}
    if not sections:
        raise InputError("inf leaves nothing to train on: there is no corpus text", key="pretrain.weighting.rho1")
    weighting.check_texts(tuple(sections))
    built = {name: section.part.build(name, section, run) for name, section in sections.items()}
    if all(section.dropout is None for section in sections.values()):
        return built
    default = settings.pretrain.dropout
    return {
        name: DropoutOverride(objective, default if (dropout := sections[name].dropout) is None else dropout)
        for name, objective in built.items()
    }


def _has_text(name: str, section: ObjectiveSettings, run: BuildContext) -> bool:
    """Return whether an objective has text; raise `InputError` if the user named one that has none."""
    if run.texts(section) is not None:
        return True
    if not run.settings.pretrain.skips_objectives_without_text:
        raise InputError(
            f"there is no text to read: the {section.reads} is empty",
            key=f"pretrain.objectives.{name}.texts",
            hint=f"name a corpus, or leave the objective out with pretrain.objectives.{name}.weight=0",
        )
    return False


@dataclass(frozen=True)
class Subphase:
    """A phase of pre-training; in a sequence `name` is the name of its only objective, otherwise empty."""

    name: str
    phase: Phase

    @property
    def label(self) -> str:
        """The label of the progress bar."""
        return f"pretrain {self.name}".rstrip()


def split_phase(phase: Phase, settings: Settings) -> list[Subphase]:
    """Return one subphase per objective of a sequence, each with its own schedule and optimizer, or the whole phase."""
    if not settings.pretrain.weighting.part.sequential or len(phase.objectives) == 1:
        return [Subphase("", phase)]
    used = settings.used_objectives
    steps = split_steps(phase.steps, [used[name].weight for name in phase.objectives])
    return [
        Subphase(
            name,
            replace(
                phase,
                objectives={name: objective},
                weighting=Equal(name),
                steps=count,
                settings=_settings_of(used[name], phase.settings),
                learning_rate=used[name].learning_rate or phase.learning_rate,
            ),
        )
        for (name, objective), count in zip(phase.objectives.items(), steps, strict=True)
    ]


def _settings_of(section: ObjectiveSettings, settings: PhaseSettings) -> PhaseSettings:
    """Return the settings of the phase, with the warm-up of the objective if it has one."""
    if section.warmup_steps is None:
        return settings
    return settings.model_copy(update={"warmup_steps": section.warmup_steps})


_SUMMED = frozenset({"steps", "tokens", "padded_tokens", "matmul_flops", "skipped_steps", "rate_halvings"})


def total_state(states: Sequence[TrainState]) -> TrainState:
    """Return the summed counts of all subphases, with the dev scores of the last one that has any."""
    total = {name: value for state in states for name, value in state.items() if name != "stop"}
    for name in _SUMMED & total.keys():
        total[name] = sum(state.get(name, 0) for state in states)
    total["objectives"] = {name: counts for state in states for name, counts in state["objectives"].items()}
    return total


class DropoutOverride:
    """An objective that sets the network's dropout before each forward pass.

    Either all objectives of a phase override the dropout or none does. A compiled network caches a graph per rate, so
    alternating rates do not compile again.
    """

    def __init__(self, objective: BuiltObjective, dropout: float) -> None:
        self.name, self.heads, self.passes = objective.name, objective.heads, objective.passes
        self.replayable = getattr(objective, "replayable", False)
        self.objective, self._dropout = objective, dropout

    @property
    def stream(self) -> Any:
        """The stream of the wrapped objective."""
        return self.objective.stream  # type: ignore[attr-defined]

    def batch(self, step: int) -> Batch:
        """Return the batch of a step."""
        return self.objective.batch(step)

    def loss(self, network: Network, batch: Any) -> Loss:
        """Return the loss of a batch at this dropout."""
        network.set_dropout(self._dropout)
        return self.objective.loss(network, batch)

    def flops(self, network: Network, batch: Any) -> float:
        """Return the FLOPs of training on a batch."""
        return self.objective.flops(network, batch)
