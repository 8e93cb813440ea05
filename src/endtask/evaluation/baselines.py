"""Baselines: the most frequent answer, and linear models over words."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from endtask.evaluation.linear_text import WORD, LinearTextModel
from endtask.evaluation.task_metrics import Measure
from endtask.records import Example
from endtask.task import Task
from endtask.task.targets import NO_WORD, Answers, padded, targets

Predict = Callable[[Sequence[Example]], Answers]


@dataclass(frozen=True)
class BaselineModel:
    """A fitted model and its description."""

    predict: Predict
    description: str
    as_arrays: Callable[[], LinearTextModel] | None = None
    """The model in a form that can be stored; None for models of other forms."""


def tfidf_models(
    task: Task, models: Iterable[tuple[Any, str]], as_answers: Callable[[Any], Answers]
) -> Iterator[BaselineModel]:
    """Yield scikit-learn models fitted to TF-IDF of one and two words; `as_answers` converts what they predict."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=WORD)
    train, answers = words.fit_transform(texts_of(task.train)), targets(task, "train")
    if answers.ndim == 2:
        answers = answers[:, : len(task.labels)]
    for model, description in models:
        fitted = model.fit(train, answers)

        def predict(examples: Sequence[Example], fitted: Any = fitted) -> Answers:
            return as_answers(np.asarray(fitted.predict(words.transform(texts_of(examples)))))

        yield BaselineModel(predict, f"TF-IDF + {description}", partial(LinearTextModel.of, words, fitted))


def logistic_regression(strength: float, classes: int) -> tuple[Any, str]:
    """Return a logistic regression and its description; of three or more classes one for each class.

    LIBLINEAR fits them about six times as fast as L-BFGS fits the multinomial one, with scores as good.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier

    model = LogisticRegression(C=strength, solver="liblinear", max_iter=2000)
    if classes > 2:
        return OneVsRestClassifier(model), f"logistic regression per class (C={strength:g})"
    return model, f"logistic regression (C={strength:g})"


def word_models(task: Task) -> Iterator[BaselineModel]:
    """Yield linear classifiers of each word from its letters, its neighbors and its form."""
    from sklearn.feature_extraction import FeatureHasher
    from sklearn.linear_model import SGDClassifier

    hasher = FeatureHasher(2**18, input_type="string")
    answers = targets(task, "train")
    train = hasher.transform(_words(task.train))
    for penalty in (1e-5, 1e-4):
        model = SGDClassifier(loss="log_loss", alpha=penalty, random_state=0).fit(train, answers[answers != NO_WORD])

        def predict(examples: Sequence[Example], model: Any = model) -> Answers:
            tags = model.predict(hasher.transform(_words(examples)))
            ends = np.cumsum([len(example.tokens or ()) for example in examples])
            return padded([part.tolist() for part in np.split(tags, ends[:-1])])

        yield BaselineModel(predict, f"words in context + logistic regression (alpha={penalty:g})")


def _words(examples: Sequence[Example]) -> Iterator[list[str]]:
    """Yield the features of every word."""
    for example in examples:
        words = ["<start>", *(example.tokens or ()), "<end>"]
        for before, word, after in zip(words, words[1:], words[2:], strict=False):
            low = word.lower()
            yield [
                "any", f"w={low}", f"form={_form(word)}", f"end={low[-3:]}", f"end={low[-2:]}", f"begin={low[:3]}",
                f"before={before.lower()}", f"after={after.lower()}", f"form before={_form(before)}",
            ]  # fmt: skip


def _form(word: str) -> str:
    """Return the shape of a word, without repetitions: `IL-2` is `A-0`."""
    kinds = ["A" if sign.isupper() else "a" if sign.isalpha() else "0" if sign.isdigit() else sign for sign in word]
    return "".join(kind for index, kind in enumerate(kinds) if index == 0 or kind != kinds[index - 1])


def scored_split(task: Task) -> str:
    """Return the split of the final score: test, or dev where there is no test split."""
    return "test" if "test" in task.splits else "dev"


def texts_of(examples: Sequence[Example]) -> list[str]:
    """Return the texts, both of a pair joined."""
    return [" ".join(part for part in (example.text, example.text_pair) if part) for example in examples]


VERSION = 3
"""Increase it with every change of a baseline's answers: stored answers are then computed again."""

Split = Literal["test", "dev"]


@dataclass(frozen=True)
class Baseline:
    """Answers for the requested rows and for dev, the dev score, and the seconds."""

    predicted: Answers
    dev_predicted: Answers
    dev_score: float
    description: str
    seconds: float


def majority_baseline(task: Task, metric: str | Measure, *, by: Split = "test") -> Baseline:
    """Return the most frequent answer of train for every row; of equally frequent ones the first label.

    Of scores that is their mean, of labels the most frequent set, and of tags each word's most frequent tag. Rows are
    those of test, or of dev if requested or if there is no test split.

    >>> from endtask.records import Example
    >>> rows = [Example(str(n), f"text {n}", "rare" if n % 4 == 0 else "usual") for n in range(40)]
    >>> majority_baseline(Task.from_examples("uneven", {"train": rows}), "accuracy").description
    "majority class ('usual')"
    """
    started = time.monotonic()
    return _baseline(task, _measure(task, metric), task.task_type.commonest(task), started, by)


def tfidf_baseline(task: Task, metric: str | Measure, *, by: Split = "test") -> Baseline:
    """Return the answers of a linear model over TF-IDF of one and two words; dev chooses its regularization.

    Of tags, a linear classifier of each word in its context. Rows are as in `majority_baseline`.
    """
    started, measure = time.monotonic(), _measure(task, metric)
    truth = targets(task, "dev")
    with one_thread():
        best = max(task.task_type.linear_models(task), key=lambda model: measure.score(truth, model.predict(task.dev)))
    return _baseline(task, measure, best, started, by)


@contextmanager
def one_thread() -> Iterator[None]:
    """Fit linear models on one thread: those of BLAS wait for each other actively, for seconds on a busy machine."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, user_api="blas"):
        yield


def _measure(task: Task, metric: str | Measure) -> Measure:
    return Measure(metric, task.type, task.all_labels) if isinstance(metric, str) else metric


def _baseline(task: Task, measure: Measure, model: BaselineModel, started: float, by: Split) -> Baseline:
    dev = model.predict(task.dev)
    predicted = model.predict(task.test) if by == "test" and task.test else dev
    score = measure.score(targets(task, "dev"), dev)
    return Baseline(predicted, dev, score, model.description, time.monotonic() - started)
