"""The selection and the lists of helpful texts against scores that are standardized, averaged and sorted by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.parquet as parquet
import pytest
from numpy.typing import NDArray

from endtask.io.run_layout import HELPFUL
from endtask.records import Example, Selected
from endtask.selectors.influence.scorer import Scorer, score_units
from tests.selectors.influence.small import CANDIDATES, make_runner, run_influence, small_settings

LISTED = 10


@dataclass(frozen=True)
class ByHand:
    """Scores in deviations, and what their columns are."""

    scorer: Scorer
    labels: tuple[str, ...]
    targets: list[Example]
    scores: NDArray[np.float64]  # (candidates, targets)


@pytest.fixture(scope="module")
def by_hand(tmp_path_factory: pytest.TempPathFactory) -> ByHand:
    work = make_runner(tmp_path_factory.mktemp("hand"), small_settings())
    work.fit()
    units = work.units(np.arange(CANDIDATES))
    scorer = Scorer(work.folds, units, memory=1 << 30)
    raw = score_units(scorer, units, np.arange(CANDIDATES)).double().numpy()
    targets = [row for fold in work.folds for row in fold.task.dev]
    return ByHand(scorer, work.task.labels, targets, (raw - raw.mean(0)) / raw.std(0))


@pytest.fixture(scope="module")
def chosen(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Selected], list[dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("chosen")
    _, kept = run_influence(folder, small_settings())
    return sorted(kept, key=lambda item: item.rank), parquet.read_table(folder / "out" / HELPFUL).to_pylist()


def test_the_kept_are_those_of_the_highest_mean_of_ten(
    by_hand: ByHand, chosen: tuple[list[Selected], list[dict[str, Any]]]
) -> None:
    score = np.sort(by_hand.scores, axis=1)[:, -10:].mean(axis=1)
    expected = np.argsort(-score)[:10]
    kept, _ = chosen
    assert [item.document.id for item in kept] == [f"d{place}" for place in expected]
    assert [item.score for item in kept] == pytest.approx(score[expected].tolist(), abs=1e-4)
    for item, place in zip(kept, expected.tolist(), strict=True):
        best = by_hand.targets[int(by_hand.scores[place].argmax())]
        assert f", most helpful for {best.id} (class {best.label}); BM25" in item.reason


def test_the_lists_are_both_ends_of_each_target_and_class(
    by_hand: ByHand, chosen: tuple[list[Selected], list[dict[str, Any]]]
) -> None:
    _, rows = chosen
    columns = {("example", row.id): by_hand.scores[:, place] for place, row in enumerate(by_hand.targets)}
    for label in by_hand.labels:
        members = [place for place, row in enumerate(by_hand.targets) if row.label == label]
        columns["class", label] = by_hand.scores[:, members].mean(axis=1)
    assert {(row["kind"], row["targets"][0]) for row in rows} == columns.keys()
    for (kind, name), scores in columns.items():
        for side, order in (("most", np.argsort(-scores)), ("least", np.argsort(scores))):
            listed = [row for row in rows if (row["kind"], row["targets"], row["side"]) == (kind, [name], side)]
            assert [row["rank"] for row in listed] == list(range(1, LISTED + 1))
            assert [row["passages"] for row in listed] == [[f"d{place}"] for place in order[:LISTED]]
            assert [row["score"] for row in listed] == pytest.approx(scores[order[:LISTED]].tolist(), abs=1e-4)


def test_a_token_costs_what_the_whole_network_takes(by_hand: ByHand) -> None:
    network = by_hand.scorer._models[0].engine.network
    parameters = sum(
        weight.numel() for part in (network.encoder, network.heads["masked_lm"]) for weight in part.parameters()
    )
    vocabulary = network.config.vocab_size * network.config.hidden_size
    models = 2
    assert models * (2 * parameters + 4 * vocabulary) < by_hand.scorer.flops_per_token
    assert by_hand.scorer.flops_per_token < 10 * models * 6 * parameters
