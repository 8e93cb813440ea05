"""Objectives in settings: what may be asked for, and the line for what may not."""

from __future__ import annotations

from typing import Any

import pytest

from endtask.errors import InputError
from endtask.settings import Settings, load_settings, resolve
from endtask.settings.objectives import KINDS

TASK, TAPT, DAPT = {"kind": "task"}, {"kind": "mlm", "texts": "task"}, {"kind": "mlm", "texts": "domain"}


def of(weighting: str = "equal", **objectives: Any) -> dict[str, Any]:
    return {"train": {"weighting": weighting, "objectives": objectives}}


def complaint(tree: dict[str, Any]) -> str:
    with pytest.raises(InputError) as caught:
        resolve(tree)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_without_any_stage_1_is_tlms() -> None:
    train = Settings().train
    assert train.weighting == "interleave"
    assert {name: (one.kind, one.reads) for name, one in train.used_objectives.items()} == {
        "external": ("mlm", "selection"),
        "internal": ("joint", "task"),
    }
    without_task = resolve({"train": {"rho1": "inf"}}).train
    assert list(without_task.used_objectives) == ["external"]
    assert (train.trains_task, without_task.trains_task) == (True, False)


def test_an_objective_of_weight_0_is_left_out() -> None:
    train = resolve(of(task=TASK, tapt=TAPT, dapt={**DAPT, "weight": 0})).train
    assert list(train.used_objectives) == ["task", "tapt"]
    assert train.reads("task")
    assert not train.reads("domain")


def test_only_what_a_sequence_learns_last_counts_as_trained() -> None:
    assert resolve(of("sequence", tapt=TAPT, task=TASK)).train.trains_task
    assert not resolve(of("sequence", task=TASK, tapt=TAPT)).train.trains_task


def test_the_domain_is_read_by_a_stage_1_alone() -> None:
    assert resolve(of(dapt=DAPT)).reads_domain
    assert not resolve({**of(dapt=DAPT), "stage1": "none"}).reads_domain
    assert not Settings().reads_domain


def test_one_key_of_a_presets_objective_can_be_changed() -> None:
    settings = load_settings(preset="mt-tartan-scratch", overrides=["train.objectives.tapt.dropout=0.3"])
    assert settings.train.objectives["tapt"].dropout == 0.3
    assert settings.train.objectives["tapt"].texts == "task"


@pytest.mark.parametrize("name", sorted(KINDS))
def test_every_kind_is_told_in_the_settings(name: str) -> None:
    field = type(Settings().train.used_objectives["external"]).model_fields["kind"]
    assert f"{name}: {KINDS[name].meaning}" in str(field.description)


@pytest.mark.parametrize(
    ("tree", "line"),
    [
        (
            of(tapt={"kind": "mml"}),
            "key 'train.objectives.tapt.kind': there is no objective 'mml'; did you mean 'mlm'?",
        ),
        (
            of(tapt={**TAPT, "dropuot": 0.1}),
            "key 'train.objectives.tapt.dropuot': unknown setting (did you mean 'train.objectives.tapt.dropout'?)",
        ),
        (of(tapt={"kind": "mlm"}), "key 'train.objectives.tapt.texts': say what mlm reads: task, selection, domain"),
        (
            of(task={"kind": "task", "texts": "domain"}),
            "key 'train.objectives.task.texts': task reads task, not domain",
        ),
        (of(tapt=3), "key 'train.objectives.tapt': must be a section of `key: value` lines, got 3"),
        (of(tapt={}), "key 'train.objectives.tapt.kind': is required"),
        (
            of(dapt={"kind": "mlm", "texts": "domain"}, dap={"weight": 1}),
            "key 'train.objectives.dap': there is no objective of this name, and a new one needs a kind "
            "(did you mean 'dapt'?)",
        ),
        (of(dapt=DAPT, tapt={"texts": "task"}), "key 'train.objectives.tapt.kind': is required"),
        (
            of(task={**TASK, "mask_probability": 0.1}),
            "key 'train.objectives.task.mask_probability': task hides no tokens",
        ),
        (of(dev=TASK), "key 'train.objectives': 'dev' is the name of a curve; choose another"),
        (of(**{"a/b": TASK}), "key 'train.objectives': 'a/b' is no name; write letters (a to z), digits, - and _"),
        (
            of(task={**TASK, "weight": 0}),
            "key 'train.objectives': all have the weight 0, which leaves nothing to learn",
        ),
        (
            of("interleave", task=TASK, tapt=TAPT),
            "key 'train.weighting': interleave takes turns between external and internal, not task, tapt; "
            "use equal, meta, alternate or sequence",
        ),
        (
            of(task={**TASK, "learning_rate": 1e-3}),
            "key 'train.objectives.task.learning_rate': only objectives of a sequence have their own",
        ),
        (
            of(task={**TASK, "warmup_fraction": 0}),
            "key 'train.objectives.task.warmup_fraction': only objectives of a sequence have their own",
        ),
        (
            {
                "train": {
                    "rho1": "inf",
                    "objectives": {"external": {"kind": "mlm", "texts": "selection"}, "internal": {"kind": "joint"}},
                }
            },
            "key 'train.rho1': inf leaves no turn for objectives.internal; give it the weight 0, or say rho1",
        ),
        (
            {"train": {"objectives": {"external": {"kind": "mlm", "texts": "selection", "weight": 2}}}},
            "key 'train.objectives.external.weight': interleave goes by rho1 and rho2; leave it out, or 0",
        ),
        (
            of("meta", task=TASK),
            "key 'train.weighting': meta has nothing to weigh, task is alone; add an objective, or use equal",
        ),
        (
            of("meta", tapt=TAPT),
            "key 'train.weighting': meta learns for the task; name an objective of kind task or joint",
        ),
        (
            of("meta", task={**TASK, "weight": 0}, tapt=TAPT, dapt=DAPT),
            "key 'train.objectives.task.weight': 0 leaves this objective out, but weighting: meta learns for the task; "
            "give it more than 0",
        ),
        (
            {"train": {**of(tapt=TAPT)["train"], "eval_steps": 5}},
            "key 'train.eval_steps': dev is scored by the task head, which train.objectives without the task never",
        ),
        (
            {**of(tapt=TAPT), "stage2": "none"},
            "key 'stage2': none with train.objectives without the task would leave the task head untrained",
        ),
        (
            {"finetune": {"keep_better": True}},
            "key 'finetune.keep_better': compares with stage 1's head; set reset_head: false with it",
        ),
        (
            {**of(task=TASK), "finetune": {"keep_better": True, "reset_head": False, "members": 2}},
            "key 'finetune.members': the mean of several is not compared with stage 1; set keep_better: false with it",
        ),
        (
            {**of(tapt=TAPT), "finetune": {"keep_better": True, "reset_head": False}},
            "key 'finetune.keep_better': needs a stage 1 that trains the task head",
        ),
        (
            {**of(tapt=TAPT), "finetune": {"reset_head": False}},
            "key 'finetune.reset_head': false keeps stage 1's task head, which nothing has trained",
        ),
        (
            {"stage1": "none", "finetune": {"reset_head": False}},
            "key 'finetune.reset_head': false keeps stage 1's task head, which nothing has trained",
        ),
        (
            of(task={**TASK, "batch_size": "200tok"}),
            "key 'train.objectives.task.batch_size': 200tok is less than two texts of 128 tokens",
        ),
        (
            {"domain": {"source": ["a"]}},
            "key 'domain.source': unknown setting (did you mean 'domain.sources'?)",
        ),
    ],
)
def test_the_line_for_what_cannot_be(tree: dict[str, Any], line: str) -> None:
    assert complaint(tree).startswith(line)


@pytest.mark.parametrize(
    ("override", "line"),
    [
        (
            "train.objectives.tatp.weight=0",
            "--set, key 'train.objectives.tatp': there is no objective of this name, and a new one needs a kind "
            "(did you mean 'tapt'?)",
        ),
        (
            "train.objectives.other.texts=domain",
            "--set, key 'train.objectives.other': there is no objective of this name, and a new one needs a kind "
            "(known: dapt, tapt, task)",
        ),
        ("train.objectives.task.weight=0", "--set, key 'train.objectives.task.weight': 0 leaves this objective out"),
    ],
)
def test_what_was_set_is_what_the_line_names(override: str, line: str) -> None:
    with pytest.raises(InputError) as caught:
        load_settings(preset="meta-tartan-scratch", overrides=[override])
    assert str(caught.value).startswith(line)
