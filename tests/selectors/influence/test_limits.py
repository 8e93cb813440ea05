"""The limits on the cost of scoring, and their messages."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from endtask.config import ModelSettings, resolve
from endtask.errors import InputError
from endtask.io.machine import available_memory
from endtask.selectors.influence import runner as work_module
from endtask.selectors.influence.config import InfluenceConfig
from endtask.selectors.influence.limits import Allowance, _Amounts, _columns, allowance, target_memory
from endtask.selectors.influence.scorer import Scorer
from endtask.selectors.influence.scoring_model import scoring_settings, size_for
from tests.selectors.influence.small import make_runner, small_settings
from tests.selectors.influence.test_held_out import checkpoint_in


@pytest.mark.parametrize(
    ("values", "amount", "unit"),
    [
        ({"budget": "10min"}, 60.0, "seconds"),
        ({"budget": "1e17flops"}, 1e16, "flops"),
        # tiny: 12 x 128 x 128 x 2 weights and 8,000 word vectors
        ({"budget": "1Mtok"}, 0.6e6 * (12 * 128**2 * 2 + 8000 * 128), "flops"),
        ({"budget": "10steps", "pretrain": {"batch_size": 8, "max_length": 16}}, 6 * 128 * (393216 + 1024000), "flops"),
        ({"budget": "10min", "select": {"name": "influence", "share_of_budget": 0.5}}, 300.0, "seconds"),
    ],
)
def test_a_tenth_of_the_training_budget(values: dict[str, object], amount: float, unit: str) -> None:
    found = allowance(resolve(values))
    assert found is not None
    assert (found.amount, found.unit) == (pytest.approx(amount), unit)


def test_no_limit() -> None:
    assert allowance(resolve({"select": {"name": "influence", "share_of_budget": None}})) is None


def test_fitting_that_costs_too_much_is_refused() -> None:
    allowed = Allowance(60.0, "seconds", 0.1)
    allowed.check_fit_cost(59.0)
    with pytest.raises(InputError) as caught:
        allowed.check_fit_cost(90.0)
    assert str(caught.value) == (
        "key 'select.share_of_budget': fitting the scoring models takes about 90 s, more than 60 s (10% of "
        "the training budget of 600 s) (raise it or the budget, or lower select.epochs or size; "
        "null: no limit)"
    )


def test_how_many_candidates_the_rest_is_enough_for() -> None:
    allowed = Allowance(60.0, "seconds", 0.1)
    assert allowed.candidates(fitted=20.0, each=0.5) == 80
    assert allowed.candidates(fitted=70.0, each=0.5) == 0


def test_no_more_memory_than_a_container_has(tmp_path: Path) -> None:
    memory, limit, none = tmp_path / "meminfo", tmp_path / "memory.max", tmp_path / "other"
    memory.write_text("MemTotal: 9000 kB\nMemAvailable:   4000 kB\n")
    none.write_text("max\n")
    assert available_memory(memory, (limit, none)) == 4000 * 1024
    limit.write_text("123456\n")
    assert available_memory(memory, (limit, none)) == 123456


def test_targets_that_no_memory_holds_are_refused(tmp_path: Path) -> None:
    work = make_runner(tmp_path, small_settings())
    work.fit()
    units = work.units(np.arange(4))
    with pytest.raises(InputError) as caught:
        Scorer(work.folds, units, memory=1000)
    assert str(caught.value).startswith("key 'select.layers': the gradients of 12 targets take ")


def test_what_is_kept_of_a_unit_until_the_choice() -> None:
    amounts = _Amounts(rows=10, targets=11, folds=2, row_tokens=5.0, candidates=7.0, candidate_tokens=70.0)
    assert _columns(amounts, InfluenceConfig()) == 0
    assert _columns(amounts, InfluenceConfig(choice="top_k", target_batch=4)) == 3


def test_the_memory_of_this_machine_is_known() -> None:
    assert target_memory(torch.device("cpu")) > 1 << 20


def test_the_scoring_model_is_ten_times_smaller_than_the_trained_one() -> None:
    assert size_for(ModelSettings(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16)) == "medium"
    assert size_for(ModelSettings(size="small")) == "tiny"


def test_the_scoring_models_settings_are_its_own() -> None:
    run = resolve(
        {
            "model": {"size": "base", "architecture": "bert"},
            "pretrain": {"task_head": "tlm", "weighting": {"rho1": 99}, "gradient_accumulation_steps": 4},
            "seed": 3,
            "select": {"name": "influence", "recipe": "paper"},
        }
    )
    found = scoring_settings(run)
    assert (found.model.architecture, found.model.size, found.model.pooling) == ("bert", "mini", "cls")
    assert (found.pretrain.weighting.rho1, found.pretrain.objectives["task"].rho2, found.pretrain.mask_probability) == (
        0,
        3.0,
        0.1,
    )
    assert (found.pretrain.task_head, found.pretrain.gradient_accumulation_steps) == ("stock", 1)
    assert (found.pretrain_seed, found.compile, found.finetune.max_length) == (3, "graphs", 128)


def test_a_given_checkpoint_is_itself_the_scoring_model(tmp_path: Path) -> None:
    folder = str(checkpoint_in(tmp_path))
    found = scoring_settings(resolve({"model": {"path": folder, "pooling": "cls"}}))
    assert (found.model.path, found.model.pooling, found.pretrain.learning_rate) == (folder, "cls", 1e-3)


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"layers": "last"}, "give a list of layers, such as [last]"),
        ({"layers": []}, "must not be empty"),
        ({"mesure": "dot"}, "measure"),
        ({"share_of_budget": 0}, "greater than 0"),
        ({"size": "huge"}, "size"),
        ({"masks": 0}, "greater than 0"),
    ],
)
def test_bad_settings_are_met_with_one_line(values: dict[str, object], line: str) -> None:
    with pytest.raises(InputError) as caught:
        resolve({"select": {"name": "influence", **values}})
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("least", "compile", "expected"), [(0.0, "auto", True), (1e30, "auto", False), (1e30, True, True)]
)
def test_long_scoring_alone_is_compiled_on_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, least: float, compile: str | bool, expected: bool
) -> None:
    monkeypatch.setattr(work_module, "_WORTH_COMPILING", least)
    monkeypatch.setattr(work_module, "compiles", lambda settings, device: True)
    settings = small_settings().model_copy(update={"compile": compile})
    assert make_runner(tmp_path, settings).compiled is expected
    monkeypatch.undo()
    assert make_runner(tmp_path, small_settings()).compiled is False  # on a CPU
