"""The file of a comparison: what it may say, and each way to say it wrongly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from endtask.compare.comparison import Comparison, check_comparison, read_comparison
from endtask.compare.flags import with_flags
from endtask.errors import InputError

WHOLE = """
cells:
  plain:
  large: {model.size: base, train: {learning_rate: 5.0e-4, rho1: 99}}
grid:
  pretrain.objectives.task.rho2: [20, 100]
seeds: [0, 1, 2]
finetune_seeds: [0, 1]
baselines:
  majority:
  no_corpus: {budget: 900ktok}
checkpoint: models/small
against: plain
by: dev
"""


def test_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "cells.yaml"
    path.write_text(WHOLE)
    found = read_comparison(path)
    assert found.cells == {
        "plain": {},
        "large": {"model.size": "base", "pretrain.learning_rate": 5e-4, "pretrain.weighting.rho1": 99},
    }
    assert found.grid == {"pretrain.objectives.task.rho2": (20, 100)}
    assert (found.seeds, found.finetune_seeds, found.checkpoint) == ((0, 1, 2), (0, 1), "models/small")
    assert found.baselines == {"majority": {}, "no_corpus": {"budget": "900ktok"}}
    assert (found.against, found.by) == ("plain", "dev")
    assert check_comparison(found.model_dump(mode="json")) == found


def test_an_empty_file_asks_for_the_settings_against_all_baselines(tmp_path: Path) -> None:
    (tmp_path / "cells.yaml").write_text("# nothing yet\n")
    assert read_comparison(tmp_path / "cells.yaml") == Comparison()
    assert Comparison().baselines is None


def test_infinity_is_the_word_for_it() -> None:
    """What was asked is written down as JSON, which knows no infinity."""
    found = check_comparison(
        {"cells": {"a": {"pretrain": {"weighting": {"rho1": float("inf")}}}}, "grid": {"pretrain.weighting.rho1": [float("inf")]}}
    )
    assert (found.cells, found.grid) == ({"a": {"pretrain.weighting.rho1": "inf"}}, {"pretrain.weighting.rho1": ("inf",)})


def test_baselines_as_a_list() -> None:
    assert check_comparison({"baselines": ["tfidf", "random"]}).baselines == {"tfidf": {}, "random": {}}
    assert check_comparison({"baselines": []}).baselines == {}


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        ({"cels": {}}, "key 'cels': unknown setting (did you mean 'cells'?)"),
        ({"baselines": ["tf-idf"]}, "key 'baselines': unknown baseline 'tf-idf' (did you mean 'tfidf'?)"),
        ({"baselines": ["random", "random"]}, "key 'baselines': 'random' stands twice"),
        ({"baselines": {"tfidf": {"seed": 1}}}, "key 'baselines': tfidf has no settings to override"),
        ({"baselines": "tfidf"}, "key 'baselines': "),
        ({"cells": {"a": 3}}, "key 'cells': "),
        (
            {"cells": {"a": {"pretrain": {"weighting": {"rho1": 1}}, "pretrain.weighting.rho1": 2}}},
            "'a' names a setting twice, dotted and nested",
        ),
        ({"grid": {"pretrain.weighting.rho1": []}}, "key 'grid': no values for pretrain.weighting.rho1"),
        ({"grid": {"pretrain.weighting.rho1": 3}}, "key 'grid': must be a list"),
        ({"seeds": [0, 0]}, "key 'seeds': the seed 0 stands twice"),
        ({"seeds": []}, "key 'seeds': must not be empty"),
        ({"seeds": [-1]}, "key 'seeds"),
        ({"finetune_seeds": ["many"]}, "must be a whole number, got 'many'"),
        ({"by": "train"}, "key 'by': must be 'test' or 'dev', got 'train'"),
    ],
)
def test_a_mistake_names_file_and_key(tree: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as error:
        check_comparison(tree, "cells.yaml")
    assert str(error.value).startswith("cells.yaml, key ")
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cells\.yaml: no such file of cells"):
        read_comparison(tmp_path / "cells.yaml")
    (tmp_path / "cells.yaml").write_text("cells: {a: 1")
    with pytest.raises(InputError, match="not valid YAML"):
        read_comparison(tmp_path / "cells.yaml")


@pytest.mark.parametrize(
    ("stored", "flags", "wanted"),
    [
        ({"baselines": []}, {}, ["checkpoint"]),
        ({"baselines": {"random": {"pretrain.weighting.rho1": 3}}}, {}, ["random", "checkpoint"]),
        ({"baselines": ["checkpoint", "tfidf"]}, {}, ["checkpoint", "tfidf"]),
        ({}, {"baselines": ["tfidf"]}, ["tfidf", "checkpoint"]),
    ],
)
def test_a_checkpoint_is_one_more_baseline(stored: dict[str, Any], flags: dict[str, Any], wanted: list[str]) -> None:
    found = with_flags(check_comparison(stored), {**flags, "checkpoint": "models/mine"})
    assert list(found.baselines or ()) == wanted
    assert found.checkpoint == "models/mine"
    for name, values in (check_comparison(stored).baselines or {}).items():
        assert (found.baselines or {})[name] == values


def test_a_checkpoint_and_no_baselines() -> None:
    with pytest.raises(InputError, match="--checkpoint names a baseline, and --no-baselines wants none"):
        with_flags(Comparison(), {"baselines": [], "checkpoint": "models/mine"})
    assert with_flags(Comparison(), {"checkpoint": "models/mine"}).baselines is None  # all that apply, this one too


def test_a_nested_cell_is_the_same_as_a_dotted_one() -> None:
    stored = check_comparison({"cells": {"a": {"pretrain.weighting.rho1": 7}}, "grid": {"pretrain.objectives.task.rho2": [20, 30]}})
    assert (
        with_flags(stored, {"cells": {"a": {"pretrain": {"weighting": {"rho1": 7}}}}, "grid": {"pretrain.objectives.task.rho2": [20, 30]}}) == stored
    )
    with pytest.raises(InputError, match="--cell: 'a' is there already, and another one"):
        with_flags(stored, {"cells": {"a": {"pretrain": {"weighting": {"rho1": 8}}}}})
