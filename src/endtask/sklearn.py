"""Scikit-learn estimators that train a model on texts: in a Pipeline, under `cross_val_score`, with `clone`."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d

from endtask.api.cells import plain_value
from endtask.api.fit import fit_in
from endtask.api.model import Model
from endtask.config.loading import Tree, merge
from endtask.progress import quiet
from endtask.task.columns import as_class

__all__ = ["EndtaskClassifier", "EndtaskRegressor"]

_LARGEST_SEED = 2**31 - 1
Texts = list[Any]
"""Strings, or tuples of two strings."""


class _TextEstimator(BaseEstimator):  # type: ignore[misc]
    """What both estimators share: parameters, inputs and the run behind them.

    `corpus` is as in `endtask.fit`, `settings` are nested settings, such as `{"finetune": {"epochs": 5}}`. `output` is
    a folder for runs, one for each training set and setting; without it they are in a temporary folder that is deleted
    with the estimator. `random_state` sets `seed`. All rows of `fit` are train and dev (`task.dev_fraction`).
    """

    _pair_type = _text_type = ""

    def __init__(
        self,
        corpus: Any = None,
        *,
        budget: str | None = None,
        preset: str | None = None,
        settings: Mapping[str, Any] | None = None,
        output: str | Path | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.corpus = corpus
        self.budget = budget
        self.preset = preset
        self.settings = settings
        self.output = output
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        return tags

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_scratch"}  # a copy does not own the folder

    def _fit_model(self, texts: Texts, labels: Sequence[Any]) -> Model:
        """Train on texts and labels, and return the model."""
        given: Tree = {"seed": self._seed(), "task": {"test_fraction": 0.0}}
        given["task"]["type"] = self._pair_type if isinstance(texts[0], tuple) else self._text_type
        if self.budget is not None:
            given["budget"] = self.budget
        merge(given, self.settings or {})
        runs = self.output
        if runs is None:
            self._scratch = TemporaryDirectory(prefix="endtask-", ignore_cleanup_errors=True)
            runs = self._scratch.name
        with quiet(not self.verbose):
            return fit_in(Path(runs), (texts, list(labels)), self.corpus, given, preset=self.preset)

    def _seed(self) -> int:
        if isinstance(self.random_state, numbers.Integral):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(_LARGEST_SEED))

    def _checked(self, texts: Any, answers: Any) -> tuple[Texts, NDArray[Any]]:
        """Return texts and answers of equal length; raises `ValueError`, as estimators do."""
        if answers is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        listed, target = checked_texts(texts), column_or_1d(answers, warn=True)
        check_consistent_length(listed, target)
        return listed, target

    def _texts(self, texts: Any) -> Texts:
        check_is_fitted(self)
        return checked_texts(texts)


class EndtaskClassifier(ClassifierMixin, _TextEstimator):  # type: ignore[misc]
    """A classifier of texts, or of pairs of texts (tuples, or two columns).

    Parameters are those of `endtask.fit`: `corpus`, `budget`, `preset`, `settings` (nested), `output` (a folder for
    runs; by default a temporary one). After `fit`, `model_` is the `Model`, and `classes_` are the classes.

    >>> EndtaskClassifier(budget="60s", random_state=0)
    EndtaskClassifier(budget='60s', random_state=0)
    """

    _pair_type, _text_type = "pair", "text"

    def fit(self, X: Any, y: Any) -> Self:
        """Train on texts and their classes."""
        texts, target = self._checked(X, y)
        check_classification_targets(target)
        self.classes_, numbers_of = np.unique(target, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"Classifier can't train when only one class is present: {self.classes_[0]!r}")
        self._names = class_names(self.classes_)
        self.model_ = self._fit_model(texts, [self._names[number] for number in numbers_of])
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class of each text."""
        texts = self._texts(X)
        number = {name: index for index, name in enumerate(self._names)}
        found: NDArray[Any] = self.classes_[[number[name] for name in self.model_.predict(texts)]]
        return found

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return probabilities (texts, classes), columns as in `classes_`."""
        texts = self._texts(X)
        column = {name: index for index, name in enumerate(self.model_.classes_)}
        table = self.model_.predict_proba(texts)[:, [column[name] for name in self._names]]
        return np.asarray(table / table.sum(axis=1, keepdims=True), dtype=np.float64)


class EndtaskRegressor(RegressorMixin, _TextEstimator):  # type: ignore[misc]
    """A model that gives texts, or pairs of texts, a number; parameters are those of `EndtaskClassifier`."""

    _pair_type = _text_type = "regression"

    def fit(self, X: Any, y: Any) -> Self:
        """Train on texts and their numbers."""
        texts, target = self._checked(X, y)
        values = np.asarray(target, dtype=np.float64)
        if not np.isfinite(values).all():
            raise ValueError("Input y contains NaN or infinity.")
        self.model_ = self._fit_model(texts, values.tolist())
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return the number of each text."""
        texts = self._texts(X)
        return np.asarray(self.model_.predict(texts), dtype=np.float64)


def checked_texts(texts: Any) -> Texts:
    """Return texts as strings or tuples of two; raises `ValueError` for anything else, and for no texts.

    >>> checked_texts(np.array([["a", "b"], ["c", "d"]], dtype=object))
    [('a', 'b'), ('c', 'd')]
    """
    if hasattr(texts, "toarray"):
        raise TypeError("sparse input is not supported: texts are strings")
    if isinstance(texts, str | Mapping) or not (hasattr(texts, "__len__") or hasattr(texts, "__array__")):
        raise ValueError(f"expected a list of texts, got {type(texts).__name__}")
    rows = np.asarray(texts, dtype=object).tolist() if not isinstance(texts, list | tuple) else list(texts)
    if not rows:
        raise ValueError("Found array with 0 sample(s) while a minimum of 1 is required.")
    return [_checked_text(row, number) for number, row in enumerate(rows)]


def _checked_text(row: Any, number: int) -> Any:
    if isinstance(row, str):
        return str(row)
    cells = list(row) if isinstance(row, list | tuple) else []
    if len(cells) not in (1, 2) or not all(isinstance(cell, str) for cell in cells):
        raise ValueError(f"text {number} is of type {type(row).__name__}, not a string or a pair of strings")
    return str(cells[0]) if len(cells) == 1 else (str(cells[0]), str(cells[1]))


def class_names(classes: NDArray[Any]) -> list[str]:
    """Return a distinct name for each class, as a task writes it; numbered names where values share one.

    >>> class_names(np.array([0, 1])), class_names(np.array([1, "1"], dtype=object))
    (['0', '1'], ['class 0', 'class 1'])
    """
    names = [as_class(plain_value(value)) for value in classes.tolist()]
    if len(set(names)) < len(names) or not all(name.strip() for name in names):
        return [f"class {number}" for number in range(len(names))]
    return names
