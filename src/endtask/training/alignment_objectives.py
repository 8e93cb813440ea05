"""Aligned objectives as settings name them: how each is made from the texts of `aligned.sources`, and its head."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from torch import nn

from endtask.config import AlignedSettings, ObjectiveSettings, Settings
from endtask.config.objectives import ALIGNED_KINDS
from endtask.encoders.network import Network
from endtask.errors import InputError
from endtask.objectives.alignment.acronyms import Acronyms, GuidedAcronyms, words_head
from endtask.objectives.alignment.hyperlinks import CLASSES, SpanBoundaries
from endtask.objectives.alignment.marked_relation import MarkedRelation
from endtask.objectives.alignment.next_sentence import NextSentence
from endtask.objectives.alignment.pairs import FramedPairs
from endtask.objectives.alignment.stream import NothingToMake
from endtask.objectives.alignment.titles import Titles
from endtask.objectives.base import Objective
from endtask.seeds import derive
from endtask.tokenization.aligned_texts import FOUND, MARKUP, AlignedTexts
from endtask.tokenization.tokenizer import load_tokenizer

if TYPE_CHECKING:
    from endtask.training.objective_builders import Ingredients

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
        "batch_size": asked.batch_size or given.settings.pretrain.batch_size,
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
            return MarkedRelation(name, texts, spans, tokenizer, network, markers=settings.entity_markers, **common)
        pairs = GuidedAcronyms if _is_guided(learned, settings) else _PAIRS[learned]
        return pairs(name, texts, tokenizer, network, **common)
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


def _is_guided(learned: str, settings: AlignedSettings) -> bool:
    return learned == "acronyms" and settings.guide_acronyms


def add_aligned_heads(network: Network, settings: Settings) -> None:
    """Give the network a head for each aligned objective of pre-training."""
    for name, one in settings.used_objectives.items():
        if one.kind in ALIGNED_KINDS:
            for head, made in make_heads(network, name, learned_by(one.kind, settings.aligned), settings.aligned):
                network.add_head(head, made, derive(settings.pretrain_seed, "weights", name))


def make_heads(network: Network, name: str, learned: str, settings: AlignedSettings) -> Iterator[tuple[str, nn.Module]]:
    """The architecture's own heads for tokens or texts by their names, with as many classes as are learned."""
    head, architecture = aligned_head(name), network.architecture
    if learned == "spans":
        yield head, architecture.token_head(_config(network, CLASSES[settings.span_labels]))
        return
    yield head, architecture.task_head(_config(network, PAIR_CLASSES))
    if _is_guided(learned, settings):
        yield words_head(head), architecture.token_head(_config(network, PAIR_CLASSES))


def _config(network: Network, classes: Sequence[str]) -> Any:
    """The network's, with other classes."""
    config = copy.deepcopy(network.config)
    config.id2label = dict(enumerate(classes))
    return config
