"""What is kept and listed, against the scores themselves: standardised, averaged and ordered by hand."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as parquet
import pytest
import torch
from numpy.typing import NDArray

from endtask.files.run_layout import HELPFUL
from endtask.gradients.losses import task_losses
from endtask.records import Example, Selected
from endtask.select.influence.fit import Fold
from endtask.select.influence.greedy import match, unit_length
from endtask.select.influence.scorer import Scorer
from endtask.select.influence.shards import score_units
from tests.select.influence.small import CANDIDATES, make_work, run_influence, small_settings

LISTED = 10


@dataclass(frozen=True)
class ByHand:
    """Scores in deviations, what their columns are, and greedy's picks."""

    scorer: Scorer
    labels: tuple[str, ...]
    targets: list[Example]
    scores: NDArray[np.float64]  # (candidates, targets)
    picks: list[int]


@pytest.fixture(scope="module")
def by_hand(tmp_path_factory: pytest.TempPathFactory) -> ByHand:
    work = make_work(tmp_path_factory.mktemp("hand"), small_settings({"choice": "greedy"}))
    work.fit()
    units = work.units(np.arange(CANDIDATES))
    scorer = Scorer(work.folds, units, memory=1 << 30)
    found, sketches = score_units(scorer, units, np.arange(CANDIDATES))
    assert sketches is not None
    raw = found.double().numpy()
    picks = match(sketches, scorer.class_sketches(), 10).tolist()
    targets = [row for fold in work.folds for row in fold.task.dev]
    return ByHand(scorer, work.task.labels, targets, (raw - raw.mean(0)) / raw.std(0), picks)


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
            assert [row["place"] for row in listed] == list(range(1, LISTED + 1))
            assert [row["passages"] for row in listed] == [[f"d{place}"] for place in order[:LISTED]]
            assert [row["score"] for row in listed] == pytest.approx(scores[order[:LISTED]].tolist(), abs=1e-4)


def test_greedy_keeps_what_matching_picks(
    by_hand: ByHand, chosen: tuple[list[Selected], list[dict[str, Any]]], tmp_path: Path
) -> None:
    _, kept = run_influence(tmp_path, small_settings({"choice": "greedy"}))
    in_order = [item.document.id for item in sorted(kept, key=lambda item: item.rank)]
    assert in_order == [f"d{place}" for place in by_hand.picks]
    assert set(in_order) != {item.document.id for item in chosen[0]}


def test_by_cosine_greedy_hears_every_target_of_a_class_alike(by_hand: ByHand) -> None:
    work_targets = iter(by_hand.targets)
    for (judge,) in by_hand.scorer._judges:
        fold = [next(work_targets) for _ in range(judge.targets.units.count)]
        numbers = np.asarray([by_hand.labels.index(str(row.label)) for row in fold])
        vectors = torch.zeros(len(fold), by_hand.scorer._own.greedy_size)
        asked = fold_of(by_hand, fold).answers(judge.engine.network)
        for places, prepared in by_hand.scorer.reader.targets(asked):
            vectors[places] = unit_length(judge.sketches.of(prepared.gradients(judge.engine, task_losses)))
        expected = torch.stack([vectors[numbers == number].mean(0) for number in range(len(by_hand.labels))])
        assert judge.class_sketches is not None
        assert torch.allclose(judge.class_sketches, expected, atol=1e-5)


def fold_of(by_hand: ByHand, rows: list[Example]) -> Fold:
    return next(one for one in by_hand.scorer.folds if [row.id for row in one.task.dev] == [row.id for row in rows])


def test_a_token_costs_what_the_whole_network_takes(by_hand: ByHand) -> None:
    network = by_hand.scorer._judges[0][0].engine.network
    parameters = sum(
        weight.numel() for part in (network.body, network.heads["masked_lm"]) for weight in part.parameters()
    )
    vocabulary = network.config.vocab_size * network.config.hidden_size
    models = 2
    assert models * (2 * parameters + 4 * vocabulary) < by_hand.scorer.flops_per_token
    assert by_hand.scorer.flops_per_token < 10 * models * 6 * parameters
