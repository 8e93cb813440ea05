"""The phase of pre-training, and its parts where objectives follow each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from endtask.config import ObjectiveSettings, PhaseSettings, Settings
from endtask.encoders.device_context import DeviceContext
from endtask.encoders.network import Network
from endtask.errors import InputError
from endtask.objectives.base import Batch, BuiltObjective, Loss
from endtask.objectives.context import BuildContext, masking_of
from endtask.processes import current_processes
from endtask.seeds import derive
from endtask.task import Task
from endtask.training.device import choose_device_context, move
from endtask.training.distributed import is_sharded
from endtask.training.initial_network import network_for
from endtask.training.phase import Phase
from endtask.weighting.base import Rule, WeightingContext, left_out_of_batches
from endtask.weighting.equal import Equal
from endtask.weighting.sequence import split_steps


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
