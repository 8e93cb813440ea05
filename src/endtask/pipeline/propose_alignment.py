"""Which aligned objective fits a task: proposed from its kind, its texts and the corpus."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice
from statistics import median
from typing import Any

from endtask.config import AlignedSettings, CorpusSettings, SourceSettings
from endtask.corpus import Corpus
from endtask.errors import InputError
from endtask.task import Task

_SAMPLED_PASSAGES = 200
_SAMPLED_EXAMPLES = 500
_MOST = 0.8
_LETTERS = re.compile(r"[^\W\d_][\w-]{1,7}")
_SHORT, _SHORTER = 12, 3
_MARKERS = (("[[", "]]", "<<", ">>"), ("<<", ">>", "[[", "]]"), ("<e1>", "</e1>", "<e2>", "</e2>"))


@dataclass(frozen=True)
class Proposal:
    """Settings by dotted key, and why."""

    settings: dict[str, Any]
    reason: str


def propose(task: Task, sources: list[dict[str, str]]) -> Proposal:
    """An objective with inputs and a head like the task's, to be made from the corpus.

    >>> from endtask.records import Example
    >>> rows = [Example(str(n), "ABC", ("no", "yes")[n % 2], text_pair="a big cat sat there") for n in range(4)]
    >>> task = Task.from_examples("toy", {"train": rows, "dev": rows, "test": rows})
    >>> propose(task, [{"path": "docstrings"}]).settings["aligned.pairs_from"]
    'acronyms'
    """
    settings, reason = _recipe(task, sources)
    objectives = {
        "corpus": {"kind": "mlm", "texts": "selection"},
        "task": {"kind": "joint"},
        "aligned": {"kind": "aligned"},
    }
    shared = {"aligned.sources": sources, "pretrain.weighting.name": "equal", "pretrain.objectives": objectives}
    return Proposal({**shared, **settings}, reason)


def _recipe(task: Task, sources: list[dict[str, str]]) -> tuple[dict[str, Any], str]:
    if task.task_type.per_token:
        labels = "bio" if any(label.upper().startswith(("B-", "I-")) or label == "B" for label in task.labels) else None
        scheme = {"aligned.span_labels": labels or "boundaries"}
        spans, where = _spans_from(sources)
        return {"aligned.recipe": "spans", **spans, **scheme}, f"a class for every word: spans from {where}"
    if any(example.text_pair is not None for example in task.train):
        pairs, what = _pairs_from(task)
        spelled = {"tokenizer.spell_capitals": True} if pairs == "acronyms" and _in_capitals(task) else {}
        return {"aligned.recipe": "pair_match", "aligned.pairs_from": pairs, **spelled}, f"two texts: {what}"
    markers = next((markers for markers in _MARKERS if _have(task, markers)), None)
    if markers is not None:
        spans, where = _spans_from(sources)
        found = {
            "aligned.recipe": "marked_relation",
            "aligned.entity_markers": list(markers),
            "tokenizer.entity_markers": list(markers),
        }
        return {**found, **spans}, f"two marked spans, here from {where}"
    plain = {"aligned.recipe": "pair_match", "aligned.pairs_from": "next_sentence"}
    return plain, f"{task.task_type.answer_phrase}: no recipe is shaped just so; next sentences come closest"


def _spans_from(sources: list[dict[str, str]]) -> tuple[dict[str, str], str]:
    if _has_links(sources):
        return {"aligned.spans_from": "markup"}, "the links of the corpus"
    return {"aligned.spans_from": "title_case"}, "words in capitals, since no row of the corpus carries links"


def _has_links(sources: list[dict[str, str]]) -> bool:
    entries = tuple(SourceSettings.model_validate(source) for source in sources)
    corpus = Corpus.aligned(AlignedSettings(sources=entries), CorpusSettings())
    try:
        return any(document.links for document in islice(corpus.documents(), _SAMPLED_PASSAGES))
    except InputError:
        return False  # a column of this name may hold something else


def _pairs_from(task: Task) -> tuple[str, str]:
    pairs = [(one.text, one.text_pair or "") for one in task.train[:_SAMPLED_EXAMPLES]]
    if sum(_LETTERS.fullmatch(first.strip()) is not None for first, _ in pairs) >= _MOST * len(pairs):
        return "acronyms", "the first is mostly one short word: initials of words of the second"
    first, second = (median(len(text.split()) for text in texts) for texts in zip(*pairs, strict=True))
    if first <= _SHORT and second >= _SHORTER * first:
        return "title", "the first is short, the second long: titles and texts"
    return "next_sentence", "a text and how it goes on"


def _in_capitals(task: Task) -> bool:
    """Whether most of the letters of first texts are capitals; some, such as those of `mRNA`, are not."""
    letters = [letter for example in task.train[:_SAMPLED_EXAMPLES] for letter in example.text if letter.isalpha()]
    return bool(letters) and sum(letter.isupper() for letter in letters) >= _MOST * len(letters)


def _have(task: Task, markers: tuple[str, ...]) -> bool:
    texts = [example.text for example in task.train[:_SAMPLED_EXAMPLES]]
    return sum(all(marker in text for marker in markers) for text in texts) >= _MOST * len(texts)
