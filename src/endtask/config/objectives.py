"""Settings of the objectives of pre-training: what each learns, from which texts, and how much it counts."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from endtask.config.budget import BatchSize
from endtask.config.section import Fraction, PositiveNumber, Section
from endtask.errors import InputError, did_you_mean

CORPUS_OBJECTIVE, TASK_OBJECTIVE = "corpus", "task"
"""TLM's two objectives."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_CURVES = ("weight", "cosine", "dev", "reselect")  # what else has a name and a slash in metrics.jsonl


@dataclass(frozen=True)
class ObjectiveKind:
    """What is fixed for all objectives of a kind: its meaning, the texts it can read, whether it sees labels.

    `masks`: tokens of its texts are hidden, so that the settings of masking count.
    """

    meaning: str
    texts: tuple[str, ...]
    labels: bool = False
    masks: bool = False


KINDS: dict[str, ObjectiveKind] = {
    "mlm": ObjectiveKind("masked LM", ("task", "selection", "domain", "aligned"), masks=True),
    "task": ObjectiveKind("the task on its texts as they are", ("task",), labels=True),
    "joint": ObjectiveKind(
        "the task and `rho2` times masked LM on one masked text", ("task",), labels=True, masks=True
    ),
    "replaced": ObjectiveKind(
        "which tokens a narrow masked LM put in (ELECTRA)",
        ("task", "selection", "domain", "aligned"),
        masks=True,
    ),
    "hyperlinks": ObjectiveKind("which words start and end a link", ("aligned",)),
    "acronyms": ObjectiveKind("whether some letters are initials of words of a text", ("aligned",)),
    "next_sentence": ObjectiveKind("whether a text follows another", ("aligned",)),
    "aligned": ObjectiveKind("what the recipe of the section `aligned` says", ("aligned",)),
}
"""The kinds by name; `BUILDERS` in training/objective_builders.py makes them."""


ALIGNED_KINDS = ("hyperlinks", "acronyms", "next_sentence", "aligned")
"""Those with a head of their own, made from the texts of the section `aligned`."""


class ObjectiveSettings(Section):
    """One objective of pre-training, by a name of your own; `corpus` and `task` where none is given (TLM)."""

    kind: str = Field(
        description="what is learned: " + "; ".join(f"{name}: {kind.meaning}" for name, kind in KINDS.items())
    )
    texts: Literal["task", "selection", "domain", "aligned"] | None = Field(
        None,
        description="what is read: the task's train texts (TAPT), the selection (TLM), the `domain` (DAPT) or "
        "the sources of `aligned`; "
        "unset: what the kind reads, if that is one thing",
    )
    task: str | None = Field(
        None, description="which of the auxiliary `tasks` is learned or read; unset: the end task, `task`"
    )
    weight: float = Field(
        1.0,
        ge=0,
        description="its part in `equal`, where it starts in `meta`, its share of the steps in `alternate` and "
        "`sequence`; 0: left out",
    )
    batch_size: BatchSize | None = Field(
        None, description="unset: pretrain.batch_size, of task texts pretrain.task_batch_size"
    )
    dropout: Fraction | None = Field(None, description="while this objective reads; unset: pretrain.dropout")
    mask_probability: float | None = Field(
        None, gt=0, lt=1, description="share of tokens to be guessed; unset: pretrain.mask_probability"
    )
    learning_rate: PositiveNumber | None = Field(
        None, description="highest rate of this objective's part of a `sequence`; unset: pretrain.learning_rate"
    )
    warmup_fraction: Fraction | None = Field(
        None, description="warm-up of this objective's part of a `sequence`; unset: as train says"
    )

    @field_validator("kind")
    @classmethod
    def kind_is_known(cls, kind: str) -> str:
        if kind not in KINDS:
            raise ValueError(f"there is no objective {kind!r}; {did_you_mean(kind, KINDS)}")
        return kind

    @model_validator(mode="after")
    def kind_can(self) -> ObjectiveSettings:
        can = KINDS[self.kind].texts
        if self.texts is None and len(can) > 1:
            raise ValueError(f"texts: say what {self.kind} reads: {', '.join(can)}")
        if self.texts is not None and self.texts not in can:
            raise ValueError(f"texts: {self.kind} reads {' or '.join(can)}, not {self.texts}")
        if self.task is not None and self.reads != "task":
            raise ValueError(f"task: {self.kind} reads {self.reads} here, not the texts of a task")
        if self.mask_probability is not None and not KINDS[self.kind].masks:
            raise ValueError(f"mask_probability: {self.kind} hides no tokens")
        return self

    @property
    def reads(self) -> str:
        """The texts it reads, said or not."""
        return self.texts or KINDS[self.kind].texts[0]

    @property
    def sees_labels(self) -> bool:
        """Whether the labels of the end task's train split have a part in it."""
        return KINDS[self.kind].labels and self.task is None

    @property
    def reads_train(self) -> bool:
        """Whether the texts of the end task's train split are read, with or without their labels."""
        return self.reads == "task" and self.task is None

    @property
    def learned_task(self) -> str | None:
        """The auxiliary task whose head learns by it, if it is one."""
        return self.task if KINDS[self.kind].labels else None


Objectives = dict[str, ObjectiveSettings]


def tlm_objectives(*, with_task: bool) -> Objectives:
    """What pre-training learns where nothing else is said: masked LM on the selection, and the task.

    >>> list(tlm_objectives(with_task=True))
    ['corpus', 'task']
    """
    external = ObjectiveSettings(kind="mlm", texts="selection")
    return (
        {CORPUS_OBJECTIVE: external, TASK_OBJECTIVE: ObjectiveSettings(kind="joint")}
        if with_task
        else {CORPUS_OBJECTIVE: external}
    )


def check_several_objectives(names: Collection[str], weighting: str) -> None:
    """Refuse to learn the weights of the one objective that has text to read."""
    if weighting == "meta" and len(names) == 1:
        raise InputError(
            f"meta has nothing to weigh: without corpus text {next(iter(names))} is alone",
            key="pretrain.weighting",
            hint="name a corpus, add an objective, or use equal",
        )


def no_name(name: Any) -> str:
    """Why a name cannot be one."""
    return f"{name!r} is no name; write letters (a to z), digits, - and _, a letter first"


def check_names(names: Iterable[str], key: str) -> None:
    """Refuse names that cannot stand in file names and curves."""
    for name in names:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{key}: {no_name(name)}")
        if name in _CURVES:
            raise ValueError(f"{key}: {name!r} is the name of a curve; choose another")
