"""Score units of candidates against targets by their gradients, and store the scores shard by shard."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from endtask.encoders.batch import TextBatch, lay_out
from endtask.encoders.network import MASKED_LM, Network
from endtask.errors import TrainingError
from endtask.gradients.engine import GradientEngine, Readings, TextLosses, masked_lm_losses, task_losses
from endtask.gradients.rows import Gradients, Units
from endtask.gradients.scoring import Calibration, batches_by_length, prefetch
from endtask.gradients.targets import Options, Targets, Workload, make_plan
from endtask.io.atomic import atomic_file, write_json
from endtask.io.selection_table import SelectionStatistics, read_batches
from endtask.objectives.masking import Masking, mask_texts
from endtask.objectives.task_losses import TaskObjective
from endtask.progress import bar
from endtask.records import Example
from endtask.seeds import derive, generator
from endtask.selectors.base import Order
from endtask.selectors.influence.config import InfluenceConfig, influence_config
from endtask.selectors.influence.helpful import LISTED
from endtask.selectors.influence.limits import check_size
from endtask.selectors.influence.scoring_model import Fold
from endtask.tokenization.packed_texts import PackedTexts, runs, write_packed

_SAMPLE = 64
"""Candidates and targets whose rows are counted to decide how targets are stored."""
_USUALLY_MASKED = 0.25


def tokens_at_once(device: torch.device, masked: float) -> int:
    """Return the tokens of a forward pass: enough to fill the device, fewer if many are masked and need logits."""
    return int((1 << 16) * min(1.0, _USUALLY_MASKED / masked)) if device.type == "cuda" else 1 << 12


@dataclass(frozen=True)
class Prepared:
    """The same texts under each of their masks; `units` maps texts to units unless each text is a unit."""

    readings: Readings
    units: UnitTexts | None = None

    def pin(self) -> Prepared:
        """Return a copy in pinned memory, which a GPU can copy from asynchronously."""
        return replace(self, readings=self.readings.pin())

    def gradients(self, engine: GradientEngine, losses: TextLosses) -> Gradients:
        """Return mean gradients over the masks, and over the texts of each unit by their shares."""
        gradients = self.readings.gradients(engine, losses)
        if self.units is None:
            return gradients
        device = next(iter(gradients.blocks.values()))[0].owners.device
        owners, shares = (torch.from_numpy(values).to(device) for values in (self.units.owners, self.units.shares))
        return gradients.merged(owners, shares, int(self.units.owners[-1]) + 1)


class Reader:
    """Lays out texts for the scoring models of all folds, which share tokenizer and masks (by `seed`)."""

    def __init__(self, fold: Fold, network: Network) -> None:
        self._config, self._network = influence_config(fold.settings), network
        self._masking, self.seed = fold.masking, fold.settings.seed
        share = self._config.score_mask_probability
        self._scored = replace(self._masking, probability=share)
        self.most_tokens = tokens_at_once(fold.context.device, share)

    def candidates(self, units: CandidateUnits, which: NDArray[np.int64]) -> Prepared:
        """Return the texts of some units of candidates."""
        texts = units.texts_of(which)
        batch = self._lay_out(units.texts, texts.numbers)
        is_single = len(texts.numbers) == len(which)
        return Prepared(self._masked(batch, texts.numbers, self._scored), None if is_single else texts)

    def targets(self, objective: TaskObjective) -> Iterator[tuple[NDArray[np.int64], Prepared]]:
        """Yield batches of targets with their indices, the longest first: the memory plan depends on them."""
        texts = objective.stream.texts
        for numbers in reversed(list(batches_by_length(texts.lengths, self.most_tokens))):
            batch = objective.answered(self._lay_out(texts, numbers), numbers)
            if not self._config.recipe_values.masks_targets:
                yield numbers, Prepared(Readings((batch,)))
            else:  # targets and candidates have different keys, and so different masks
                yield numbers, Prepared(self._masked(batch, -1 - numbers, self._masking))

    def _lay_out(self, texts: PackedTexts, numbers: NDArray[np.int64]) -> TextBatch:
        return lay_out(texts, numbers, self._network.layout(int(texts.lengths[numbers].max())))

    def _masked(self, batch: TextBatch, numbers: NDArray[np.int64], masking: Masking) -> Readings:
        seed = derive(self.seed, "mask", 0)
        return Readings(
            tuple(mask_texts(batch, numbers, masking, seed, mask_index) for mask_index in range(self._config.masks))
        )


@dataclass(frozen=True)
class ScoringModel:
    """A fitted network with the gradients of its targets."""

    engine: GradientEngine
    targets: Targets


class Scorer:
    """Scores units of candidates against the targets of all folds, in order: one column each."""

    def __init__(self, folds: list[Fold], units: CandidateUnits, *, memory: int, compiled: bool = False) -> None:
        self._config, self._compiled = influence_config(folds[0].settings), compiled
        self._memory = memory // len(folds)
        self.folds, self.context = folds, folds[0].context
        networks = [fold.fitted_network() for fold in folds]
        self.reader = Reader(folds[0], networks[0])
        self._models = [self._model(fold, network, units) for fold, network in zip(folds, networks, strict=True)]
        self.columns = sum(model.targets.units.count for model in self._models)

    def read(self, prepared: Prepared) -> Tensor:
        """Return the scores of some units against all columns: (units, columns)."""
        by_fold = []
        for model in self._models:
            gradients = prepared.gradients(model.engine, masked_lm_losses)
            by_fold.append(model.targets.scores(gradients, self._config.measure))
        return torch.cat(by_fold, dim=1)

    @property
    def flops_per_token(self) -> float:
        """The estimated FLOPs of a candidate's token: a forward pass and a backward pass to the lowest compared layer.

        As in training, the passes count 2 x parameters forward and 4 x parameters backward.
        """
        network, targets = self._models[0].engine.network, self._models[0].targets
        parts = (network.encoder, network.heads[MASKED_LM])
        parameters = sum(weight.numel() for part in parts for weight in part.parameters())
        each_layer = 12 * network.config.hidden_size**2
        below = each_layer * (network.config.num_hidden_layers - 1) if self._config.layers == ("last",) else 0
        passes = len(self._models) * self._config.masks
        products = 2.0 * targets.plan.multiply_adds / self.folds[0].settings.pretrain.max_length
        return float(passes * (2.0 * parameters + 4.0 * (parameters - below) + products))

    def record(self) -> dict[str, Any]:
        """Return how the targets are stored and their memory, for the manifest."""
        targets = self._models[0].targets
        return {"columns": self.columns, "bytes_per_target": targets.bytes_per_target, "plan": targets.plan.record()}

    def _model(self, fold: Fold, network: Network, units: CandidateUnits) -> ScoringModel:
        engine = GradientEngine(network, self._config.layers, fold.context, compiled=self._compiled)
        texts = fold.targets
        batches = self.reader.targets(fold.answers(network))
        by_batch = ((numbers, prepared.gradients(engine, task_losses)) for numbers, prepared in batches)
        first = next(by_batch)
        sample = self.reader.candidates(units, np.arange(min(_SAMPLE, units.count)))
        groups = Units.consecutive(len(texts), self._config.target_batch)
        workload = Workload(units.count, len(texts), groups.count)
        plan = make_plan(sample.gradients(engine, masked_lm_losses), first[1], workload, Options(memory=self._memory))
        check_size(plan, len(texts), self._memory)
        targets = Targets(plan, groups)
        for numbers, gradients in chain((first,), by_batch):
            targets.add(gradients, numbers)
        return ScoringModel(engine, targets)


_FEWEST_UNITS, _MOST_SHARDS = 1024, 128
_TOP_TARGETS = 10
"""The score of a candidate is the mean of so many best scores, since a text need not help every target."""

Arrays = dict[str, NDArray[np.generic]]


@dataclass(frozen=True)
class ShardStatistics:
    """Computes statistics of the scores of a shard."""

    settings: InfluenceConfig
    calibration: Calibration
    shares: NDArray[np.float32]  # the share of each column in the mean of each class: (columns, classes)

    def compute(self, scores: Tensor, first: int) -> Arrays:
        """Return statistics of the scores (units, columns) of a shard whose units are numbered from `first`."""
        scores = self.calibration.apply(scores)
        best = scores.topk(min(_TOP_TARGETS, scores.shape[1]), dim=1)
        listed = min(LISTED, len(scores))
        most, least = scores.topk(listed, dim=0), (-scores).topk(listed, dim=0)
        shares = torch.from_numpy(self.shares).to(scores.device)
        statistics = {
            "score": best.values.mean(1),
            "column": best.indices[:, 0],
            "by_class": scores @ shares,
            "most_units": most.indices + first,
            "most_scores": most.values,
            "least_units": least.indices + first,
            "least_scores": -least.values,
        }
        if self.settings.choice == "top_k":
            statistics["scores"] = scores
        return {name: value.cpu().numpy() for name, value in statistics.items()}


class Shards:
    """Divides the units into shards of equal size, with a file for each finished shard: a killed run loses one."""

    def __init__(self, units: CandidateUnits, folder: Path, size: int | None = None) -> None:
        self.units, self._folder = units, folder
        self.size = max(_FEWEST_UNITS, -(-units.count // _MOST_SHARDS)) if size is None else size
        self.count = -(-units.count // self.size)
        folder.mkdir(parents=True, exist_ok=True)

    def score(self, scorer: Scorer, statistics: ShardStatistics, on_shard: Callable[[], None] = lambda: None) -> None:
        """Score the shards that have no file."""
        missing = self.missing()
        done = self.units.count - sum(map(self.units_in, missing))
        with bar("influence", self.units.count, done=done) as advance:
            for number in missing:
                self.score_shard(number, scorer, statistics, advance)
                on_shard()

    def missing(self) -> list[int]:
        """Return the numbers of the shards that have no file."""
        return [number for number in range(self.count) if not self._path(number).exists()]

    def units_in(self, number: int) -> int:
        """Return how many units a shard has."""
        return len(self._units(number))

    def score_shard(
        self, number: int, scorer: Scorer, statistics: ShardStatistics, advance: Callable[[int], None]
    ) -> None:
        """Score a shard, and write its file."""
        scores = score_units(scorer, self.units, self._units(number), advance)
        if not bool(torch.isfinite(scores).all()):
            raise TrainingError("influence: scores are not finite", hint="lower select.learning_rate")
        arrays = statistics.compute(scores, number * self.size)
        with atomic_file(self._path(number)) as aside, open(aside, "wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]

    def read(self) -> Iterator[Arrays]:
        """Yield the statistics of all shards, in order."""
        for number in range(self.count):
            with np.load(self._path(number)) as file:
                yield dict(file)

    def gathered(self, name: str) -> NDArray[np.generic]:
        """Return a statistic of all units."""
        parts = []
        for number in range(self.count):
            with np.load(self._path(number)) as file:  # reads the named array alone
                parts.append(file[name])
        return np.concatenate(parts)

    def _units(self, number: int) -> NDArray[np.int64]:
        return np.arange(number * self.size, min((number + 1) * self.size, self.units.count))

    def _path(self, number: int) -> Path:
        return self._folder / f"shard-{number:04}.npz"


def score_units(
    scorer: Scorer, units: CandidateUnits, which: NDArray[np.int64], advance: Callable[..., None] = lambda amount: None
) -> Tensor:
    """Return the scores of some units, in batches: (units, columns); `which` is sorted."""
    batches = list(units.batches(which, scorer.reader.most_tokens))
    scores = []
    for prepared in prefetch((scorer.reader.candidates(units, batch) for batch in batches), scorer.context):
        scores.append(scorer.read(prepared))
        advance(len(scores[-1]))
    original_order = torch.from_numpy(np.argsort(np.concatenate(batches))).to(scorer.context.device)
    return torch.cat(scores)[original_order]


if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_CALIBRATED = 512
_IS_PACKED = "packed.json"
_TEXTS_AT_ONCE = 2000


def pack_candidates(table: Path, tokenizer: PreTrainedTokenizerFast, max_length: int, folder: Path) -> PackedTexts:
    """Tokenize a table's texts up to `max_length` tokens; a resumed run reads the stored tokens."""
    if not (folder / _IS_PACKED).exists():
        packed = write_packed(_beginnings(table, tokenizer, max_length), len(tokenizer), folder)
        write_json(folder / _IS_PACKED, {"texts": len(packed)})
    return PackedTexts(folder)


def _beginnings(table: Path, tokenizer: PreTrainedTokenizerFast, max_length: int) -> Iterator[tuple[list[int], int]]:
    """Yield the first tokens of each candidate between [CLS] and [SEP], and their number."""
    cls, sep = tokenizer.cls_token_id, tokenizer.sep_token_id
    with bar("tokens of the candidates", None):
        for batch in read_batches(table, columns=["text"]):
            texts = batch.column(0).to_pylist()
            for first in range(0, len(texts), _TEXTS_AT_ONCE):
                block = texts[first : first + _TEXTS_AT_ONCE]
                for ids in tokenizer(block, add_special_tokens=False, verbose=False)["input_ids"]:
                    tokens = [cls, *ids[: max_length - 2], sep]
                    yield tokens, len(tokens)


@dataclass(frozen=True)
class UnitTexts:
    """The texts of some units: their indices among all texts, the unit of each, and its share in the unit."""

    numbers: NDArray[np.int64]
    owners: NDArray[np.int64]
    shares: NDArray[np.float64]


@dataclass(frozen=True)
class CandidateUnits:
    """Candidates in the order of scoring; every `size` neighbors form a unit (B_p)."""

    texts: PackedTexts
    order: Order
    size: int

    @property
    def count(self) -> int:
        """The number of units; the last may be smaller."""
        return -(-len(self.order) // self.size)

    @property
    def of_each(self) -> NDArray[np.int64]:
        """The unit of each candidate, in the order of scoring."""
        return np.arange(len(self.order)) // self.size

    @cached_property
    def tokens(self) -> NDArray[np.int64]:
        """The number of tokens of each unit."""
        each = self.texts.lengths[self.order]
        return np.bincount(self.of_each, weights=each, minlength=self.count).astype(np.int64)

    def batches(self, units: NDArray[np.int64], most_tokens: int) -> Iterator[NDArray[np.int64]]:
        """Yield units of similar length in batches of at most `most_tokens` tokens, except single longer units."""
        by_length = units[np.argsort(self.tokens[units], kind="stable")]
        start, tokens = 0, 0
        for end, unit in enumerate(by_length.tolist()):
            size = int(self.tokens[unit])
            if end > start and tokens + size > most_tokens:
                yield by_length[start:end]
                start, tokens = end, 0
            tokens += size
        if start < len(by_length):
            yield by_length[start:]

    def texts_of(self, units: NDArray[np.int64]) -> UnitTexts:
        """Return the texts of some units; the texts of a unit have equal shares."""
        members = np.minimum(self.size, len(self.order) - units * self.size)  # the last unit may have fewer
        owners = np.repeat(np.arange(len(units)), members)
        return UnitTexts(self.order[runs(units * self.size, members)], owners, 1.0 / members[owners])


def scoring_order(indices: Order, table: Path, statistics: SelectionStatistics, examples: tuple[Example, ...]) -> Order:
    """Order candidates by query, best rank first, so that the candidates of a unit are similar.

    The ISS authors form batches of consecutive rows of a file in this order.
    """
    import pyarrow.compute as compute

    number = {example.id: index for index, example in enumerate(examples)}
    firsts = (compute.list_element(batch.column(0), 0) for batch in read_batches(table, columns=["matched_queries"]))
    query = np.asarray([number.get(name, len(number)) for part in firsts for name in part.to_pylist()], dtype=np.int64)
    return indices[np.lexsort((indices, statistics.rank[indices], query[indices]))]


def calibration_draw(units: int, seed: int) -> Order:
    """Return sorted indices of units that calibrate the scores of each target and measure the time of scoring.

    >>> calibration_draw(3, 0).tolist(), len(calibration_draw(10_000, 0))
    ([0, 1, 2], 512)
    """
    return np.sort(generator(seed, "influence", "calibration").permutation(units)[:_CALIBRATED])
