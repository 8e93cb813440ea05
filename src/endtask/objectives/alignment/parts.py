"""The objectives that are made from the texts of `aligned.sources`, each with a head of its own."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from torch import nn

from endtask.config import AlignedSettings, ObjectiveSettings, Settings
from endtask.errors import InputError
from endtask.objectives.alignment.acronyms import Acronyms, GuidedAcronyms, words_head
from endtask.objectives.alignment.hyperlinks import CLASSES, SpanBoundaries
from endtask.objectives.alignment.marked_relation import MarkedRelation
from endtask.objectives.alignment.next_sentence import NextSentence
from endtask.objectives.alignment.pairs import FramedPairs, NothingToMake
from endtask.objectives.alignment.titles import Titles
from endtask.objectives.base import BuiltObjective, Objective, objectives
from endtask.tokenization.aligned_texts import FOUND, MARKUP, AlignedTexts
from endtask.tokenization.tokenizer import load_tokenizer

if TYPE_CHECKING:
    from endtask.encoders.network import Network
    from endtask.objectives.context import BuildContext

PAIR_CLASSES = ("no", "yes")
"""The classes of all aligned objectives but spans."""
_PAIRS: dict[str, type[FramedPairs]] = {"next_sentence": NextSentence, "acronyms": Acronyms, "title": Titles}


def aligned_head(name: str) -> str:
    """Return the name of the head of an aligned objective."""
    return f"aligned_{name}"


class AlignedObjective(Objective):
    """Base class: learns spans, marked relations or pairs, made from aligned texts."""

    texts = ("aligned",)
    spans: ClassVar[str] = FOUND
    """Which spans of the texts are learned."""

    def learned(self, settings: AlignedSettings) -> str:
        """Return what is learned: `spans`, `marked_relation`, or a kind of pairs."""
        return self.name

    def heads(self, name: str, network: Network, settings: Settings) -> Iterator[tuple[str, nn.Module]]:
        """Yield the architecture's own heads for tokens or texts, with the classes that are learned."""
        learned, head, architecture = self.learned(settings.aligned), aligned_head(name), network.architecture
        if learned == "spans":
            yield head, architecture.token_head(_config(network, CLASSES[settings.aligned.span_labels]))
            return
        yield head, architecture.task_head(_config(network, PAIR_CLASSES))
        if _is_guided(learned, settings.aligned):
            yield words_head(head), architecture.token_head(_config(network, PAIR_CLASSES))

    def reusable_head(self, name: str, settings: Settings) -> tuple[str, tuple[str, ...], bool]:
        """Return its head, its classes, and whether it reads tokens."""
        spans = self.learned(settings.aligned) == "spans"
        return aligned_head(name), CLASSES[settings.aligned.span_labels] if spans else PAIR_CLASSES, spans

    def build(self, name: str, section: ObjectiveSettings, run: BuildContext) -> BuiltObjective:
        """Return the objective over the aligned texts; raises `InputError` where they hold nothing to learn from."""
        settings = run.settings.aligned
        texts = AlignedTexts(run.packed / "aligned")
        common: dict[str, Any] = {
            "batch_size": section.batch_size or run.settings.pretrain.batch_size,
            "seed": run.seed,
            "head": aligned_head(name),
        }
        tokenizer, network = load_tokenizer(run.packed / "tokenizer"), run.network
        learned = self.learned(settings)
        try:
            if learned == "spans":
                scheme, every_token = settings.span_labels, settings.labelled_tokens == "all"
                spans = texts.spans(self.spans)
                return SpanBoundaries(name, texts, spans, network, scheme=scheme, every_token=every_token, **common)
            if learned == "marked_relation":
                spans = texts.spans(FOUND)
                return MarkedRelation(name, texts, spans, tokenizer, network, markers=settings.entity_markers, **common)
            pairs = GuidedAcronyms if _is_guided(learned, settings) else _PAIRS[learned]
            return pairs(name, texts, tokenizer, network, **common)
        except NothingToMake as error:
            by_markup = self.spans == MARKUP or settings.spans_from == "markup"
            needs_links = by_markup and learned in ("spans", "marked_relation")
            hint = "rows need a column `links`: [[start, end], ...]" if needs_links else None
            raise InputError(f"{name}: {error}", key="aligned.sources", hint=hint) from None


@objectives.register("hyperlinks")
class HyperlinksObjective(AlignedObjective):
    """which words start and end a link"""

    spans = MARKUP

    def learned(self, settings: AlignedSettings) -> str:
        """Return `spans`."""
        return "spans"


@objectives.register("acronyms")
class AcronymsObjective(AlignedObjective):
    """whether some letters are initials of words of a text"""


@objectives.register("next_sentence")
class NextSentenceObjective(AlignedObjective):
    """whether a text follows another"""

    head_is_reused_last = True  # it answers yes and no too, but resembles a task only for lack of anything better


@objectives.register("aligned")
class RecipeObjective(AlignedObjective):
    """what the recipe of the section `aligned` says"""

    def learned(self, settings: AlignedSettings) -> str:
        """Return what the recipe of the section `aligned` names."""
        return settings.pairs_from if settings.recipe == "pair_match" else settings.recipe


def _is_guided(learned: str, settings: AlignedSettings) -> bool:
    return learned == "acronyms" and settings.guide_acronyms


def _config(network: Network, classes: Sequence[str]) -> Any:
    """Return the network's configuration with other classes."""
    config = copy.deepcopy(network.config)
    config.id2label = dict(enumerate(classes))
    return config
