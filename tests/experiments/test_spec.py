"""The study file: its keys, and the errors for wrong values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from endtask.errors import InputError
from endtask.experiments import Study, check_study, read_study
from endtask.experiments.flags import with_flags

WHOLE = """
variants:
  plain:
  large: {model.size: base, pretrain: {learning_rate: 5.0e-4, weighting: {rho1: 99}}}
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
    path = tmp_path / "study.yaml"
    path.write_text(WHOLE)
    found = read_study(path)
    assert {name: spec.values for name, spec in found.variants.items()} == {
        "plain": {},
        "large": {"model.size": "base", "pretrain.learning_rate": 5e-4, "pretrain.weighting.rho1": 99},
    }
    assert found.grid == {"pretrain.objectives.task.rho2": (20, 100)}
    assert (found.seeds, found.finetune_seeds, found.checkpoint) == ((0, 1, 2), (0, 1), "models/small")
    assert found.baselines == {"majority": {}, "no_corpus": {"budget": "900ktok"}}
    assert (found.against, found.by) == ("plain", "dev")
    assert check_study(found.model_dump(mode="json")) == found


def test_an_empty_file_asks_for_the_settings_against_all_baselines(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text("# nothing yet\n")
    assert read_study(tmp_path / "study.yaml") == Study()
    assert Study().baselines is None


def test_infinity_is_the_word_for_it() -> None:
    """What was asked is written down as JSON, which knows no infinity."""
    found = check_study(
        {
            "variants": {"a": {"pretrain": {"weighting": {"rho1": float("inf")}}}},
            "grid": {"pretrain.weighting.rho1": [float("inf")]},
        }
    )
    assert (found.variants["a"].values, found.grid) == (
        {"pretrain.weighting.rho1": "inf"},
        {"pretrain.weighting.rho1": ("inf",)},
    )


def test_baselines_as_a_list() -> None:
    assert check_study({"baselines": ["tfidf", "random"]}).baselines == {"tfidf": {}, "random": {}}
    assert check_study({"baselines": []}).baselines == {}


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        ({"varaints": {}}, "key 'varaints': unknown setting (did you mean 'variants'?)"),
        ({"baselines": ["tf-idf"]}, "key 'baselines': unknown baseline 'tf-idf' (did you mean 'tfidf'?)"),
        ({"baselines": ["random", "random"]}, "key 'baselines': 'random' is listed twice"),
        ({"baselines": {"tfidf": {"seed": 1}}}, "key 'baselines': tfidf has no settings to override"),
        ({"baselines": "tfidf"}, "key 'baselines': "),
        ({"variants": {"a": 3}}, "key 'variants.a': "),
        (
            {"variants": {"a": {"pretrain": {"weighting": {"rho1": 1}}, "pretrain.weighting.rho1": 2}}},
            "a setting is given twice, dotted and nested",
        ),
        ({"grid": {"pretrain.weighting.rho1": []}}, "key 'grid': no values for pretrain.weighting.rho1"),
        ({"grid": {"pretrain.weighting.rho1": 3}}, "must be a list"),
        ({"seeds": [0, 0]}, "key 'seeds': the seed 0 is listed twice"),
        ({"seeds": []}, "key 'seeds': must not be empty"),
        ({"seeds": [-1]}, "key 'seeds"),
        ({"finetune_seeds": ["many"]}, "must be a whole number, got 'many'"),
        ({"by": "train"}, "key 'by': must be 'test' or 'dev', got 'train'"),
    ],
)
def test_a_mistake_names_file_and_key(tree: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as error:
        check_study(tree, "study.yaml")
    assert str(error.value).startswith("study.yaml, key ")
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"study\.yaml: no such study file"):
        read_study(tmp_path / "study.yaml")
    (tmp_path / "study.yaml").write_text("variants: {a: 1")
    with pytest.raises(InputError, match="not valid YAML"):
        read_study(tmp_path / "study.yaml")


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
    found = with_flags(check_study(stored), {**flags, "checkpoint": "models/mine"})
    assert list(found.baselines or ()) == wanted
    assert found.checkpoint == "models/mine"
    for name, values in (check_study(stored).baselines or {}).items():
        assert (found.baselines or {})[name] == values


def test_a_checkpoint_and_no_baselines() -> None:
    with pytest.raises(InputError, match="--checkpoint adds a baseline, and --no-baselines allows none"):
        with_flags(Study(), {"baselines": [], "checkpoint": "models/mine"})
    assert with_flags(Study(), {"checkpoint": "models/mine"}).baselines is None  # all that apply, this one too


def test_a_nested_variant_is_the_same_as_a_dotted_one() -> None:
    stored = check_study(
        {"variants": {"a": {"pretrain.weighting.rho1": 7}}, "grid": {"pretrain.objectives.task.rho2": [20, 30]}}
    )
    nested = {"a": {"pretrain": {"weighting": {"rho1": 7}}}}
    assert with_flags(stored, {"variants": nested, "grid": {"pretrain.objectives.task.rho2": [20, 30]}}) == stored
    with pytest.raises(InputError, match="--variant: 'a' exists already with other settings"):
        with_flags(stored, {"variants": {"a": {"pretrain": {"weighting": {"rho1": 8}}}}})


def test_keys_that_are_no_settings() -> None:
    found = check_study(
        {
            "settings": {"preset": "gpu", "budget": "10steps"},
            "tasks": {"a": {"task": {"path": "here"}, "variants": ["x"], "few_shot": {"folds": 5}, "preset": "laptop"}},
            "variants": {"x": {"title": "X", "preset": "tlm-small", "pretrain.weighting.rho1": 3}},
            "grid": {"schedule": {"short": {"budget": "5steps"}, "long": None}},
        }
    )
    task, variant = found.tasks["a"], found.variants["x"]
    assert (task.values, task.variants, task.preset) == ({"task.path": "here"}, ("x",), "laptop")
    assert (variant.title, variant.preset, variant.values) == ("X", "tlm-small", {"pretrain.weighting.rho1": 3})
    assert found.grid == {"schedule": {"short": {"budget": "5steps"}, "long": {}}}
    assert check_study(found.model_dump(mode="json")) == found


def test_variables(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text("variables: {data: here}\nsettings: {task.path: '${data}/a', seed: 3}\n")
    assert read_study(path).settings == {"task.path": "here/a", "seed": 3}
    assert read_study(path, {"data": "/there"}).settings["task.path"] == "/there/a"
    path.write_text("variables: {data: here}\nsettings: {task.path: '${dta}/a'}\n")
    with pytest.raises(InputError, match=r"unknown variable 'dta' \(did you mean 'data'\?\)"):
        read_study(path)
