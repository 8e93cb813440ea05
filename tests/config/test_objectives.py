"""Objectives in settings: valid combinations, and one line for each invalid one."""

from __future__ import annotations

from typing import Any

import pytest

from endtask.config import Settings, load_settings, resolve
from endtask.errors import InputError
from endtask.registry import objectives

TASK, TAPT, DAPT = {"kind": "task"}, {"kind": "mlm", "texts": "task"}, {"kind": "mlm", "texts": "domain"}


def of(weighting: str = "equal", **objectives: Any) -> dict[str, Any]:
    return {"pretrain": {"weighting": weighting, "objectives": objectives}}


def complaint(tree: dict[str, Any]) -> str:
    with pytest.raises(InputError) as caught:
        resolve(tree)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_without_any_stage_1_is_tlms() -> None:
    train = Settings().pretrain
    assert train.weighting.name == "interleave"
    assert {name: (one.kind, one.reads) for name, one in train.used_objectives.items()} == {
        "corpus": ("mlm", "selection"),
        "task": ("joint", "task"),
    }
    without_task = resolve({"pretrain": {"weighting": {"rho1": "inf"}}}).pretrain
    assert list(without_task.used_objectives) == ["corpus"]
    assert (train.trains_task, without_task.trains_task) == (True, False)


def test_an_objective_of_weight_0_is_left_out() -> None:
    train = resolve(of(task=TASK, tapt=TAPT, dapt={**DAPT, "weight": 0})).pretrain
    assert list(train.used_objectives) == ["task", "tapt"]
    assert train.reads("task")
    assert not train.reads("domain")


def test_only_what_a_sequence_learns_last_counts_as_trained() -> None:
    assert resolve(of("sequence", tapt=TAPT, task=TASK)).pretrain.trains_task
    assert not resolve(of("sequence", task=TASK, tapt=TAPT)).pretrain.trains_task


def test_the_domain_is_read_by_a_stage_1_alone() -> None:
    assert resolve(of(dapt=DAPT)).reads_domain
    assert not resolve({**of(dapt=DAPT), "skip_pretraining": True}).reads_domain
    assert not Settings().reads_domain


def test_one_key_of_a_presets_objective_can_be_changed() -> None:
    settings = load_settings(preset="mt-tartan-scratch", overrides=["pretrain.objectives.tapt.dropout=0.3"])
    assert settings.pretrain.objectives["tapt"].dropout == 0.3
    assert settings.pretrain.objectives["tapt"].texts == "task"


@pytest.mark.parametrize("name", objectives.names())
def test_every_objective_has_a_meaning_and_texts(name: str) -> None:
    part = objectives.get(name)
    assert part.meaning()
    assert set(part.texts) <= {"task", "selection", "domain", "aligned"}


def test_options_of_the_default_objectives_need_no_kind() -> None:
    train = resolve({"pretrain": {"objectives": {"task": {"rho2": 1}}}}).pretrain
    assert {name: section.kind for name, section in train.objectives.items()} == {"corpus": "mlm", "task": "joint"}
    assert train.objectives["task"].options.model_dump() == {"rho2": 1}
    assert resolve({"pretrain": train.model_dump(mode="json")}).pretrain == train


def test_options_of_other_parts_are_refused() -> None:
    assert "pretrain.weighting.every" in complaint({"pretrain": {"weighting": {"name": "equal", "every": 2}}})
    assert "pretrain.objectives.task.rho2" in complaint(of(task={**TASK, "rho2": 2}))


@pytest.mark.parametrize(
    ("tree", "line"),
    [
        (
            of(tapt={"kind": "mml"}),
            "key 'pretrain.objectives.tapt.kind': there is no objective 'mml' (did you mean 'mlm'?)",
        ),
        (
            of(tapt={**TAPT, "dropuot": 0.1}),
            "key 'pretrain.objectives.tapt.dropuot': unknown setting (did you mean 'pretrain.objectives.tapt.dropout'?)",
        ),
        (of(tapt={"kind": "mlm"}), "key 'pretrain.objectives.tapt.texts': say what mlm reads: task, selection, domain"),
        (
            of(task={"kind": "task", "texts": "domain"}),
            "key 'pretrain.objectives.task.texts': task reads task, not domain",
        ),
        (of(tapt=3), "key 'pretrain.objectives.tapt': must be a section of `key: value` lines, got 3"),
        (of(tapt={}), "key 'pretrain.objectives.tapt.kind': is required"),
        (
            of(dapt={"kind": "mlm", "texts": "domain"}, dap={"weight": 1}),
            "key 'pretrain.objectives.dap': there is no objective of this name, and a new one needs a kind "
            "(did you mean 'dapt'?)",
        ),
        (of(dapt=DAPT, tapt={"texts": "task"}), "key 'pretrain.objectives.tapt.kind': is required"),
        (
            of(task={**TASK, "mask_probability": 0.1}),
            "key 'pretrain.objectives.task.mask_probability': unknown setting",
        ),
        (of(dev=TASK), "key 'pretrain.objectives': 'dev' is the name of a curve; choose another"),
        (of(**{"a/b": TASK}), "key 'pretrain.objectives': 'a/b' is no name; write letters (a to z), digits, - and _"),
        (
            of(task={**TASK, "weight": 0}),
            "key 'pretrain.objectives': all have the weight 0, which leaves nothing to learn",
        ),
        (
            of("interleave", task=TASK, tapt=TAPT),
            "key 'pretrain.weighting': interleave alternates between corpus and task, not task, tapt; "
            "use equal, meta, alternate or sequence",
        ),
        (
            of(task={**TASK, "learning_rate": 1e-3}),
            "key 'pretrain.objectives.task.learning_rate': only objectives of a sequence have their own",
        ),
        (
            of(task={**TASK, "warmup_steps": 0}),
            "key 'pretrain.objectives.task.warmup_steps': only objectives of a sequence have their own",
        ),
        (
            {"pretrain": {"objectives": {"corpus": {"kind": "mlm", "texts": "selection", "weight": 2}}}},
            "key 'pretrain.objectives.corpus.weight': interleave has rho1 and rho2; leave it out, or 0",
        ),
        (
            of("meta", task=TASK),
            "key 'pretrain.weighting': meta has nothing to weigh, task is alone; add an objective, or use equal",
        ),
        (
            of("meta", tapt=TAPT),
            "key 'pretrain.weighting': meta needs the task's labels; name an objective of kind task or joint",
        ),
        (
            of("meta", task={**TASK, "weight": 0}, tapt=TAPT, dapt=DAPT),
            "key 'pretrain.objectives.task.weight': 0 leaves this objective out, but weighting: meta needs the task's labels; "
            "give it more than 0",
        ),
        (
            {"pretrain": {**of(tapt=TAPT)["pretrain"], "eval_steps": 5}},
            "key 'pretrain.eval_steps': dev is scored by the task head, which pretrain.objectives without the task never",
        ),
        (
            {**of(tapt=TAPT), "skip_finetuning": True},
            "key 'skip_finetuning': true with pretrain.objectives without the task would leave the task head untrained",
        ),
        (
            {"finetune": {"keep_better": True}},
            "key 'finetune.keep_better': compares with pre-training's head; set head: pretrained with it",
        ),
        (
            {**of(tapt=TAPT), "finetune": {"keep_better": True, "head": "pretrained"}},
            "key 'finetune.keep_better': needs pre-training that trains the task head",
        ),
        (
            {**of(tapt=TAPT), "finetune": {"head": "pretrained"}},
            "key 'finetune.head': pretrained starts from pre-training's task head, which nothing has trained",
        ),
        (
            {"skip_pretraining": True, "finetune": {"head": "pretrained"}},
            "key 'finetune.head': pretrained starts from pre-training's task head, which nothing has trained",
        ),
        (
            of(task={**TASK, "batch_size": "200tok"}),
            "key 'pretrain.objectives.task.batch_size': 200tok is less than two texts of 128 tokens",
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
            "pretrain.objectives.tatp.weight=0",
            "--set, key 'pretrain.objectives.tatp': there is no objective of this name, and a new one needs a kind "
            "(did you mean 'tapt'?)",
        ),
        (
            "pretrain.objectives.other.texts=domain",
            "--set, key 'pretrain.objectives.other': there is no objective of this name, and a new one needs a kind "
            "(known: dapt, tapt, task)",
        ),
        (
            "pretrain.objectives.task.weight=0",
            "--set, key 'pretrain.objectives.task.weight': 0 leaves this objective out",
        ),
    ],
)
def test_what_was_set_is_what_the_line_names(override: str, line: str) -> None:
    with pytest.raises(InputError) as caught:
        load_settings(preset="meta-tartan-scratch", overrides=[override])
    assert str(caught.value).startswith(line)
