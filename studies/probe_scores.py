"""The scores that `studies.probe` compares: of gradients under several geometries, of words, and controls.

A score is higher for a batch that should help more. Scores of gradients read the target rows, held out from train,
under other masks than the measured step; `ceiling` reads the measured rows and the step's own mask, and two further
controls change one of these at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from endtask.config import Settings
from endtask.encoders.batch import lay_out
from endtask.gradients.arithmetic import matrices
from endtask.gradients.capture import output_projection
from endtask.gradients.engine import GradientEngine, masked_lm_losses, task_losses
from endtask.gradients.rows import Gradients, LinearRows
from endtask.gradients.scoring import batches_by_length
from endtask.io.selection_table import SelectedTexts, read_statistics
from endtask.registry import selectors
from endtask.seeds import generator
from endtask.selectors.base import RunContext
from endtask.task import Task

if TYPE_CHECKING:
    from studies.probe import Subject

_MASKS, _SHARE = (0, 1), 0.5
"""As by default: each of two masks hides half of the tokens, so that all are predicted once."""
_BEST, _DAMPING, _SAMPLES = 10, 0.1, 1000
_TOKENS = 1 << 12


class Score(NamedTuple):
    """A score's name in tables, and what it reads."""

    title: str
    reads: str


SCORES = {
    "ceiling": Score("first order, the measured rows and mask (ceiling)", "control"),
    "same_rows": Score("the same with the masks of scores", "control"),
    "same_mask": Score("the same with the target rows of scores", "control"),
    "full_adam": Score("gradients as AdamW steps them (LESS), all layers", "gradients"),
    "full_dot": Score("dot product, all layers", "gradients"),
    "full_cosine": Score("cosine, all layers", "gradients"),
    "last_dot": Score("dot product, last layer (the paper)", "gradients"),
    "last_cosine": Score("mean cosine, last layer", "gradients"),
    "last_best": Score("ten best cosines, last layer (default)", "gradients"),
    "last_adam": Score("as AdamW steps them, last layer", "gradients"),
    "last_ekfac": Score("EK-FAC, last layer", "gradients"),
    "norm": Score("length of the gradient", "control"),
    "masked_lm_loss": Score("masked-LM loss of the batch", "control"),
    "bm25_rank": Score("BM25 rank", "words"),
    "bm25_score": Score("BM25 score", "words"),
    "dsir": Score("DSIR", "words"),
    "classifier": Score("linear classifier", "words"),
    "ngrams": Score("ridge regression of the decrease on n-grams (MATES), cross-validated", "words"),
}


class Measured(NamedTuple):
    """The decrease of a batch, and its scores."""

    decrease: float
    scores: dict[str, float]


def inner(first: Sequence[Tensor], second: Sequence[Tensor]) -> float:
    """Return the inner product of two gradients."""
    return sum(float((one * other).sum()) for one, other in zip(first, second, strict=True))


def as_stepped(gradients: Sequence[Tensor], squares: Sequence[Tensor], epsilon: float) -> list[Tensor]:
    """Return a gradient as AdamW without momentum steps it, for a unit learning rate."""
    return [gradient / (square.sqrt() + epsilon) for gradient, square in zip(gradients, squares, strict=True)]


def as_weighted(gradients: Sequence[Tensor], weights: Sequence[Tensor]) -> list[Tensor]:
    """Return a gradient multiplied by a weight for each number."""
    return [gradient * weight for gradient, weight in zip(gradients, weights, strict=True)]


@dataclass(frozen=True)
class Eigenbasis:
    """EK-FAC of a weight: eigenvectors of the covariances of output gradients and inputs, and second moments there."""

    left: Tensor  # (height, height)
    right: Tensor  # (width, width)
    moments: Tensor  # (height, width), damped

    @classmethod
    def of(cls, gradients: Gradients) -> Eigenbasis:
        """Return the factors of some gradients as rows."""
        ((block, uses),) = gradients.blocks.items()
        (rows,) = uses
        assert isinstance(rows, LinearRows)
        left = torch.linalg.eigh(rows.left.T @ rows.left)[1]
        right = torch.linalg.eigh(rows.right.T @ rows.right)[1]
        each = matrices(uses, gradients.count, block)
        moments = (left.T @ each @ right).square().mean(0)
        return cls(left, right, moments + _DAMPING * moments.mean())

    def solve(self, gradient: Tensor) -> Tensor:
        """Return the gradient times the inverse of the approximate Fisher matrix."""
        solved: Tensor = self.left @ ((self.left.T @ gradient @ self.right) / self.moments) @ self.right.T
        return solved


@dataclass(frozen=True)
class ProbeScores:
    """The gradients of the target rows and what else scores need."""

    target: list[Tensor]
    measured: list[Tensor]
    stepped: list[Tensor]  # 1 / (sqrt(second moment) + epsilon) for each weight
    last: int  # the index of the last attention output projection among the weights
    rows: Tensor  # (targets, height * width), each of length 1: the last layer's
    mean: Tensor  # (targets,), of cosines with other batches
    deviation: Tensor
    basis: Eigenbasis

    @classmethod
    def of(cls, subject: Subject, squares: Sequence[Tensor], state: NDArray[np.int64], epsilon: float) -> ProbeScores:
        """Return the scores of a subject; `state` are batches that calibrate."""
        names = [name for name, _ in subject.network.encoder.named_parameters()]
        path = output_projection(subject.network, 1.0)
        last, engine = names.index(f"{path}.weight"), GradientEngine(subject.network, ("last",))
        ones = [torch.ones_like(weight) for weight in subject.weights]
        rows = torch.nn.functional.normalize(target_rows(subject, engine), dim=1)
        cosines = torch.stack([rows @ _unit(gradients_of_unit(subject, unit)[last]) for unit in state])
        return cls(
            subject.task_gradient(subject.fold),
            subject.task_gradient(subject.measured),
            as_stepped(ones, squares, epsilon),
            last,
            rows,
            cosines.mean(0),
            cosines.std(0),
            Eigenbasis.of(engine.gradients(subject.candidates(state.reshape(-1), 0, _SHARE), masked_lm_losses)),
        )


def _unit(gradient: Tensor) -> Tensor:
    return torch.nn.functional.normalize(gradient.reshape(-1), dim=0)


def gradients_of_unit(subject: Subject, unit: NDArray[np.int64]) -> list[Tensor]:
    """Return the gradient of a batch, averaged over the masks of scoring."""
    from studies.probe import gradients_of

    loss = sum((subject.masked_lm_loss(unit, mask, _SHARE) for mask in _MASKS), torch.zeros(()))
    return gradients_of(loss / len(_MASKS), subject.weights)


def target_rows(subject: Subject, engine: GradientEngine) -> Tensor:
    """Return the last layer's gradient of each target row: (targets, height * width)."""
    objective = subject.fold.answers(subject.network)
    texts = objective.stream.texts
    found, order = [], []
    for numbers in batches_by_length(texts.lengths, _TOKENS):
        layout = subject.network.layout(int(texts.lengths[numbers].max()))
        gradients = engine.gradients(objective.answered(lay_out(texts, numbers, layout), numbers), task_losses)
        ((block, uses),) = gradients.blocks.items()
        found.append(matrices(uses, gradients.count, block).flatten(1))
        order.append(numbers)
    return torch.cat(found)[np.argsort(np.concatenate(order))]


def model_scores(
    scores: ProbeScores, subject: Subject, unit: NDArray[np.int64], step: Sequence[Tensor]
) -> dict[str, float]:
    """Return the scores of a batch that read the scoring model; `step` is the gradient of the measured step."""
    found = gradients_of_unit(subject, unit)
    last, target = found[scores.last], scores.target[scores.last]
    lengths = inner(found, found) ** 0.5, inner(scores.target, scores.target) ** 0.5
    stepped, scored = (as_weighted(gradients, scores.stepped) for gradients in (step, found))
    cosines = scores.rows @ _unit(last)
    standard = (cosines - scores.mean) / scores.deviation.clamp(min=1e-12)
    with torch.no_grad():
        own_loss = float(subject.masked_lm_loss(unit, 0, _SHARE))
    return {
        "ceiling": inner(scores.measured, stepped),
        "same_rows": inner(scores.measured, scored),
        "same_mask": inner(scores.target, stepped),
        "full_adam": inner(scores.target, scored),
        "full_dot": inner(scores.target, found),
        "full_cosine": inner(scores.target, found) / (lengths[0] * lengths[1]),
        "last_dot": float((target * last).sum()),
        "last_cosine": float(cosines.mean()),
        "last_best": float(standard.topk(min(_BEST, len(standard))).values.mean()),
        "last_adam": float((target * last * scores.stepped[scores.last]).sum()),
        "last_ekfac": float((scores.basis.solve(target) * last).sum()),
        "norm": lengths[0],
        "masked_lm_loss": own_loss,
    }


def text_scores(
    table: Path, task: Task, settings: Settings, units: NDArray[np.int64], decreases: Sequence[float]
) -> dict[str, list[float]]:
    """Return the scores of batches that read words: means over the batch's texts."""
    statistics = read_statistics(table)
    context = RunContext(settings.select, table.parent, examples=task.train)
    by_text: dict[str, NDArray[Any]] = {"bm25_rank": -np.log(statistics.rank), "bm25_score": statistics.score}
    for name in ("dsir", "classifier"):
        part = selectors.get(name)
        by_text[name] = part(part.Config()).rank(statistics, context).score
    means = {name: values[units].mean(axis=1).tolist() for name, values in by_text.items()}
    return {**means, "ngrams": _predicted(table, units, np.asarray(decreases))}


def _predicted(table: Path, units: NDArray[np.int64], decreases: NDArray[np.float64]) -> list[float]:
    """Return what ridge regressions on hashed n-grams of the other four fifths predict for each batch."""
    from sklearn.feature_extraction.text import HashingVectorizer
    from sklearn.linear_model import Ridge
    from sklearn.model_selection import KFold, cross_val_predict

    wanted = set(units.reshape(-1).tolist())
    texts = {index: text for index, text in enumerate(SelectedTexts(table)) if index in wanted}
    joined = [" ".join(texts[index] for index in unit) for unit in units.tolist()]
    features = HashingVectorizer(n_features=1 << 14, ngram_range=(1, 2), alternate_sign=False).transform(joined)
    standard = (decreases - decreases.mean()) / max(decreases.std(), 1e-12)
    folds = KFold(min(5, len(units)), shuffle=True, random_state=0)
    predicted: list[float] = cross_val_predict(Ridge(alpha=1.0), features, standard, cv=folds).tolist()
    return predicted


def rank_correlation(scores: NDArray[np.float64], decreases: NDArray[np.float64]) -> dict[str, Any]:
    """Return Spearman's correlation with its 95% interval by a bootstrap over batches.

    >>> found = rank_correlation(np.arange(50.0), np.arange(50.0) ** 3)
    >>> found["spearman"], found["low"] > 0.9, found["batches"]
    (1.0, True, 50)
    """
    from scipy.stats import spearmanr

    def correlation(chosen: NDArray[np.int64]) -> float:
        return float(spearmanr(scores[chosen], decreases[chosen]).statistic)

    random = generator(0, "probe", "bootstrap")
    draws = [correlation(random.integers(0, len(scores), len(scores))) for _ in range(_SAMPLES)]
    low, high = np.nanquantile(draws, (0.025, 0.975))
    found = {"spearman": correlation(np.arange(len(scores))), "low": float(low), "high": float(high)}
    return {**{name: round(value, 4) for name, value in found.items()}, "batches": len(scores)}
