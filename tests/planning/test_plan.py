"""`endtask plan`: stages with costs for the user's settings, at other sizes, with other prices."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from endtask.errors import InputError
from endtask.planning import plan as planning
from endtask.planning.measured import Rates
from endtask.planning.prices import example_prices, read_prices
from endtask.planning.simulator import PassCost
from tests.conftest import Answer

Command = Callable[..., Answer]
RATES = Rates((0.5, 6e-8), (3e-9, 1e-7), (4e-8, 2e-8), (2e-7, 5e-8), 0.25, 0.7)


@pytest.fixture
def settings(toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A settings file of the toy task; the machine is not measured."""
    from tests.toy_run import toy_settings

    monkeypatch.setattr(planning, "calibrate", lambda *_: (RATES, 0.4))
    path = tmp_path / "settings.json"
    path.write_text(json.dumps(toy_settings(toy, tmp_path / "run", budget="60s")), encoding="utf-8")
    return path


def planned(command: Command, *arguments: str | Path) -> dict[str, Any]:
    answer = command("plan", *map(str, arguments), "--json")
    assert answer.code == 0, answer.err
    tree: dict[str, Any] = json.loads(answer.out)
    return tree


def test_a_plan_at_another_size(settings: Path, tmp_path: Path, command: Command) -> None:
    small = planned(command, settings, "--size", "1GB", "--queries", "1000", "--cores", "8")
    large = planned(command, settings, "--size", "8GB", "--queries", "1000", "--cores", "8", "--machines", "4")
    assert large["corpus"]["passages"] == pytest.approx(8 * small["corpus"]["passages"])
    of_small, of_large = ({stage["name"]: stage for stage in tree["stages"]} for tree in (small, large))
    assert of_large["fetching"]["seconds"] == pytest.approx(2 * of_small["fetching"]["seconds"], rel=0.1)
    assert of_large["train"]["seconds"] >= 60
    assert of_large["train"]["machines"] == 1
    assert large["total"]["seconds"] == pytest.approx(sum(stage["seconds"] for stage in large["stages"]))
    assert not (tmp_path / "run").exists()


def test_the_users_prices(settings: Path, tmp_path: Path, command: Command) -> None:
    prices = example_prices().model_dump(mode="json")
    file = tmp_path / "prices.yaml"
    file.write_text(yaml.safe_dump({**prices, "core_hour": 10 * prices["core_hour"], "currency": "EUR"}))
    cheap, dear = planned(command, settings), planned(command, settings, "--prices", file)
    assert dear["stages"][0]["money"] == pytest.approx(10 * cheap["stages"][0]["money"])
    assert "EUR" in command("plan", str(settings), "--prices", str(file)).out


def test_price_of_an_hour() -> None:
    prices = example_prices()
    cost = PassCost("ranking", seconds=3600, machines=3, transferred=0)
    assert prices.cost(cost, cores=16) == pytest.approx(3 * 16 * prices.core_hour)
    assert prices.cost(cost, cores=16, gpus=2) == pytest.approx(3 * 2 * prices.gpu_hour)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"core_houre": 1}, "key 'core_houre': unknown price .did you mean 'core_hour'"),
        ({"core_hour": -1}, "key 'core_hour': input should be greater"),
        ({"date": "yesterday"}, "key 'date': "),
    ],
)
def test_wrong_prices(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text(yaml.safe_dump({**example_prices().model_dump(mode="json"), **change}))
    with pytest.raises(InputError, match=message):
        read_prices(path)


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        (["--size", "160"], "--size"),
        (["--size", "-1GB"], "--size"),
        (["--size", "nanGB"], "--size"),
        (["--machines", "0"], "--machines"),
        (["--queries", "-3"], "--queries"),
    ],
)
def test_wrong_arguments(arguments: list[str], key: str, command: Command) -> None:
    answer = command("plan", "settings.yaml", *arguments)
    assert (answer.code, key in answer.err, answer.err.count("\n")) == (2, True, 1)


def test_a_run_without_retrieval_has_no_size(settings: Path, command: Command) -> None:
    answer = command("plan", str(settings), "--set", "select.name=none", "--size", "1GB")
    assert answer.code == 2
    assert "--size" in answer.err
    assert [stage["name"] for stage in planned(command, settings, "--set", "select.name=none")["stages"]] == ["train"]
