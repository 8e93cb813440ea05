"""What is trained and asked: bodies by size and objectives, and the tables of the paper as arms on top of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from endtask.experiments.few_shot.few_shot_spec import FewShotSpec, Head, Tasks, TrainedPart

Tree = dict[str, Any]

TASKS = {"ct": "concept tagging", "ad": "acronym detection"}
OWN = {"ct": "hyperlinks", "ad": "acronyms"}
"""The objective that is shaped like each task."""
OBJECTIVES: Tree = {
    "mlm": {"kind": "mlm", "texts": "aligned"},
    "nsp": {"kind": "next_sentence"},
    "hyperlinks": {"kind": "hyperlinks"},
    "acronyms": {"kind": "acronyms"},
}
SPELLED = "spelled"
"""The source whose words are cut at random, so that a model sees how they are spelled."""
STEPS = 1500
"""Less than a minute of an H200 for the largest encoder."""
LARGEST, MIDDLE = "768x3", "512x3"
SIZES = tuple(f"{width}x{layers}" for width in (256, 512, 768) for layers in (1, 2, 3))


@dataclass(frozen=True)
class Body:
    """A pre-trained network: its size, the objectives it does without, and whether acronyms are asked of tokens too."""

    size: str
    without: tuple[str, ...] = ()
    guided: bool = True

    @property
    def name(self) -> str:
        """Its name in rows and folders.

        >>> Body("768x3", ("acronyms",)).name, Body("768x3", guided=False).name
        ('768x3-no-acronyms', '768x3-no-guidance')
        """
        return "-no-".join((self.size, *self.without, *(() if self.guided else ("guidance",))))

    @property
    def values(self) -> Tree:
        """In what it differs from the settings that all share."""
        left_out = {f"pretrain.objectives.{name}.weight": 0 for name in self.without}
        return {
            "model.size": self.size,
            **left_out,
            **({} if self.guided else {"pretrain.objectives.acronyms.guided": False}),
        }


ALIGNED = Body(LARGEST)
PLAIN = Body(LARGEST, tuple(OWN.values()))
UNGUIDED = Body(LARGEST, guided=False)
"""Its acronyms are the paper's: whole texts, one answer each."""
WITHOUT = {task: Body(LARGEST, (objective,)) for task, objective in OWN.items()}
"""The paper's `768-x3`: what a task's aligned body is measured against."""
_SMALLER = tuple(Body(size) for size in sorted(SIZES, key=lambda size: (size[-1], size), reverse=True)[1:])
BODIES: dict[str, Body] = {
    encoder.name: encoder for encoder in (ALIGNED, *WITHOUT.values(), *_SMALLER, PLAIN, UNGUIDED)
}
"""In the order in which they are trained: what the headlines need comes first."""


@dataclass(frozen=True)
class Arm:
    """A line of a table: a body, what is trained of it, the head it starts with and, where not the usual, the rate.

    With all tasks, the other of the two learns from as many labels beside it.
    """

    title: str
    encoder: Body
    head: Head = "new"
    train: TrainedPart = "head"
    rate: float | None = None
    tasks: Tasks = "main"

    @property
    def learning_rate(self) -> float:
        """The rate it learns by."""
        return self.rate or FewShotSpec().learning_rates_of(self.train)[0]


@dataclass(frozen=True)
class Table:
    """A table of the paper for one task; all lines are tested against the first."""

    title: str
    arms: tuple[Arm, ...]
    labels: tuple[int, ...] = (200,)


def tables(task: str) -> dict[str, Table]:
    """The tables of a task by their number in the paper."""
    own = OWN[task]
    without = Arm(f"{LARGEST}, without {own}, new head", WITHOUT[task])
    kept, new = Arm(f"{LARGEST}, kept head", ALIGNED, "keep"), Arm(f"{LARGEST}, new head", ALIGNED)
    sizes = [Arm(f"{size}, kept head", Body(size), "keep") for size in SIZES]
    discarded = [Arm(f"{width}x3, new head", Body(f"{width}x3")) for width in (256, 512, 768)]
    parts: tuple[tuple[TrainedPart, Tasks, str], ...] = (
        ("head", "main", "the head"),
        ("transformer", "all", "the head and all layers, both tasks together"),
        ("transformer", "main", "the head and all layers"),
        ("all", "main", "the embeddings too"),
    )
    left_out = [Arm(f"without {objective}", WITHOUT[other]) for other, objective in OWN.items()]
    return {
        "2": Table(
            "Table 2: numbers of labels",
            (without, Arm(f"{MIDDLE}, new head", Body(MIDDLE)), new, kept),
            (50, 100, 150, 200, *([1000] if task == "ad" else [])),
        ),
        "1": Table("Table 1: sizes", (without, *sizes, *discarded)),
        "5": Table(
            "Table 5: objectives left out",
            (
                Arm("all four objectives", ALIGNED),
                *left_out,
                Arm("masked LM and next sentences", PLAIN),
                Arm("all four, acronyms as in the paper", UNGUIDED),
            ),
        ),
        "4": Table(
            "Table 4: learning rates",
            tuple(Arm(f"{rate:g}", ALIGNED, "keep", rate=rate) for rate in (1e-3, 1e-4, 1e-5)),
        ),
        "3": Table(
            "Table 3: what is trained",
            tuple(Arm(words, ALIGNED, "keep", trained, tasks=tasks) for trained, tasks, words in parts),
        ),
    }


@dataclass(frozen=True)
class Job:
    """Runs on one body that share all but the number of labels, the draw and the seed."""

    encoder: str
    task: str
    train: TrainedPart
    head: Head
    rate: float
    labels: tuple[int, ...]
    tasks: Tasks = "main"


def jobs(encoder: str) -> list[Job]:
    """What all tables ask of a body, every run once."""
    asked: dict[tuple[str, Arm], set[int]] = {}
    for task in TASKS:
        for table in tables(task).values():
            for arm in (arm for arm in table.arms if arm.encoder.name == encoder):
                alike = replace(arm, title="", rate=arm.learning_rate)
                asked.setdefault((task, alike), set()).update(table.labels)
    return [
        Job(encoder, task, arm.train, arm.head, arm.learning_rate, tuple(sorted(labels)), arm.tasks)
        for (task, arm), labels in asked.items()
    ]


@dataclass(frozen=True)
class Effort:
    """How often and how long few labels are learned from; less is for tries."""

    seeds: tuple[int, ...] = (0, 1)
    epochs: int = 1000


USUAL = Effort()


def plan_of(
    task: str,
    train: TrainedPart,
    head: Head,
    rate: float,
    labels: Sequence[int],
    effort: Effort = USUAL,
    tasks: Tasks = "main",
) -> FewShotSpec:
    """Ten runs a cell: AD by five folds, CT by five draws scored on test, two seeds each, as in the paper.

    Heads learn for as long as it helps, since a tenth of the rate takes ten times the epochs.
    """
    return FewShotSpec(
        labels=tuple(labels),
        samples=5,
        folds=5 if task == "ad" else None,
        seeds=effort.seeds,
        train=(train,),
        head=(head,),
        tasks=(tasks,),
        learning_rates=(rate,),
        epochs=min(effort.epochs, 1000 if train == "head" else 50),
        patience=30 if train == "head" else 10,
        held_out=0.2,  # with 1000 labels of AD there is no room for more
    )


def base_settings(task: str, sources: Sequence[Tree], tokenizer: str | None) -> Tree:
    """What all bodies share; the objectives read the same text, and the task has no part in pre-training."""
    return {
        "budget": f"{STEPS}steps",
        "task": {"path": task},
        "aligned": {
            "sources": list(sources),
            "subword_sampling": [one["name"] for one in sources if one["name"] == SPELLED],
        },
        "tokenizer": {"path": tokenizer, "kind": "unigram", "vocab_size": 16_000, "spell_capitals": True},
        "model": {"architecture": "lean", "size": LARGEST},
        "pretrain": {
            "weighting": "equal",
            "objectives": OBJECTIVES,
            "batch_size": "16384tok",
            "learning_rate": 1e-3,
            "mask_rare_exponent": 0.5,
            "checkpoint_steps": 1_000_000,
        },
        "evaluate": {"metric": "accuracy"},
    }
