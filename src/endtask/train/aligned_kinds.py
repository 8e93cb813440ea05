"""Aligned objectives as settings name them: how each is made from the texts of `aligned.sources`, and its head."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from torch import nn

from endtask.errors import InputError
from endtask.models.network import Network
from endtask.objectives.acronyms import Acronyms
from endtask.objectives.base import Objective
from endtask.objectives.hyperlinks import CLASSES, SpanBoundaries
from endtask.objectives.made_pairs import FramedPairs
from endtask.objectives.made_stream import NothingToMake
from endtask.objectives.marked_relation import MarkedRelation
from endtask.objectives.next_sentence import NextSentence
from endtask.objectives.titles import Titles
from endtask.seeds import derive
from endtask.settings import AlignedSettings, ObjectiveSettings, Settings
from endtask.settings.objectives import ALIGNED_KINDS
from endtask.text.aligned_texts import FOUND, MARKUP, AlignedTexts
from endtask.text.tokenizer import load_tokenizer

if TYPE_CHECKING:
    from endtask.train.objective_kinds import Ingredients

ALIGNED_TEXTS = "aligned"
"""What aligned objectives read, and the folder it is packed into."""
PAIR_CLASSES = ("no", "yes")
"""The classes of all others than spans."""
_PAIRS: dict[str, type[FramedPairs]] = {"next_sentence": NextSentence, "acronyms": Acronyms, "title": Titles}


def aligned_head(name: str) -> str:
    """The head of an aligned objective."""
    return f"aligned_{name}"


def build_aligned(name: str, asked: ObjectiveSettings, given: Ingredients) -> Objective:
    """The objective that settings name: hyperlinks, acronyms, next_sentence, or by the recipe of `aligned`."""
    settings = given.settings.aligned
    texts = AlignedTexts(given.packed / ALIGNED_TEXTS)
    common: dict[str, Any] = {
        "batch_size": asked.batch_size or given.settings.train.batch_size,
        "seed": given.seed,
        "head": aligned_head(name),
    }
    tokenizer, network = load_tokenizer(given.packed / "tokenizer"), given.network
    learned = learned_by(asked.kind, settings)
    try:
        if learned == "spans":
            scheme, every_token = settings.span_labels, settings.labelled_tokens == "all"
            spans = texts.spans(MARKUP if asked.kind == "hyperlinks" else FOUND)
            return SpanBoundaries(name, texts, spans, network, scheme=scheme, every_token=every_token, **common)
        if learned == "marked_relation":
            spans = texts.spans(FOUND)
            return MarkedRelation(name, texts, spans, tokenizer, network, marks=settings.marks, **common)
        return _PAIRS[learned](name, texts, tokenizer, network, **common)
    except NothingToMake as error:
        by_markup = asked.kind == "hyperlinks" or settings.spans_from == "markup"
        needs_links = by_markup and learned in ("spans", "marked_relation")
        hint = "rows need a column `links`: [[start, end], ...]" if needs_links else None
        raise InputError(f"{name}: {error}", key="aligned.sources", hint=hint) from None


def learned_by(kind: str, settings: AlignedSettings) -> str:
    """What an objective learns: spans, marked_relation, or one of the pairs."""
    if kind == "hyperlinks":
        return "spans"
    if kind != "aligned":
        return kind
    return settings.pairs_from if settings.recipe == "pair_match" else settings.recipe


def add_aligned_heads(network: Network, settings: Settings) -> None:
    """Give the network a head for each aligned objective of stage 1."""
    for name, one in settings.used_objectives.items():
        if one.kind in ALIGNED_KINDS:
            head = make_head(network, learned_by(one.kind, settings.aligned), settings.aligned)
            network.add_head(aligned_head(name), head, derive(settings.pretrain_seed, "weights", name))


def make_head(network: Network, learned: str, settings: AlignedSettings) -> nn.Module:
    """The architecture's own head for tokens or texts, with as many classes as are learned."""
    config = copy.deepcopy(network.config)
    classes = CLASSES[settings.span_labels] if learned == "spans" else PAIR_CLASSES
    config.id2label = dict(enumerate(classes))
    architecture = network.architecture
    return architecture.token_head(config) if learned == "spans" else architecture.task_head(config)
