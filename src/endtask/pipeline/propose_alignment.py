"""Propose an aligned objective for a task, from its type, its texts and the corpus."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice
from typing import Any

from endtask.config import AlignedSettings, CorpusSettings, SourceSettings
from endtask.corpus import Corpus
from endtask.errors import InputError
from endtask.task import Task

_SAMPLED_PASSAGES = 200
_SAMPLED_EXAMPLES = 500
_MOSTLY = 0.8
_SHORT_WORD = re.compile(r"[^\W\d_][\w-]{1,7}")
_NEXT_SENTENCE = {"kind": "next_sentence"}


@dataclass(frozen=True)
class Proposal:
    """Proposed settings by dotted key, and the reason for them."""

    settings: dict[str, Any]
    reason: str


def propose(task: Task, sources: list[dict[str, str]]) -> Proposal:
    """Return an objective whose inputs and head are like the task's and whose labels come from the corpus.

    >>> from endtask.records import Example
    >>> rows = [Example(str(n), "ABC", ("no", "yes")[n % 2], text_pair="a big cat sat there") for n in range(4)]
    >>> task = Task.from_examples("toy", {"train": rows, "dev": rows, "test": rows})
    >>> propose(task, [{"path": "docstrings"}]).settings["pretrain.objectives"]["aligned"]
    {'kind': 'acronyms'}
    """
    aligned, reason, extra_settings = _objective(task, sources)
    objectives = {
        "corpus": {"kind": "mlm", "texts": "selection"},
        "task_texts": {"kind": "mlm", "texts": "task"},  # no labels, so that `few-shot --folds` can score all rows
        "aligned": aligned,
    }
    settings = {"aligned.sources": sources, "pretrain.weighting.name": "equal", "pretrain.objectives": objectives}
    return Proposal({**settings, **extra_settings}, reason)


def _objective(task: Task, sources: list[dict[str, str]]) -> tuple[dict[str, str], str, dict[str, Any]]:
    """Return the objective, the reason for it, and other settings that it needs."""
    if task.task_type.per_token and _has_links(sources):
        is_bio = any(label.upper().startswith(("B-", "I-")) or label == "B" for label in task.labels)
        objective = {"kind": "hyperlinks", "span_labels": "bio" if is_bio else "boundaries"}
        return objective, "a class for every word: the links of the corpus", {}
    if task.task_type.per_token:
        return _NEXT_SENTENCE, "a class for every word, but no row of the corpus has links: next sentences", {}
    if _first_texts_are_words(task):
        spelling = {"tokenizer.spell_capitals": True} if _first_texts_are_capitals(task) else {}
        reason = "two texts, the first mostly one short word: initials of words of the second"
        return {"kind": "acronyms"}, reason, spelling
    if any(example.text_pair is not None for example in task.train):
        return _NEXT_SENTENCE, "two texts: a text and its continuation", {}
    phrase = task.task_type.answer_phrase
    return _NEXT_SENTENCE, f"{phrase}: no objective has this shape; next sentences come closest", {}


def _has_links(sources: list[dict[str, str]]) -> bool:
    entries = tuple(SourceSettings.model_validate(source) for source in sources)
    corpus = Corpus.aligned(AlignedSettings(sources=entries), CorpusSettings())
    try:
        return any(document.links for document in islice(corpus.documents(), _SAMPLED_PASSAGES))
    except InputError:
        return False  # a column of this name may have other content


def _first_texts_are_words(task: Task) -> bool:
    """Return whether the first texts of pairs are mostly single short words."""
    texts = [example.text.strip() for example in task.train[:_SAMPLED_EXAMPLES] if example.text_pair is not None]
    return bool(texts) and sum(_SHORT_WORD.fullmatch(text) is not None for text in texts) >= _MOSTLY * len(texts)


def _first_texts_are_capitals(task: Task) -> bool:
    """Return whether most letters of first texts are capitals; some, as in `mRNA`, are not."""
    letters = [letter for example in task.train[:_SAMPLED_EXAMPLES] for letter in example.text if letter.isalpha()]
    return bool(letters) and sum(letter.isupper() for letter in letters) >= _MOSTLY * len(letters)
