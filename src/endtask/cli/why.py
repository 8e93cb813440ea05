"""`endtask why`."""

from __future__ import annotations

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
from endtask.terminal import print_json, print_lines

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
    from endtask.selectors.influence.helpful import HelpfulPassage, WhyHelpful

NAME = "why"
EXAMPLES = examples(
    "endtask why runs/chemprot abstracts/10072510",
    "endtask why runs/chemprot abstracts/10072510 --top 1 --json",
    "endtask why runs/chemprot --example train-17",
    "endtask why runs/chemprot --class INHIBITOR      # with the selector influence",
)
_TEXT_CHARACTERS, _QUERY_CHARACTERS = 600, 240
_MOST_WORDS, _MOST_WORDS_IN_LINE = 15, 8


def command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run's folder.")],
    passage: Annotated[str | None, typer.Argument(metavar="DOC_ID", help="A passage's id, as in the tables.")] = None,
    example: Annotated[
        str | None,
        typer.Option("--example", metavar="ID", help="Explain this example's query, its passages and what helps it."),
    ] = None,
    label: Annotated[
        str | None, typer.Option("--class", metavar="NAME", help="Show the texts that help this class most and least.")
    ] = None,
    top: Annotated[
        int | None,
        typer.Option("--top", metavar="NUMBER", min=1, help="Number of queries [3] or passages [10] to explain."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Explain why a passage was retrieved: its matched queries, the words they share, and the score of each word.

    With --example, explain the query of an example and the selected passages that it matches. The selector influence
    also lists the texts that help an example most and least; --class shows those of a class.
    """
    if [passage, example, label].count(None) != 2:
        raise InputError("give exactly one of the id of a passage, --example ID and --class NAME")
    if passage is not None:
        explanation, lines = _why_passage(run, passage, top)
    elif example is not None:
        explanation, lines = _why_example(run, example, top)
    else:
        explanation, lines = _why_class(run, str(label), top)
    print_json(explanation) if as_json else print_lines(*lines)


def _why_passage(run: Path, passage: str, top: int | None) -> tuple[dict[str, Any], Iterator[str]]:
    from endtask.retrieval.provenance import why_passage

    explanation = why_passage(run, passage, top=top or 3)
    return asdict(explanation), _passage_lines(explanation)


def _why_example(run: Path, example: str, top: int | None) -> tuple[dict[str, Any], Iterator[str]]:
    """Explain the query of an example and list its helpful texts; a dev row has no query."""
    from endtask.retrieval.provenance import why_example
    from endtask.selectors.influence.helpful import lists_helpful, why_example_is_helped

    helped = why_example_is_helped(run, example, top=top or 5)
    if helped is None:
        query = why_example(run, example, top=top or 10)
        no_target = ["", f"no helpful texts are recorded: {_plain(example)} is not a target of the selection"]
        return asdict(query), chain(_example_lines(query), no_target if lists_helpful(run) else [])
    if helped.split == "dev":
        return {"helped": asdict(helped)}, _helped_lines(helped)
    query = why_example(run, example, top=top or 10)
    return {**asdict(query), "helped": asdict(helped)}, chain(_example_lines(query), [""], _helped_lines(helped))


def _why_class(run: Path, label: str, top: int | None) -> tuple[dict[str, Any], Iterator[str]]:
    from endtask.selectors.influence.helpful import why_class_is_helped

    helped = why_class_is_helped(run, label, top=top or 5)
    return {"helped": asdict(helped)}, _helped_lines(helped)


def _helped_lines(helped: WhyHelpful) -> Iterator[str]:
    target = f"{helped.kind} {_plain(helped.name)}"
    if helped.split == "dev":
        yield f"{_plain(helped.name)} [{_plain(str(helped.label))}]"
        yield f"text: {_short(str(helped.text), _QUERY_CHARACTERS)}"
    if len(helped.targets) > 1:
        yield f"one of {len(helped.targets)} rows that were scored together: {', '.join(map(_plain, helped.targets))}"
    for side, passages in (("most", helped.most), ("least", helped.least)):
        yield f"{side} helpful for {target}, in standard deviations from the mean candidate:"
        for number, passage in enumerate(passages, start=1):
            yield from _helpful_lines(number, passage)


def _helpful_lines(number: int, passage: HelpfulPassage) -> Iterator[str]:
    selected = "not selected" if passage.reason is None else f"selected ({_plain(passage.reason)})"
    yield f"{number}. {_plain(passage.id)}: {passage.score:+.2f}, {selected}"
    yield f"   {_origin(passage)}"
    yield f"   {_short(passage.text, _QUERY_CHARACTERS)}"


def _passage_lines(passage: WhyPassage) -> Iterator[str]:
    state = "selected" if passage.selected else "retrieved but not selected"
    yield f"{_plain(passage.id)}: {state} ({_plain(passage.reason)})"
    yield _origin(passage)
    if passage.matched_queries:
        queries = plural(passage.matched_count, "example")
        best = ", ".join(map(_plain, passage.matched_queries))
        yield f"best rank {passage.rank:,}, score {passage.score:.4f}; matched by {queries}, best first: {best}"
    else:
        yield "matched by no example"
    yield f"text: {_short(passage.text, _TEXT_CHARACTERS)}"
    for number, matched_query in enumerate(passage.explained_queries, start=1):
        yield ""
        yield from _matched_query_lines(number, matched_query)


def _matched_query_lines(number: int, matched_query: MatchedQuery) -> Iterator[str]:
    yield f"{number}. {', '.join(map(_name, matched_query.examples))}: score {matched_query.score:.4f}"
    yield f"   {_query_text(matched_query.examples[0])}"
    yield f"{'score':>10} {'share':>6} {'idf':>8} {'in passage':>11} {'in example':>11}  word"
    for word in matched_query.words[:_MOST_WORDS]:
        share = word.score / matched_query.score if matched_query.score else 0.0
        counts = f"{word.in_passage:11} {word.in_query:11}"
        yield f"{word.score:10.4f} {share:6.1%} {word.idf:8.4f} {counts}  {_plain(word.word)}"
    if others := matched_query.words[_MOST_WORDS:]:
        score = sum(word.score for word in others)
        yield f"{score:10.4f} {score / matched_query.score:6.1%}  of {plural(len(others), 'more word')}"


def _example_lines(query: WhyExample) -> Iterator[str]:
    yield _name(query.example)
    yield f"text: {_query_text(query.example)}"
    if not query.words:
        yield "matches nothing: no word of it occurs in the corpus"
        return
    yield from _query_lines(query.words)
    if query.unknown_words:
        yield f"in no passage: {_short(', '.join(query.unknown_words), _QUERY_CHARACTERS)}"
    yield ""
    counts = f"{query.retrieved_count:,} retrieved, {query.selected_count:,} selected"
    yield f"passages with this example among their 20 best queries: {counts}"
    for number, passage in enumerate(query.passages, start=1):
        yield from _matched_passage_lines(number, passage)


def _query_lines(words: tuple[QueryWord, ...]) -> Iterator[str]:
    yield f"{'idf':>10} {'passages':>10} {'in example':>11}  word"
    for word in words[:_MOST_WORDS]:
        yield f"{word.idf:10.4f} {word.document_frequency:10,} {word.in_query:11}  {_plain(word.word)}"
    if len(words) > _MOST_WORDS:
        yield f"           and {plural(len(words) - _MOST_WORDS, 'more word')}"


def _matched_passage_lines(number: int, passage: MatchedPassage) -> Iterator[str]:
    yield f"{number}. {_plain(passage.id)}: score {passage.score:.4f}"
    yield f"   {_origin(passage)}"
    yield f"   {_short(passage.text, _QUERY_CHARACTERS)}"
    yield f"   {_word_line(passage.words)}"


def _word_line(words: tuple[WordScore, ...]) -> str:
    shown = [f"{_plain(word.word)} {word.score:.4f}" for word in words[:_MOST_WORDS_IN_LINE]]
    more = [f"{len(words) - len(shown)} more"] if len(words) > len(shown) else []
    return f"words: {', '.join([*shown, *more])}"


def _origin(passage: WhyPassage | MatchedPassage | HelpfulPassage) -> str:
    known = [("source", passage.source), ("title", passage.title), ("license", passage.license or "unknown")]
    return "; ".join(f"{name}: {_short(value, _QUERY_CHARACTERS)}" for name, value in known if value)


def _name(example: QueryExample) -> str:
    return f"{_plain(example.id)} [{_plain(str(example.label))}]"


def _query_text(example: QueryExample) -> str:
    return _short(example.text, _QUERY_CHARACTERS)


def _short(text: str, characters: int) -> str:
    from endtask.reporting.format import shorten

    return shorten(_plain(text), characters)


def _plain(text: str) -> str:
    """Return the text without characters that control a terminal, change the writing direction or cannot be printed.

    >>> _plain("red: \\x1b[31m, two\\nlines")
    'red:  [31m, two lines'
    """
    replaced = {"Cc": " ", "Cf": "", "Cs": ""}
    return "".join(replaced.get(unicodedata.category(character), character) for character in text)
