"""The parts of pre-training: one, or in a sequence one for each objective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from endtask.config import ObjectiveSettings, PhaseSettings, Settings
from endtask.training.loop import Phase
from endtask.training.phase_runner import TrainState
from endtask.weighting.equal import Equal

_ADDED_UP = frozenset({"steps", "tokens", "padded_tokens", "matmul_flops", "skipped_steps", "rate_halvings"})


@dataclass(frozen=True)
class Part:
    """A phase of pre-training; `name` is that of its only objective in a sequence, else empty."""

    name: str
    phase: Phase

    @property
    def label(self) -> str:
        """What people read."""
        return f"pretrain {self.name}".rstrip()


def parts_of(phase: Phase, settings: Settings) -> list[Part]:
    """The phase itself, or one phase per objective, each with a schedule and an optimizer of its own."""
    if settings.pretrain.weighting != "sequence" or len(phase.objectives) == 1:
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


def _settings_of(asked: ObjectiveSettings, settings: PhaseSettings) -> PhaseSettings:
    """Those of the phase, with the objective's own warm-up if it has one."""
    if asked.warmup_fraction is None:
        return settings
    return settings.model_copy(update={"warmup_fraction": asked.warmup_fraction, "warmup_steps": None})


def split_steps(steps: int, weights: Sequence[float]) -> list[int]:
    """The steps of each part in proportion to the weights, at least one.

    >>> split_steps(10, [3, 1])
    [8, 2]
    """
    ends = [round(steps * sum(weights[: place + 1]) / sum(weights)) for place in range(len(weights))]
    return [max(1, end - start) for start, end in zip([0, *ends], ends, strict=False)]


def total_state(memories: Sequence[TrainState]) -> TrainState:
    """The counts of all parts together; scores are those of the last part that was scored."""
    total = {name: value for memory in memories for name, value in memory.items() if name != "stop"}
    for name in _ADDED_UP & total.keys():
        total[name] = sum(memory.get(name, 0) for memory in memories)
    total["objectives"] = {name: counts for memory in memories for name, counts in memory["objectives"].items()}
    return total
