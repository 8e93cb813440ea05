"""Lists, ranges and choices on the command line, and the errors for wrong ones."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import settings as how
from hypothesis import strategies as some

from endtask.config import Settings, resolve
from endtask.errors import InputError
from endtask.experiments.search_space import Choice, Range, default_space, grid_axes, search_space

PLAIN = resolve({"corpus": {"sources": [{"path": "texts.jsonl"}]}})


def settings(**changes: Any) -> Settings:
    return resolve({"corpus": {"sources": [{"path": "texts.jsonl"}]}, **changes})


def test_the_paper_s_grid() -> None:
    axes = grid_axes([], PLAIN)
    assert axes == {
        "pretrain.weighting.rho1": (1, 3, 7, 19, 99, 499, 999, 1999),
        "pretrain.objectives.task.rho2": (20.0, 100.0, 1000.0),
    }


def test_without_external_text_there_is_no_rho1() -> None:
    assert list(grid_axes([], Settings())) == ["pretrain.objectives.task.rho2"]
    assert list(grid_axes([], settings(select={"name": "none"}))) == ["pretrain.objectives.task.rho2"]
    assert "pretrain.weighting.rho1" not in default_space(Settings())
    objectives = {"corpus": {"kind": "mlm", "texts": "selection"}, "task": {"kind": "task"}}
    unmasked = settings(pretrain={"objectives": objectives})
    assert list(grid_axes([], unmasked)) == ["pretrain.weighting.rho1"]


def test_values_are_read_as_settings_read_them() -> None:
    axes = grid_axes(
        [
            "pretrain.learning_rate=1e-3,0.002",
            "pretrain.weighting.rho1=1,inf",
            "finetune.seeds=[0],[1,2]",
            "pretrain.warmup_steps=0.1,5",
            "pretrain.batch_size=32,4096tok",
        ],
        PLAIN,
    )
    assert axes["pretrain.learning_rate"] == (0.001, 0.002)
    assert axes["pretrain.weighting.rho1"] == (1, "inf")
    assert axes["finetune.seeds"] == ([0], [1, 2])
    assert axes["pretrain.warmup_steps"] == (0.1, 5)
    assert axes["pretrain.batch_size"] == (32, "4096tok")


def test_ranges_and_choices() -> None:
    space = search_space(
        [
            "pretrain.learning_rate=log:1e-4:3e-3",
            "pretrain.weighting.rho1=choice:1,19,inf",
            "pretrain.mask_probability=float:0.15:0.4",
            "finetune.epochs=int:1:20",
            "pretrain.objectives.task.rho2=logint:1:1000",
        ],
        PLAIN,
    )
    assert space == {
        "pretrain.learning_rate": Range(1e-4, 3e-3, is_integer=False, log=True),
        "pretrain.weighting.rho1": Choice((1, 19, "inf")),
        "pretrain.mask_probability": Range(0.15, 0.4, is_integer=False, log=False),
        "finetune.epochs": Range(1, 20, is_integer=True, log=False),
        "pretrain.objectives.task.rho2": Range(1, 1000, is_integer=True, log=True),
    }


@given(ends=some.tuples(some.floats(1e-6, 1e6), some.floats(1e-6, 1e6)).filter(lambda ends: ends[0] < ends[1]))
@example(ends=(999999.9999999999, 1e6))
@how(max_examples=50, deadline=None)
def test_a_range_reads_its_own_words(ends: tuple[float, float]) -> None:
    for kind in ("float", "log"):
        found = Range(*ends, is_integer=False, log=kind == "log")
        again = search_space([f"pretrain.learning_rate={found}"], PLAIN)
        assert again == {"pretrain.learning_rate": found}


def test_the_default_space_lies_around_the_settings() -> None:
    space = default_space(settings(finetune={"learning_rate": [1e-5, 1e-4]}))
    assert space["pretrain.learning_rate"] == Range(0.0002, 0.005, is_integer=False, log=True)
    assert space["finetune.learning_rate"] == Range(2e-6, 5e-4, is_integer=False, log=True)
    assert list(space)[2:] == ["pretrain.weighting.rho1", "pretrain.objectives.task.rho2", "pretrain.mask_probability"]
    assert "finetune.learning_rate" not in default_space(settings(skip_finetuning=True))
    assert search_space([], PLAIN) == default_space(PLAIN)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("pretrain.rho3=1,2", "key 'pretrain.rho3': unknown setting"),
        ("trian.rho1=1,2", "key 'trian': unknown setting (did you mean 'pretrain'?)"),
        ("pretrain.weighting.rho1=1,many", "key 'pretrain.weighting.rho1': must be"),
        ("pretrain.mask_probability=0.1,2", "key 'pretrain.mask_probability': must be"),
        ("pretrain=1,2", "key 'pretrain': must be a section"),
        ("pretrain={learning_rate: 1}", "key 'pretrain': a section, not a value"),
        ("pretrain.weighting.rho1.x=1", "key 'pretrain.weighting.rho1': must be"),
        (
            "pretrain.weighting.rho1",
            "--values 'pretrain.weighting.rho1': write it like pretrain.weighting.rho1=1,19,99",
        ),
        ("pretrain.weighting.rho1=", "write it like"),
        ("=1,2", "write it like"),
        ("train.=1,2", "write it like"),
        ("pretrain.weighting.rho1=1,,2", "not a list of values"),
        ("pretrain.weighting.rho1=[1", "not a list of values"),
        ("pretrain.weighting.rho1=1,1", "the value 1 is listed twice"),
        ("budget=10min,20min", "cannot be compared on dev"),
        ("seed=0,1", "cannot be compared on dev"),
        ("pretrain.seed=0,1", "cannot be compared on dev"),
        ("task.dev_fraction=0.1,0.2", "cannot be compared on dev"),
        ("evaluate.metric=accuracy,macro_f1", "cannot be compared on dev"),
        ("output_dir=a,b", "cannot be compared on dev"),
    ],
)
def test_bad_values(entry: str, said: str) -> None:
    with pytest.raises(InputError) as error:
        grid_axes([entry], PLAIN)
    assert said in str(error.value)
    assert str(error.value).startswith("--values")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("pretrain.learnin_rate=log:1e-4:1e-3", "did you mean 'pretrain.learning_rate'?"),
        ("pretrain.learning_rate=lgo:1e-4:1e-3", "unknown kind 'lgo' (did you mean 'log'?)"),
        ("pretrain.learning_rate=1e-4,1e-3", "unknown kind"),
        ("pretrain.learning_rate=log:1e-4", "not two numbers (for example log:0.1:0.5)"),
        ("pretrain.learning_rate=log:a:b", "not two numbers"),
        ("pretrain.learning_rate=log:1e-3:1e-4", "the first number must be the smaller one"),
        ("pretrain.learning_rate=float:1e-3:inf", "the first number must be the smaller one"),
        ("pretrain.learning_rate=float:nan:1", "the first number must be the smaller one"),
        ("pretrain.objectives.task.rho2=log:0:10", "must begin above 0"),
        ("pretrain.mask_probability=float:0.1:1.5", "key 'pretrain.mask_probability': must be"),
        ("finetune.epochs=float:1:5", "must be a whole number"),
        ("finetune.epochs=int:1.5:5", "not two numbers (for example int:1:10)"),
        ("pretrain.weighting.rho1=choice:1,many", "key 'pretrain.weighting.rho1': must be"),
        ("pretrain.weighting.rho1=choice:", "not a list of values"),
        ("budget=choice:10min", "cannot be compared on dev"),
        ("pretrain.learning_rate", "write it like pretrain.learning_rate=log:1e-4:3e-3"),
    ],
)
def test_bad_ranges(entry: str, said: str) -> None:
    with pytest.raises(InputError) as error:
        search_space([entry], PLAIN)
    assert said in str(error.value)
    assert str(error.value).startswith("--space")
    assert "\n" not in str(error.value)


def test_a_key_given_twice() -> None:
    with pytest.raises(InputError, match="given twice"):
        grid_axes(["pretrain.weighting.rho1=1", "pretrain.weighting.rho1=2"], PLAIN)
    with pytest.raises(InputError, match="given twice"):
        search_space(["pretrain.weighting.rho1=choice:1", "pretrain.weighting.rho1=choice:2"], PLAIN)


def test_values_that_are_wrong_together_are_met_at_once() -> None:
    no_stage2 = settings(skip_finetuning=True)
    with pytest.raises(InputError, match="would leave the task head untrained"):
        grid_axes(["pretrain.weighting.rho1=1,inf"], no_stage2)
    with pytest.raises(InputError, match=r"train\.rho1_end"):
        search_space(
            ["pretrain.weighting.rho1=choice:1,inf", "pretrain.objectives.task.rho2=float:0:5"],
            settings(pretrain={"rho1_end": 3}),
        )
