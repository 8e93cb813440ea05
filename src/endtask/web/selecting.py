"""The API for the selection of a run: search, why a text is in it, and exclusions."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, StringConstraints

from endtask.pipeline.exclusions import change_exclusions, excluded_ids
from endtask.reporting.passage_search import PassageFilter, search_passages
from endtask.reporting.run_folder import RunFolder
from endtask.reporting.selection import MatchedPair
from endtask.retrieval.provenance import why_passage
from endtask.web.problems import PROBLEMS
from endtask.web.site import RunHere

router = APIRouter(prefix="/api", tags=["selection"], responses=PROBLEMS)
MOST_AT_ONCE, LAST_OFFSET = 50, 10_000
_MOST_WORDS, _SHOWN_WORDS = 20, 12
Id = Annotated[str, StringConstraints(min_length=1, max_length=500)]
ShortText = Annotated[str, Query(max_length=300)]


class Span(BaseModel):
    """A part of a text; `marked` if it is a distinctive word that passage and query share."""

    text: str
    marked: bool


class Passage(BaseModel):
    """A selected passage and the train text whose query ranked it best; without queries, `reason` says why."""

    id: str
    source: str
    title: str | None
    text: list[Span]
    rank: int
    score: float
    matched: int
    query_id: str
    query: list[Span]
    label: str
    reason: str
    near_copy: bool
    excluded: bool


class Passages(BaseModel):
    """How many passages are selected and pass the filter, and a page of them, best rank first."""

    total: int
    matching: int
    passages: list[Passage]


class Word(BaseModel):
    """A word that passage and query share, and its part of the score."""

    word: str
    score: float


class MatchedQuery(BaseModel):
    """A train text whose query retrieved the passage, its BM25 score, and the words that gave it."""

    id: str
    label: str
    text: str
    score: float
    words: list[Word]


class Why(BaseModel):
    """Why a passage is in the selection: the best queries that retrieved it, best first."""

    id: str
    selected: bool
    reason: str
    matched: int
    queries: list[MatchedQuery]


class Exclusion(BaseModel):
    """Passages or documents to exclude from the corpus, or to take back with `exclude` false."""

    model_config = ConfigDict(extra="forbid")

    ids: Annotated[list[Id], Field(min_length=1, max_length=1000)]
    exclude: bool = True


class Excluded(BaseModel):
    """All ids in `corpus.exclude`; the run follows them once it is redone from the stage `retrieve`."""

    excluded: list[str]


@router.get("/runs/{run}/passages")
def passages(
    run: str,
    folder: RunHere,
    words: ShortText = "",
    source: ShortText = "",
    label: ShortText = "",
    least_score: FiniteFloat | None = None,
    offset: Annotated[int, Query(ge=0, le=LAST_OFFSET)] = 0,
    limit: Annotated[int, Query(ge=1, le=MOST_AT_ONCE)] = 20,
) -> Passages:
    """Search the selection by words, source, class of the best query and score."""
    wanted = PassageFilter(tuple(words.split()[:_MOST_WORDS]), source, label, least_score)
    found = search_passages(RunFolder(folder), wanted, offset=offset, limit=limit)
    excluded = set(excluded_ids(folder))
    shown = [_passage(pair, excluded) for pair in found.pairs]
    return Passages(total=found.total, matching=found.matching, passages=shown)


@router.get("/runs/{run}/why")
def why(run: str, folder: RunHere, passage: Annotated[str, Query(min_length=1, max_length=500)]) -> Why:
    """Explain why a passage was retrieved, as `endtask why` does."""
    found = why_passage(folder, passage)
    queries = [
        MatchedQuery(
            id=query.examples[0].id,
            label=str(query.examples[0].label),
            text=query.examples[0].text,
            score=query.score,
            words=[Word(word=word.word, score=word.score) for word in query.words[:_SHOWN_WORDS]],
        )
        for query in found.explained_queries
    ]
    return Why(id=found.id, selected=found.selected, reason=found.reason, matched=found.matched_count, queries=queries)


@router.post("/runs/{run}/exclude")
def exclude(run: str, request: Exclusion, folder: RunHere) -> Excluded:
    """Write ids into `corpus.exclude` of the run's settings, or take them out."""
    return Excluded(excluded=list(change_exclusions(folder, request.ids, exclude=request.exclude)))


def _passage(pair: MatchedPair, excluded: set[str]) -> Passage:
    def spans(parts: Any) -> list[Span]:
        return [Span(text=part.text, marked=part.highlighted) for part in parts]

    return Passage(
        id=pair.passage_id,
        source=pair.source,
        title=pair.title,
        text=spans(pair.passage),
        rank=pair.rank,
        score=pair.score,
        matched=pair.matched_count,
        query_id=pair.example_id,
        query=spans(pair.example),
        label=pair.label,
        reason=pair.reason,
        near_copy=pair.is_copy,
        excluded=pair.passage_id in excluded,
    )
