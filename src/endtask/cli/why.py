"""`endtask why`."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from endtask.cli.options import JsonOption, examples
from endtask.errors import InputError
from endtask.reporting.format import plural

if TYPE_CHECKING:
    from endtask.retrieval.provenance import (
        MatchedPassage,
        MatchedQuery,
        QueryExample,
        QueryWord,
        WhyExample,
        WhyPassage,
        WordScore,
    )
    from endtask.selectors.influence.score_targets import HelpfulPassage, WhyHelpful

NAME = "why"
EXAMPLES = examples(
    "endtask why runs/chemprot abstracts/10072510",
    "endtask why runs/chemprot abstracts/10072510 --top 1 --json",
    "endtask why runs/chemprot --example train-17",
    "endtask why runs/chemprot --class INHIBITOR      # where select.name was influence",
)
_TEXT_CHARACTERS, _QUERY_CHARACTERS = 600, 240
_WORDS_SHOWN, _WORDS_IN_LINE = 15, 8


def command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run's folder.")],
    passage: Annotated[str | None, typer.Argument(metavar="DOC_ID", help="A passage's id, as in the tables.")] = None,
    example: Annotated[
        str | None,
        typer.Option("--example", metavar="ID", help="Explain what this example asked for, and what helps it."),
    ] = None,
    label: Annotated[
        str | None, typer.Option("--class", metavar="NAME", help="Show the texts that help this class most and least.")
    ] = None,
    top: Annotated[
        int | None,
        typer.Option("--top", metavar="NUMBER", min=1, help="Askers [3], or passages [10], that are explained."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say why a passage was found: who asked for it, with which words, and what each word weighs.

    With --example, the other way round: the words of an example and the kept passages that it asked for. Where
    gradients chose (select.name: influence), also the texts that help it most and least; --class shows a class's.
    """
    if [passage, example, label].count(None) != 2:
        raise InputError("give the id of a passage, --example ID or --class NAME, one of them")
    if passage is not None:
        found, lines = _why_passage(run, passage, top)
    elif example is not None:
        found, lines = _why_example(run, example, top)
    else:
        found, lines = _why_class(run, str(label), top)
    # Escaped beyond ASCII, as texts may hold characters that command the terminal.
    print(json.dumps(found) if as_json else "\n".join(lines))


def _why_passage(run: Path, passage: str, top: int | None) -> tuple[dict[str, Any], Iterator[str]]:
    from endtask.retrieval.provenance import why_passage

    found = why_passage(run, passage, top=top or 3)
    return asdict(found), _passage_lines(found)


def _why_example(run: Path, example: str, top: int | None) -> tuple[dict[str, Any], Iterator[str]]:
    """What it asked for, and what helps it; dev rows ask for nothing, but may be helped."""
    from endtask.retrieval.provenance import why_example
    from endtask.selectors.influence.score_targets import lists_helpful, why_example_is_helped

    helped = why_example_is_helped(run, example, top=top or 5)
    if helped is None:
        found = why_example(run, example, top=top or 10)
        unasked = ["", f"what helps it is not on record: {_plain(example)} is no target of the selection"]
        return asdict(found), chain(_example_lines(found), unasked if lists_helpful(run) else [])
    if helped.split == "dev":
        return {"helped": asdict(helped)}, _helped_lines(helped)
    found = why_example(run, example, top=top or 10)
    return {**asdict(found), "helped": asdict(helped)}, chain(_example_lines(found), [""], _helped_lines(helped))


def _why_class(run: Path, label: str, top: int | None) -> tuple[dict[str, Any], Iterator[str]]:
    from endtask.selectors.influence.score_targets import why_class_is_helped

    found = why_class_is_helped(run, label, top=top or 5)
    return {"helped": asdict(found)}, _helped_lines(found)


def _helped_lines(found: WhyHelpful) -> Iterator[str]:
    whom = f"{found.kind} {_plain(found.name)}"
    if found.split == "dev":
        yield f"{_plain(found.name)} [{_plain(str(found.label))}]"
        yield f"text: {_short(str(found.text), _QUERY_CHARACTERS)}"
    if len(found.targets) > 1:
        yield f"one of {len(found.targets)} rows that were judged together: {', '.join(map(_plain, found.targets))}"
    for side, passages in (("most", found.most), ("least", found.least)):
        yield f"{side} helpful for {whom}, in deviations from the usual candidate:"
        for number, passage in enumerate(passages, start=1):
            yield from _helpful_lines(number, passage)


def _helpful_lines(number: int, passage: HelpfulPassage) -> Iterator[str]:
    kept = "not kept" if passage.reason is None else f"kept ({_plain(passage.reason)})"
    yield f"{number}. {_plain(passage.id)}: {passage.score:+.2f}, {kept}"
    yield f"   {_origin(passage)}"
    yield f"   {_short(passage.text, _QUERY_CHARACTERS)}"


def _passage_lines(found: WhyPassage) -> Iterator[str]:
    yield f"{_plain(found.id)}: {'kept' if found.kept else 'retrieved only, not kept'} ({_plain(found.reason)})"
    yield _origin(found)
    if found.matched_queries:
        asked = "1 example" if found.matched_count == 1 else f"{found.matched_count:,} examples"
        best = ", ".join(map(_plain, found.matched_queries))
        yield f"best rank {found.rank:,}, score {found.score:.4f}; {asked} asked, best first: {best}"
    else:
        yield "no example asked for it"
    yield f"text: {_short(found.text, _TEXT_CHARACTERS)}"
    for number, matched_query in enumerate(found.query_matches, start=1):
        yield ""
        yield from _matched_query_lines(number, matched_query)


def _matched_query_lines(number: int, matched_query: MatchedQuery) -> Iterator[str]:
    yield f"{number}. {', '.join(map(_name, matched_query.examples))}: score {matched_query.score:.4f}"
    yield f"   {_asked_with(matched_query.examples[0])}"
    yield f"{'part':>10} {'share':>6} {'idf':>8} {'in passage':>11} {'in example':>11}  word"
    for one in matched_query.words[:_WORDS_SHOWN]:
        share = one.part / matched_query.score if matched_query.score else 0.0
        yield f"{one.part:10.4f} {share:6.1%} {one.idf:8.4f} {one.in_passage:11} {one.in_query:11}  {_plain(one.word)}"
    if rest := matched_query.words[_WORDS_SHOWN:]:
        part = sum(one.part for one in rest)
        yield f"{part:10.4f} {part / matched_query.score:6.1%}  of {plural(len(rest), 'more word')}"


def _example_lines(found: WhyExample) -> Iterator[str]:
    yield _name(found.example)
    yield f"text: {_asked_with(found.example)}"
    if not found.words:
        yield "asked for nothing: the corpus holds no word of it"
        return
    yield from _query_lines(found.words)
    if found.unknown_words:
        yield f"in no passage: {_short(', '.join(found.unknown_words), _QUERY_CHARACTERS)}"
    yield ""
    statistics = f"{found.retrieved_count:,} retrieved, {found.kept_count:,} kept"
    yield f"passages it asked for, as far as on record (the 20 best askers of each): {statistics}"
    for number, passage in enumerate(found.passages, start=1):
        yield from _asked_lines(number, passage)


def _query_lines(words: tuple[QueryWord, ...]) -> Iterator[str]:
    yield f"{'idf':>10} {'passages':>10} {'in example':>11}  word"
    for one in words[:_WORDS_SHOWN]:
        yield f"{one.idf:10.4f} {one.document_frequency:10,} {one.in_query:11}  {_plain(one.word)}"
    if len(words) > _WORDS_SHOWN:
        yield f"           and {plural(len(words) - _WORDS_SHOWN, 'more word')}"


def _asked_lines(number: int, passage: MatchedPassage) -> Iterator[str]:
    yield f"{number}. {_plain(passage.id)}: score {passage.score:.4f}"
    yield f"   {_origin(passage)}"
    yield f"   {_short(passage.text, _QUERY_CHARACTERS)}"
    yield f"   {_word_line(passage.words)}"


def _word_line(words: tuple[WordScore, ...]) -> str:
    shown = [f"{_plain(one.word)} {one.part:.4f}" for one in words[:_WORDS_IN_LINE]]
    more = [f"{len(words) - len(shown)} more"] if len(words) > len(shown) else []
    return f"words: {', '.join([*shown, *more])}"


def _origin(passage: WhyPassage | MatchedPassage | HelpfulPassage) -> str:
    known = [("source", passage.source), ("title", passage.title), ("license", passage.license or "unknown")]
    return "; ".join(f"{name}: {_short(value, _QUERY_CHARACTERS)}" for name, value in known if value)


def _name(example: QueryExample) -> str:
    return _plain(example.id) if example.label is None else f"{_plain(example.id)} [{_plain(str(example.label))}]"


def _asked_with(example: QueryExample) -> str:
    return "(an unlabelled text)" if example.text is None else _short(example.text, _QUERY_CHARACTERS)


def _short(text: str, characters: int) -> str:
    from endtask.reporting.format import shorten

    return shorten(_plain(text), characters)


def _plain(text: str) -> str:
    """The text without characters that command a terminal, turn the direction of writing or cannot be printed.

    >>> _plain("red: \\x1b[31m, two\\nlines")
    'red:  [31m, two lines'
    """
    replaced = {"Cc": " ", "Cf": "", "Cs": ""}
    return "".join(replaced.get(unicodedata.category(character), character) for character in text)
