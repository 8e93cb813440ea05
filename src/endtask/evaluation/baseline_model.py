"""Linear models over words: what a user would try before any network."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from endtask.records import Example
from endtask.task import Task
from endtask.task.targets import NO_WORD, Answers, padded, targets

Predict = Callable[[Sequence[Example]], Answers]

# Signs are words too: what stands beside the mark of an entity, as in `]] inhibits`, says the most in relation tasks.
_WORD = r"(?u)\w+|[^\w\s]+"


@dataclass(frozen=True)
class BaselineModel:
    """A fitted model and what it is in words."""

    predict: Predict
    description: str


def tfidf_models(
    task: Task, models: Iterable[tuple[Any, str]], as_answers: Callable[[Any], Answers]
) -> Iterator[BaselineModel]:
    """Yield scikit-learn models fitted to TF-IDF of one and two words; `as_answers` converts what they predict."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=_WORD)
    train, answers = words.fit_transform(texts_of(task.train)), targets(task, "train")
    if answers.ndim == 2:
        answers = answers[:, : len(task.labels)]
    for model, description in models:
        fitted = model.fit(train, answers)

        def predict(examples: Sequence[Example], fitted: Any = fitted) -> Answers:
            return as_answers(np.asarray(fitted.predict(words.transform(texts_of(examples)))))

        yield BaselineModel(predict, f"TF-IDF + {description}")


def word_models(task: Task) -> Iterator[BaselineModel]:
    """Yield linear classifiers of each word by itself, its neighbors and its form."""
    from sklearn.feature_extraction import FeatureHasher
    from sklearn.linear_model import SGDClassifier

    hasher = FeatureHasher(2**18, input_type="string")
    answers = targets(task, "train")
    train = hasher.transform(_words(task.train))
    for penalty in (1e-5, 1e-4):
        model = SGDClassifier(loss="log_loss", alpha=penalty, random_state=0).fit(train, answers[answers != NO_WORD])

        def predict(examples: Sequence[Example], model: Any = model) -> Answers:
            found = model.predict(hasher.transform(_words(examples)))
            ends = np.cumsum([len(example.tokens or ()) for example in examples])
            return padded([part.tolist() for part in np.split(found, ends[:-1])])

        yield BaselineModel(predict, f"words in context + logistic regression (alpha={penalty:g})")


def _words(examples: Sequence[Example]) -> Iterator[list[str]]:
    """The features of every word."""
    for example in examples:
        words = ["<start>", *(example.tokens or ()), "<end>"]
        for before, word, after in zip(words, words[1:], words[2:], strict=False):
            low = word.lower()
            yield [
                "any", f"w={low}", f"form={_form(word)}", f"end={low[-3:]}", f"end={low[-2:]}", f"begin={low[:3]}",
                f"before={before.lower()}", f"after={after.lower()}", f"form before={_form(before)}",
            ]  # fmt: skip


def _form(word: str) -> str:
    """Upper case, digits and signs without their number: `IL-2` is `A-0`."""
    kinds = ["A" if sign.isupper() else "a" if sign.isalpha() else "0" if sign.isdigit() else sign for sign in word]
    return "".join(kind for index, kind in enumerate(kinds) if index == 0 or kind != kinds[index - 1])


def texts_of(examples: Sequence[Example]) -> list[str]:
    """The texts, both of a pair together."""
    return [" ".join(part for part in (example.text, example.text_pair) if part) for example in examples]
