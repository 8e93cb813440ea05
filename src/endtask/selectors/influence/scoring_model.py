"""The scoring models: their settings, their training on masked LM and the task, and the target rows of each fold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from endtask.config import BatchSize, FinetuneSettings, ModelSettings, PretrainSettings, Settings, TokenizerSettings
from endtask.config.model import SIZES
from endtask.config.objectives import TASK_OBJECTIVE
from endtask.encoders.base import Shape, shape_of
from endtask.encoders.checkpoint import load_network, open_checkpoint
from endtask.encoders.device_context import DeviceContext
from endtask.encoders.flops import training_flops
from endtask.encoders.network import Network, build_network
from endtask.encoders.weights import load_weights, save_weights
from endtask.errors import InputError
from endtask.gradients.capture import DEPTHS, EMBEDDING, choose_weights
from endtask.io.atomic import write_json
from endtask.io.parsing import read_json
from endtask.io.selection_table import write_selection
from endtask.objectives.context import masking_of
from endtask.objectives.masking import Masking
from endtask.objectives.stream import TextStream
from endtask.objectives.task_losses import TaskObjective, task_objective
from endtask.records import Example
from endtask.selectors.influence.config import InfluenceConfig, influence_config
from endtask.selectors.influence.held_out import held_out_score
from endtask.task import Task
from endtask.task.split import carve
from endtask.tokenization.packed_texts import PackedTexts
from endtask.tokenization.packing import pack, tokenizer_for
from endtask.tokenization.tokenizer import save_tokenizer
from endtask.training.budget_plan import parameters_of
from endtask.training.checkpoint import remove_checkpoints
from endtask.training.device import choose_device_context, move
from endtask.training.initial_network import check_checkpoint, network_for
from endtask.training.phase import Phase
from endtask.training.phase_runner import run_phase
from endtask.training.pretrain_phase import pretrain_phase

TOKENIZER, FIRST_ROUND_WEIGHTS = "tokenizer", "first-round.safetensors"
_PACKED, _LEARNED, _IS_PACKED, _FITTED = "pack", "learned.json", "packed.json", "fitted.json"
_TIMES_SMALLER = 10
"""Selection by gradients pays off with a scoring model about ten times smaller than the model (published budgets)."""
_RATE_FROM_RANDOM, _RATE_AFTER_FIRST_ROUND, _RATE_OF_BERT_BASE = 1e-3, 5e-4, 5e-5
_WIDTH_OF_BERT_BASE = 768
_MLM_WEIGHT, _DROPOUT, _MOST_TOKENS = 3.0, 0.1, 128
"""The weight of masked LM relative to the task loss, the dropout in fitting, and the most tokens of a text (ISS)."""
_TOKENIZER_TEXTS = 50_000


def scoring_settings(settings: Settings) -> Settings:
    """Return the settings of the phase that fits a scoring model on the task's text.

    >>> settings = scoring_settings(Settings(model=ModelSettings(size="base")))
    >>> settings.model.size, settings.pretrain.objectives["task"].rho2, settings.pretrain.learning_rate
    ('mini', 3.0, 0.001)
    """
    config, max_length = influence_config(settings), min(_MOST_TOKENS, settings.pretrain.max_length)
    changed = {
        "seed": config.seed(settings),
        "model": _model_settings(settings, config, max_length),
        "tokenizer": _tokenizer_settings(settings, config),
        "pretrain": _pretrain_settings(settings, config, max_length),
        "finetune": FinetuneSettings(max_length=max_length),
        "skip_pretraining": False,
        "compile": "graphs",  # compilation would take longer than a few minutes of a small network
        "report_to": (),
    }
    return settings.model_copy(update=changed)


def size_for(model: ModelSettings) -> str:
    """Return the largest named size with at most a tenth of the encoder's weights, else the smallest.

    >>> [size_for(ModelSettings(size=size)) for size in ("large", "base", "compact", "tiny")]
    ['medium', 'mini', 'tiny', 'tiny']
    """
    limit = _weights(shape_of(model)) / _TIMES_SMALLER
    weights = {name: _weights(shape_of(ModelSettings(size=name))) for name in SIZES}
    small_enough = [name for name in SIZES if weights[name] <= limit]
    return max(small_enough, key=weights.__getitem__, default="tiny")


def _weights(shape: Shape) -> int:
    """Return the approximate number of weights of the layers."""
    return 12 * shape.hidden_size**2 * shape.num_hidden_layers


def _model_settings(settings: Settings, config: InfluenceConfig, max_length: int) -> ModelSettings:
    """Return the scoring model: a checkpoint, or random weights of a smaller size.

    Its head reads the mean where the encoder has it: from random weights neither a first token nor entity markers learn
    enough from the task alone, and a model that reads a first token is a constant predictor.
    """
    if config.model is not None:
        return ModelSettings(path=config.model, dropout=_DROPOUT, attention=settings.model.attention)
    if settings.model.path is not None:
        return settings.model.model_copy(update={"dropout": _DROPOUT})
    return ModelSettings(
        architecture=settings.model.architecture,
        size=size_for(settings.model) if config.size == "auto" else config.size,
        pooling=settings.model.part.poolings[0],
        dropout=_DROPOUT,
        attention=settings.model.attention,
        max_position_embeddings=max(max_length, settings.model.max_position_embeddings),
    )


def _tokenizer_settings(settings: Settings, config: InfluenceConfig) -> TokenizerSettings:
    """Return the tokenizer of the run, or with a scoring model of its own that model's."""
    return settings.tokenizer if config.model is None else settings.tokenizer.model_copy(update={"path": None})


def _rate(settings: Settings, config: InfluenceConfig) -> float:
    if config.learning_rate != "auto":
        return config.learning_rate
    if (checkpoint := config.starts_from(settings)) is not None:
        return rate_from_checkpoint(open_checkpoint(checkpoint).config.hidden_size)
    return _RATE_AFTER_FIRST_ROUND if config.first_round_steps else _RATE_FROM_RANDOM


def rate_from_checkpoint(width: int) -> float:
    """Return the learning rate for a checkpoint: small encoders want several times that of BERT-base.

    >>> [round(rate_from_checkpoint(width), 6) for width in (1024, 768, 384, 256, 64)]
    [5e-05, 5e-05, 0.0002, 0.00045, 0.001]
    """
    return min(_RATE_OF_BERT_BASE * max(1.0, _WIDTH_OF_BERT_BASE / width) ** 2, _RATE_FROM_RANDOM)


def _pretrain_settings(settings: Settings, config: InfluenceConfig, max_length: int) -> PretrainSettings:
    return PretrainSettings(
        seed=config.seed(settings),
        learning_rate=_rate(settings, config),
        weight_decay=0.0,
        batch_size=BatchSize.parse(str(config.recipe_values.batch_size)),
        max_length=max_length,
        mask_probability=config.recipe_values.mask_probability,
        weighting={"name": "interleave", "rho1": 0},
        objectives={TASK_OBJECTIVE: {"rho2": _MLM_WEIGHT}},
        dropout=_DROPOUT,
    )


def check_influence(task: Task, settings: Settings) -> None:
    """Raise `InputError` for train rows that cannot be halved, an unfit checkpoint, and layers that a model lacks."""
    config = influence_config(settings)
    folds_of(task, config, config.seed(settings))
    if config.model is not None:
        check_scoring_checkpoint(task, settings)
    if not set(config.layers) <= {*DEPTHS, EMBEDDING}:  # every network has these
        check_layers_known(_without_vocabulary(task, scoring_settings(settings).model), config.layers)


def check_scoring_checkpoint(task: Task, settings: Settings) -> None:
    """Raise `InputError`, naming the setting, if the scoring models cannot start from their checkpoint."""
    try:
        check_checkpoint(task, scoring_settings(settings))
    except InputError as error:
        raise InputError(str(error).replace("'model.path'", "'select.model'")) from None


def _without_vocabulary(task: Task, model: ModelSettings) -> Network:
    """Return a scoring model with a tiny vocabulary, whose layers have the same names."""
    if model.path is not None:
        checkpoint = open_checkpoint(model.path)
        return load_network(checkpoint, model, pad_id=0, labels=task.labels, seed=0, task_type=task.type)
    special_ids = {"pad": 0, "cls": 1, "sep": 2}
    return build_network(model, vocabulary=8, special_ids=special_ids, labels=task.labels, seed=0, task_type=task.type)


def check_layers_known(network: Network, layers: tuple[str, ...]) -> None:
    """Raise `InputError`, naming the setting, for layers that the network does not have."""
    try:
        choose_weights(network, layers)
    except InputError as error:
        raise InputError(str(error).replace("'layers'", "'select.layers'")) from None


@dataclass(frozen=True)
class Fold:
    """A fold in its folder: the scoring model is fitted on the task's train rows, and its dev rows are the targets."""

    task: Task
    settings: Settings
    folder: Path

    @property
    def packed(self) -> Path:
        """The folder of the fold's tokens."""
        return self.folder / _PACKED

    @property
    def targets(self) -> PackedTexts:
        """The tokens of the target rows."""
        return PackedTexts(self.packed / "dev")

    @property
    def masking(self) -> Masking:
        """The masking of tokens in fitting and in targets."""
        return masking_of(self.packed, self.settings)

    @property
    def context(self) -> DeviceContext:
        """The device of the model."""
        return choose_device_context(self.settings)

    @property
    def first_round(self) -> Path:
        """The file of the weights after the first round, which all folds start from."""
        return self.folder.parent / FIRST_ROUND_WEIGHTS

    @property
    def weights(self) -> Path:
        """The file of the fitted weights."""
        return self.folder / "weights.safetensors"

    def network(self) -> Network:
        """Return a network with initial weights: those of the first round if there is one."""
        network = move(network_for(self.task, self.packed, self.settings), self.settings, self.context)
        if self.first_round.exists():
            load_weights(self.first_round, network)
        return network

    def fitted_network(self) -> Network:
        """Return the fitted scoring model."""
        network = self.network()
        load_weights(self.weights, network)
        return network

    def answers(self, network: Network) -> TaskObjective:
        """Return the task objective over the targets."""
        stream = TextStream("targets", self.targets, network, batch_size=BatchSize.parse("32"), seed=0)
        return task_objective(self.task, "targets", stream, split="dev")

    def phase(self) -> Phase:
        """Return the training phase of the scoring model."""
        phase = pretrain_phase(self.task, self.packed, self.settings)
        if self.first_round.exists():
            load_weights(self.first_round, phase.network)
        batches = phase.objectives[TASK_OBJECTIVE].stream.plan.batches_per_epoch  # type: ignore[attr-defined]
        return replace(phase, steps=influence_config(self.settings).epochs * batches)


def prepare_folds(task: Task, parts: list[Task], retrieved: Path, settings: Settings, folder: Path) -> list[Fold]:
    """Train or load the tokenizer and tokenize each fold's rows; a resumed run reuses finished files."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / _LEARNED).exists():
        tokenizer = tokenizer_for(task, retrieved, settings, max_texts=_TOKENIZER_TEXTS)
        save_tokenizer(tokenizer, folder / TOKENIZER)
        write_json(folder / _LEARNED, {"vocabulary": len(tokenizer)})
    tokenizer_settings = settings.tokenizer.model_copy(update={"path": str(folder / TOKENIZER)})
    with_tokenizer = settings.model_copy(update={"tokenizer": tokenizer_settings})
    folds = [Fold(part, with_tokenizer, folder / f"fold-{number}") for number, part in enumerate(parts)]
    for fold in folds:
        if not (fold.folder / _IS_PACKED).exists():
            fold.folder.mkdir(exist_ok=True)
            write_selection(fold.folder / "none.parquet", [])
            counts = pack(fold.task, fold.folder / "none.parquet", with_tokenizer, fold.packed)
            write_json(fold.folder / _IS_PACKED, counts)
    return folds


def fit(fold: Fold, *, label: str, on_checkpoint: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """Train a fold's scoring model, save its weights and return counts for the manifest."""
    if (fold.folder / _FITTED).exists():
        done: dict[str, Any] = read_json(fold.folder / _FITTED)
        return done
    phase = fold.phase()
    state = run_phase(phase, fold.folder, label=label, on_checkpoint=on_checkpoint)
    save_weights(fold.weights, phase.network)
    score = held_out_score(fold.task, phase.network, fold.targets, fold.settings.evaluate, fold.context)
    flops = training_flops(parameters_of(phase), state["tokens"])
    counts = {**state, "flops": flops, "held_out": asdict(score)}
    write_json(fold.folder / _FITTED, counts)
    remove_checkpoints(fold.folder)
    return counts


Rows = tuple[Example, ...]
EVERY_SCORE = "every score"


def folds_of(task: Task, settings: InfluenceConfig, seed: int) -> list[Task]:
    """Return the task of each fold: a scoring model is fitted on its train rows, and its dev rows are the targets.

    Train is split by group, so that variants of a sentence are in the same fold.
    """
    if settings.targets == "dev":
        parts = [(task.train, task.dev)]
    else:
        first, second = carve(task.train, 0.5, seed, salt="influence")
        if not second:
            raise InputError(
                f"the {len(task.train)} train rows cannot be split into two folds",
                key="select.targets",
                hint="use targets: dev",
            )
        parts = [(tuple(first), tuple(second)), (tuple(second), tuple(first))]
    most = settings.recipe_values.most_targets
    each = None if most is None else max(1, most // len(parts))
    return [replace(task, splits={"train": fit, "dev": draw_targets(rows, each, seed)}) for fit, rows in parts]


def draw_targets(rows: Rows, most: int | None, seed: int) -> Rows:
    """Return all rows, or a sample by hashed ids in proportion to the classes, at least one row of each class.

    The order of the rows stays. Rows without a single class are sampled together.
    """
    if most is None or len(rows) <= most:
        return rows
    from endtask.selectors.hashing import draws  # imports Numba, which a machine that only fits and scores may lack

    numbers = draws([row.id for row in rows], seed, "influence targets")
    names = [row.label if isinstance(row.label, str) else "" for row in rows]
    _, classes, counts = np.unique(names, return_inverse=True, return_counts=True)
    drawn = np.argsort(numbers, kind="stable")
    by_class = drawn[np.argsort(classes[drawn], kind="stable")]
    within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    # The first row of every class, then by the share of the class drawn: the second of ten before the third of fifteen.
    priority = np.where(within == 0, -1.0, within / np.repeat(counts, counts))
    chosen = by_class[np.lexsort((numbers[by_class], priority))[: max(most, len(counts))]]
    return tuple(rows[index] for index in np.sort(chosen).tolist())


@dataclass(frozen=True)
class Column:
    """The target rows whose mean gradient is a column of the scores."""

    examples: tuple[Example, ...]

    @property
    def name(self) -> str:
        """The id and class of the row, or of the first of several rows."""
        first = self.examples[0]
        more = f" and {len(self.examples) - 1} more" if len(self.examples) > 1 else ""
        return f"{first.id}{more} ({_answer(first)})"


def _answer(example: Example) -> str:
    if isinstance(example.label, float):
        return f"score {example.label:g}"
    noun = "class" if isinstance(example.label, str) else "labels" if example.tokens is None else "tags"
    return f"{noun} {', '.join(classes_of(example)) or 'none'}"


def columns_of(parts: list[Task], target_batch: int) -> list[Column]:
    """Return the columns in the scorer's order: fold after fold, in the order of the rows."""
    return [
        Column(part.dev[first : first + target_batch])
        for part in parts
        for first in range(0, len(part.dev), target_batch)
    ]


def class_names(task: Task) -> tuple[str, ...]:
    """Return the classes, labels or tags over which target scores are averaged; regression has a single mean."""
    return task.labels or (EVERY_SCORE,)


def classes_of(example: Example) -> tuple[str, ...]:
    """Return the classes of a row: its class, its labels, or the tags of its words.

    >>> classes_of(Example("1", "a b c", ("O", "B", "O"), tokens=("a", "b", "c")))
    ('B', 'O')
    """
    if isinstance(example.label, str):
        return (example.label,)
    return tuple(sorted(set(example.label))) if isinstance(example.label, tuple) else (EVERY_SCORE,)


def memberships(examples: Sequence[Example], names: Sequence[str]) -> NDArray[np.int64]:
    """Return 1 where a row belongs to a class, else 0: (rows, classes); unknown names are ignored."""
    return np.asarray([[name in classes for name in names] for classes in map(classes_of, examples)], dtype=np.int64)


def labels_with_targets(columns: list[Column], labels: tuple[str, ...]) -> tuple[str, ...]:
    """Return the classes that have targets; nothing can be selected for the others."""
    present = {name for column in columns for example in column.examples for name in classes_of(example)}
    return tuple(label for label in labels if label in present)


def class_shares(columns: list[Column], labels: tuple[str, ...]) -> NDArray[np.float32]:
    """Return the share of each column in the mean over a class's targets: (columns, classes)."""
    counts = np.stack([memberships(column.examples, labels).sum(axis=0) for column in columns])
    shares: NDArray[np.float32] = (counts / np.maximum(counts.sum(axis=0), 1)).astype(np.float32)
    return shares
