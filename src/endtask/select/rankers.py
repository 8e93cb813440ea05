"""The selectors that rank what was retrieved, by name; each is imported when it is asked for."""

from __future__ import annotations

from pathlib import Path

from endtask.files.selection_table import SelectionFigures
from endtask.select.best_rank import best_rank
from endtask.select.inputs import Inputs, Kept, Order
from endtask.select.ranking import Ranker, Ranking, keep_best


def select_ranked(inputs: Inputs, path: Path) -> Kept:
    """Keep the best by the ranking that the settings name."""
    return keep_best(inputs, path, RANKERS[inputs.settings.selector])


def _best_rank(inputs: Inputs, figures: SelectionFigures) -> Ranking:
    def reasons(places: Order) -> list[str]:
        return [f"best_rank: rank {rank}" for rank in figures.rank[places].tolist()]

    return Ranking(best_rank(figures), figures.score, reasons)


def _influence(inputs: Inputs, figures: SelectionFigures) -> Ranking:
    from endtask.select.influence.rank import rank_by_influence

    return rank_by_influence(inputs, figures)


def _dsir(inputs: Inputs, figures: SelectionFigures) -> Ranking:
    from endtask.select.dsir import rank_dsir

    return rank_dsir(inputs, figures)


def _classifier(inputs: Inputs, figures: SelectionFigures) -> Ranking:
    from endtask.select.classifier import rank_by_classifier

    return rank_by_classifier(inputs, figures)


def _neighbours(inputs: Inputs, figures: SelectionFigures) -> Ranking:
    from endtask.select.neighbours import rank_neighbours

    return rank_neighbours(inputs, figures)


def _fusion(inputs: Inputs, figures: SelectionFigures) -> Ranking:
    from endtask.select.fusion import rank_by_fusion

    return rank_by_fusion(inputs, figures, RANKERS)


RANKERS: dict[str, Ranker] = {
    "best_rank": _best_rank,
    "influence": _influence,
    "dsir": _dsir,
    "classifier": _classifier,
    "neighbours": _neighbours,
    "fusion": _fusion,
}
