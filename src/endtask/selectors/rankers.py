"""The selectors that rank what was retrieved, by name; each is imported when it is asked for."""

from __future__ import annotations

from pathlib import Path

from endtask.io.selection_table import SelectionStatistics
from endtask.selectors.best_rank import best_rank
from endtask.selectors.inputs import Inputs, Kept, Order
from endtask.selectors.ranking import Ranker, Ranking, keep_best


def select_ranked(inputs: Inputs, path: Path) -> Kept:
    """Keep the best by the ranking that the settings name."""
    return keep_best(inputs, path, RANKERS[inputs.settings.selector])


def _best_rank(inputs: Inputs, statistics: SelectionStatistics) -> Ranking:
    def reasons(places: Order) -> list[str]:
        return [f"best_rank: rank {rank}" for rank in statistics.rank[places].tolist()]

    return Ranking(best_rank(statistics), statistics.score, reasons)


def _influence(inputs: Inputs, statistics: SelectionStatistics) -> Ranking:
    from endtask.selectors.influence.rank import rank_by_influence

    return rank_by_influence(inputs, statistics)


def _dsir(inputs: Inputs, statistics: SelectionStatistics) -> Ranking:
    from endtask.selectors.dsir import rank_dsir

    return rank_dsir(inputs, statistics)


def _classifier(inputs: Inputs, statistics: SelectionStatistics) -> Ranking:
    from endtask.selectors.classifier import rank_by_classifier

    return rank_by_classifier(inputs, statistics)


def _neighbors(inputs: Inputs, statistics: SelectionStatistics) -> Ranking:
    from endtask.selectors.nearest_neighbors import rank_neighbors

    return rank_neighbors(inputs, statistics)


def _fusion(inputs: Inputs, statistics: SelectionStatistics) -> Ranking:
    from endtask.selectors.fusion import rank_by_fusion

    return rank_by_fusion(inputs, statistics, RANKERS)


RANKERS: dict[str, Ranker] = {
    "best_rank": _best_rank,
    "influence": _influence,
    "dsir": _dsir,
    "classifier": _classifier,
    "neighbors": _neighbors,
    "fusion": _fusion,
}
