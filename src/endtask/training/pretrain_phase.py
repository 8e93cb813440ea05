"""The phase of pre-training: its network, its objectives and its weighting, and the phases of a sequence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from endtask.config import ObjectiveSettings, PhaseSettings, Settings
from endtask.encoders.device_context import DeviceContext
from endtask.encoders.network import Network
from endtask.errors import InputError
from endtask.objectives.base import BuiltObjective
from endtask.objectives.context import BuildContext, masking_of
from endtask.objectives.own_dropout import OwnDropout
from endtask.seeds import derive
from endtask.task import Task
from endtask.training.device import choose_device_context, move
from endtask.training.initial_network import network_for
from endtask.training.phase import Phase
from endtask.training.phase_runner import TrainState
from endtask.weighting.base import Rule, WeightingContext, left_out_of_batches
from endtask.weighting.equal import Equal
from endtask.weighting.sequence import split_steps

_SUMMED = frozenset({"steps", "tokens", "padded_tokens", "matmul_flops", "skipped_steps", "rate_halvings"})


def pretrain_phase(task: Task, packed: Path, settings: Settings, *, least_vocabulary: int = 0) -> Phase:
    """Return the phase with its objectives and a mean rule; the plan sets the steps, and the rule over them."""
    context = choose_device_context(settings)
    network = move(network_for(task, packed, settings, least_vocabulary=least_vocabulary), settings, context)
    network.set_dropout(settings.pretrain.dropout)
    objectives = pretrain_objectives(task, packed, network, settings)
    run = WeightingContext(tuple(objectives), task, packed, network, settings, context)
    return phase_of(network, objectives, settings.pretrain.weighting.part.mean(run, None), settings, context)


def phase_of(
    network: Network, objectives: Mapping[str, BuiltObjective], rule: Rule, settings: Settings, context: DeviceContext
) -> Phase:
    """Return a phase of pre-training over any objectives."""
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
        update_unused_heads=train.update_unused_heads,
        head_weight_decay=train.head_weight_decay,
        clip_heads_apart=train.clip_heads_apart,
    )


def weighting_context(phase: Phase, task: Task, packed: Path, settings: Settings) -> WeightingContext:
    """Return what the weighting of a phase builds its rule from."""
    return WeightingContext(tuple(phase.objectives), task, packed, phase.network, settings, phase.context)


def pretrain_objectives(
    task: Task, packed: Path, network: Network, settings: Settings, *, steps: int | None = None
) -> dict[str, BuiltObjective]:
    """Return the objectives of pre-training by name; of TLM's two only those that have text to read.

    `steps` are those of the phase, where they are known.
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
    usual = settings.pretrain.dropout
    return {
        name: OwnDropout(objective, usual if (own := sections[name].dropout) is None else own)
        for name, objective in built.items()
    }


def _has_text(name: str, section: ObjectiveSettings, run: BuildContext) -> bool:
    """Whether an objective has something to read; an objective that the user has named must have."""
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
class Part:
    """A phase of pre-training; in a sequence `name` is that of its only objective, else it is empty."""

    name: str
    phase: Phase

    @property
    def label(self) -> str:
        """The label of the progress bar."""
        return f"pretrain {self.name}".rstrip()


def parts_of(phase: Phase, settings: Settings) -> list[Part]:
    """Return the phase itself, or of a sequence one phase per objective, each with its own schedule and optimizer."""
    if not settings.pretrain.weighting.part.sequential or len(phase.objectives) == 1:
        return [Part("", phase)]
    used = settings.used_objectives
    steps = split_steps(phase.steps, [used[name].weight for name in phase.objectives])
    return [
        Part(
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
    """Return the settings of the phase, with the objective's own warm-up if it has one."""
    if section.warmup_fraction is None:
        return settings
    return settings.model_copy(update={"warmup_fraction": section.warmup_fraction, "warmup_steps": None})


def total_state(states: Sequence[TrainState]) -> TrainState:
    """Return the counts of all parts together; scores are those of the last part that was scored."""
    total = {name: value for state in states for name, value in state.items() if name != "stop"}
    for name in _SUMMED & total.keys():
        total[name] = sum(state.get(name, 0) for state in states)
    total["objectives"] = {name: counts for state in states for name, counts in state["objectives"].items()}
    return total
