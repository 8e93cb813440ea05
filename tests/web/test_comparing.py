"""Two runs compared by the paired test."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from endtask.errors import InputError
from endtask.evaluation.significance import metric_permutation
from endtask.experiments import two_runs
from endtask.experiments.trial_results import TrialResult
from endtask.experiments.two_runs import compare_two
from tests.web.conftest import client_of


def test_the_p_value_is_that_of_the_paired_test(finished_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second run answers some rows otherwise; the oracle is the permutation test on the same answers."""
    original, calls = two_runs._result, []

    def worse(folder: Path, rows: object) -> TrialResult:
        result = original(folder, rows)  # type: ignore[arg-type]
        calls.append(result)
        if len(calls) == 1:
            return result
        predicted = result.predicted.copy()
        predicted[:, :8] = (predicted[:, :8] + 1) % 3
        return TrialResult(result.seed, result.finetune_seeds, result.dev, predicted, result.cost)

    monkeypatch.setattr(two_runs, "_result", worse)
    found = compare_two(finished_run, finished_run)
    rows, _ = two_runs._rows(finished_run)
    changed = calls[0].predicted.copy()
    changed[:, :8] = (changed[:, :8] + 1) % 3
    expected = metric_permutation(
        changed[None], calls[0].predicted[None], rows.truth, rows.measure, groups=rows.groups, permutations=10_000
    )
    difference = found.scores[1].difference
    assert difference is not None
    assert difference.p_value == expected < 1
    assert difference.mean == pytest.approx(found.scores[1].mean - found.scores[0].mean)
    assert found.rows == len(rows.ids) == 18


def test_equal_runs_do_not_differ(client: TestClient, finished_run: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        shutil.copytree(finished_run, tmp_path / name)
    with client_of(tmp_path) as own:
        found = own.get("/api/compare", params={"run": ["one", "two"]}).json()
        page = own.get("/compare", params={"run": ["one", "two"]}).text
        table = own.get("/").text
    assert (found["difference"]["mean"], found["difference"]["p_value"], found["difference"]["clear"]) == (0, 1, False)
    assert found["changes"] == []
    assert "No clear difference" in page
    assert table.count('name="run"') == 2


def test_runs_of_other_tasks_are_refused(finished_run: Path, finished_pair_run: Path) -> None:
    with pytest.raises(InputError, match="not scored on the same rows"):
        compare_two(finished_run, finished_pair_run)


@pytest.mark.parametrize("runs", [[], ["run"], ["run", "run", "run"], ["run", "nothing"]])
def test_two_known_runs_are_needed(client: TestClient, runs: list[str]) -> None:
    assert client.get("/api/compare", params={"run": runs}).status_code in (404, 422)
