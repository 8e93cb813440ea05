"""What rules that read no meaning reach on acronym detection: none of them may come near to solving it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.alignment.acronyms import fits
from benchmarks.alignment.stop_words import STOP_WORDS
from endtask.io.tables import Row

_WORD = re.compile(r"[^\W_]+")
_FEW = 200


def starts_words(acronym: str, text: str, without: frozenset[str] = frozenset()) -> bool:
    """Whether words in a row, none of them among those left out, begin with these letters.

    >>> starts_words("QOS", "the quality of service"), starts_words("QOS", "the quality of service", STOP_WORDS)
    (True, False)
    """
    words = _WORD.findall(text.lower())
    for start in range(len(words) - len(acronym) + 1):
        run = words[start : start + len(acronym)]
        if "".join(word[0] for word in run) == acronym.lower() and without.isdisjoint(run):
            return True
    return False


def fits_nearby(acronym: str, text: str) -> bool:
    """Whether the letters stand in order inside as few words as Schwartz and Hearst (2003) allow a long form."""
    words, most = _WORD.findall(text.lower()), min(len(acronym) + 5, 2 * len(acronym))
    first = acronym[0].lower()
    return any(
        word[0] == first and fits(acronym, " ".join(words[start : start + most])) for start, word in enumerate(words)
    )


RULES: dict[str, Callable[[str, str], bool]] = {
    "words begin with the letters": starts_words,
    "words that are no stop words do": lambda acronym, text: starts_words(acronym, text, STOP_WORDS),
    "the letters stand in the text in order": fits,
    "they do so in a few words": fits_nearby,
}


def surface_accuracies(train: Sequence[Row], test: Sequence[Row], *, few: int = _FEW) -> dict[str, float]:
    """The accuracy of each rule or its opposite, of linear models over words and letters, and of all rules together."""
    truth, known = _labels(test), _labels(train)
    markers, known_marks = _markers(test), _markers(train)
    found = {name: _either(markers[:, place], truth) for place, name in enumerate(RULES)}
    found["length of the acronym"] = _tree(known_marks[:, -1:], known, markers[:, -1:], truth)
    found["TF-IDF of words, both texts"] = _linear(train, test, "word", both=True)
    found["TF-IDF of letters, the acronym"] = _linear(train, test, "char_wb", both=False)
    found["a tree of all rules"] = _tree(known_marks, known, markers, truth)
    found[f"a tree of all rules, {few} labels"] = _tree(known_marks[:few], known[:few], markers, truth)
    return {name: round(accuracy, 4) for name, accuracy in found.items()}


def _labels(rows: Sequence[Row]) -> np.ndarray:
    return np.array([row["label"] == "1" for row in rows])


def _markers(rows: Sequence[Row]) -> np.ndarray:
    """What each rule says, and the length."""
    said = [[*(rule(row["text"], row["text_pair"]) for rule in RULES.values()), len(row["text"])] for row in rows]
    return np.array(said, dtype=float)


def _either(said: np.ndarray, truth: np.ndarray) -> float:
    agreed = float((said.astype(bool) == truth).mean())
    return max(agreed, 1 - agreed)


def _tree(known_marks: np.ndarray, known: np.ndarray, markers: np.ndarray, truth: np.ndarray) -> float:
    from sklearn.tree import DecisionTreeClassifier

    tree = DecisionTreeClassifier(max_depth=5, min_samples_leaf=5, random_state=0).fit(known_marks, known)
    return float((tree.predict(markers) == truth).mean())


def _linear(train: Sequence[Row], test: Sequence[Row], unit: str, *, both: bool) -> float:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    def shown(rows: Sequence[Row]) -> list[str]:
        return [f"{row['text']} {row['text_pair']}" if both else row["text"] for row in rows]

    vectorizer = TfidfVectorizer(analyzer=unit, ngram_range=(1, 2) if unit == "word" else (1, 3), sublinear_tf=True)
    model = LogisticRegression(C=10, max_iter=2000).fit(vectorizer.fit_transform(shown(train)), _labels(train))
    return float((model.predict(vectorizer.transform(shown(test))) == _labels(test)).mean())
