"""Settings of auxiliary tasks: the default objectives, and the errors."""

from __future__ import annotations

from typing import Any

import pytest

from endtask.config import PretrainSettings, Settings, TaskSettings, dump_yaml, resolve
from endtask.config.data_usage import data_usage
from endtask.config.loading import read_tree
from endtask.config.overrides import with_values
from endtask.errors import InputError
from endtask.experiments.spec import check_study
from endtask.pipeline.stage import changed_values
from endtask.pipeline.stages import STAGES

NER = {"ner": {"path": "data/ner"}}
TASK_AND_NER = {"task": {"kind": "task"}, "ner": {"kind": "task", "task": "ner"}}
NER_THEN_TASK = dict(reversed(TASK_AND_NER.items()))
KEPT = {"tasks": "all", "keep_better": True, "head": "pretrained"}


@pytest.mark.parametrize(
    ("tree", "learned"),
    [
        ({"pretrain": {"weighting": "equal"}}, ["corpus", "task", "ner"]),
        ({"pretrain": {"weighting": "meta"}}, ["corpus", "task", "ner"]),
        ({"pretrain": {"weighting": "alternate", "objectives": {"task": {"weight": 0}}}}, ["corpus", "ner"]),
        ({"pretrain": {"weighting": "sequence"}}, ["corpus", "ner", "task"]),
        ({"pretrain": {"weighting": "equal"}, "skip_pretraining": True}, ["corpus", "task"]),
        ({"pretrain": {"weighting": "equal", "objectives": TASK_AND_NER}}, ["task", "ner"]),
        ({"finetune": {"tasks": "all"}}, ["corpus", "task"]),
    ],
)
def test_where_nothing_is_said_all_are_learned(tree: dict[str, Any], learned: list[str]) -> None:
    settings = resolve({"tasks": NER, "corpus": {"sources": [{"path": "texts"}]}, **tree})
    assert list(settings.used_objectives) == learned


@pytest.mark.parametrize(
    ("tree", "learned"),
    [
        ({}, ["task", "ner"]),
        ({"select": {"name": "none"}, "corpus": {"sources": [{"path": "texts"}]}}, ["task", "ner"]),
        ({"select": {"name": "imported", "path": "texts.jsonl"}}, ["corpus", "task", "ner"]),
    ],
)
def test_corpus_text_has_a_part_where_there_is_some(tree: dict[str, Any], learned: list[str]) -> None:
    settings = resolve({"tasks": NER, "pretrain": {"weighting": "equal"}, **tree})
    assert list(settings.used_objectives) == learned


def test_what_nobody_said_is_not_written_down(tmp_path: Any) -> None:
    """Else a changed value would meet objectives that were made for another."""
    settings = resolve({"tasks": NER, "pretrain": {"weighting": "equal"}})
    (tmp_path / "settings.yaml").write_text(dump_yaml(settings))
    assert resolve(read_tree(tmp_path / "settings.yaml")) == settings
    typed = Settings(tasks={"ner": TaskSettings(path="data/ner")}, pretrain=PretrainSettings(weighting="equal"))
    assert (typed.pretrain, typed.used_objectives) == (settings.pretrain, settings.used_objectives)


@pytest.mark.parametrize(
    ("values", "learned"),
    [
        ({"select.name": "none"}, ["task", "ner"]),
        ({"tasks": {}}, ["corpus", "task"]),
        ({"pretrain.weighting": "interleave", "tasks": {}}, ["corpus", "task"]),
        ({"tasks.pos.path": "data/pos"}, ["corpus", "task", "ner", "pos"]),
        ({"pretrain.objectives": TASK_AND_NER}, ["task", "ner"]),
        ({"pretrain": {}}, ["corpus", "task", "ner"]),
    ],
)
def test_a_changed_value_means_what_it_says(values: dict[str, Any], learned: list[str]) -> None:
    base = resolve({"tasks": NER, "pretrain": {"weighting": "equal"}, "corpus": {"sources": [{"path": "texts"}]}})
    changed = with_values(base, values, "cell")
    assert list(changed.used_objectives) == learned
    same = with_values(changed, {}, "cell")
    assert changed_values(STAGES["pretrain"], same) == changed_values(STAGES["pretrain"], changed)
    (variant,) = check_study({"variants": {"one": values}}).variants.values()
    assert with_values(base, variant.values, "cell") == changed


def test_named_objectives_are_left_out_by_nothing_too() -> None:
    base = resolve({"tasks": NER, "pretrain": {"weighting": "equal", "objectives": TASK_AND_NER}})
    assert list(with_values(base, {"pretrain.objectives": {}}, "cell").used_objectives) == ["task", "ner"]


def test_the_end_task_stays_what_decides() -> None:
    """Labels of another task are no labels of the end task: its head is not trained by them."""
    only = {"weighting": "equal", "objectives": {"ner": {"kind": "task", "task": "ner"}}}
    assert not resolve({"tasks": NER, "pretrain": only}).pretrain.trains_task
    with pytest.raises(InputError, match=r"would leave the task head untrained"):
        resolve({"tasks": NER, "pretrain": only, "skip_finetuning": True})
    with pytest.raises(InputError, match=r"meta needs the task's labels"):
        resolve({"tasks": NER, "pretrain": {**only, "weighting": "meta"}})


@pytest.mark.parametrize(
    ("tree", "scored"),
    [
        ({"pretrain": {"weighting": "equal"}}, ()),
        ({"pretrain": {"weighting": "equal"}, "skip_finetuning": True}, ("ner",)),
        ({"finetune": {"tasks": "all"}}, ("ner",)),
        ({"finetune": {"tasks": "all"}, "skip_pretraining": True}, ("ner",)),
        ({"pretrain": {"weighting": "sequence"}, "skip_finetuning": True}, ()),
        ({"pretrain": {"weighting": "sequence", "objectives": NER_THEN_TASK}, "skip_finetuning": True}, ()),
        ({"pretrain": {"weighting": "alternate", "objectives": NER_THEN_TASK}, "skip_finetuning": True}, ("ner",)),
    ],
)
def test_scored_are_those_whose_heads_fit_the_last_body(tree: dict[str, Any], scored: tuple[str, ...]) -> None:
    assert resolve({"tasks": NER, **tree}).scored_tasks == scored


@pytest.mark.parametrize(
    ("tree", "line"),
    [
        ({"tasks": NER}, r"key 'tasks.ner': nothing learns it; pretrain.weighting: interleave trains two"),
        (
            {"tasks": NER, "pretrain": {"weighting": "equal", "objectives": {"a": {"kind": "task"}}}},
            r"key 'tasks.ner': nothing learns it; add pretrain.objectives.ner: \{kind: task, task: ner\}",
        ),
        (
            {"tasks": NER, "pretrain": {"weighting": "equal", "objectives": {"a": {"kind": "task", "task": "nerr"}}}},
            r"key 'pretrain.objectives.a.task': there is no task 'nerr'; did you mean 'ner'\?",
        ),
        (
            {"pretrain": {"weighting": "equal", "objectives": {"a": {"kind": "joint", "task": "ner"}}}},
            r"there is no task 'ner'; there are none under `tasks`",
        ),
        (
            {"tasks": NER, "pretrain": {"objectives": {"a": {"kind": "mlm", "texts": "selection", "task": "ner"}}}},
            r"key 'pretrain.objectives.a.task': this mlm reads selection, not the texts of a task",
        ),
        ({"tasks": {"ner": {}}}, r"key 'tasks.ner.path': say where the labelled data is"),
        ({"tasks": {"ner": {"pth": "x"}}}, r"key 'tasks.ner.pth': unknown setting \(did you mean 'tasks.ner.path'\?\)"),
        ({"tasks": {"a b": {"path": "x"}}}, r"key 'tasks': 'a b' is no name"),
        ({"tasks": {"task": {"path": "x"}}}, r"'task' is a name of the end task or its texts"),
        ({"tasks": {"weight": {"path": "x"}}}, r"'weight' is the name of a curve"),
        (
            {"finetune": {"tasks": "all"}},
            r"key 'finetune.tasks': there are no auxiliary tasks; name them under `tasks`",
        ),
        (
            {"tasks": NER, "skip_finetuning": True, "finetune": {"tasks": "all"}},
            r"key 'tasks.ner': nothing learns it; .*, or set skip_finetuning: false$",
        ),
        (
            {"tasks": NER, "skip_finetuning": True},
            r"nothing learns it; .*, or set skip_finetuning: false and finetune.tasks: all$",
        ),
        (
            {"tasks": NER, "finetune": KEPT},
            r"key 'finetune.keep_better': pre-training does not learn ner, whose head may be saved untrained",
        ),
        (
            {"tasks": NER, "finetune": KEPT, "pretrain": {"weighting": "sequence"}},
            r"key 'finetune.keep_better': pre-training does not learn ner last, ",
        ),
        (
            {"tasks": {1: {"path": "x"}}, "pretrain": {"weighting": "equal"}},
            r"^key 'tasks': 1 is no name; write letters \(a to z\), digits, - and _, a letter first$",
        ),
        ({"tasks": 3, "pretrain": {"weighting": "equal"}}, r"key 'tasks': must be a section"),
        ({"tasks": NER, "pretrain": 3}, r"key 'pretrain': must be a section"),
    ],
)
def test_what_cannot_be_is_refused(tree: dict[str, Any], line: str) -> None:
    with pytest.raises(InputError, match=line):
        resolve(tree)


def test_stage_1_may_be_kept_where_it_learns_all() -> None:
    assert resolve({"tasks": NER, "finetune": KEPT, "pretrain": {"weighting": "equal"}}).learned_tasks == ("ner",)
    main = {**KEPT, "tasks": "main"}
    assert resolve({"tasks": NER, "finetune": main, "pretrain": {"weighting": "sequence"}}).scored_tasks == ()


def test_a_task_may_stand_by_with_weight_0() -> None:
    """An ablation switches its objective off, or pre-training."""
    off = {**TASK_AND_NER, "ner": {"kind": "task", "task": "ner", "weight": 0}}
    assert list(resolve({"tasks": NER, "pretrain": {"weighting": "equal", "objectives": off}}).used_objectives) == [
        "task"
    ]
    assert resolve({"tasks": NER, "skip_pretraining": True}).scored_tasks == ()


def test_auxiliary_tasks_are_in_the_fingerprints_of_what_learns_them() -> None:
    plain, tasks = (
        resolve({"pretrain": {"weighting": "equal"}}),
        resolve({"tasks": NER, "pretrain": {"weighting": "equal"}}),
    )
    for name in ("read", "pretrain"):
        assert "tasks" not in changed_values(STAGES[name], plain)
        assert changed_values(STAGES[name], tasks)["tasks"]["ner"]["path"] == "data/ner"


def test_uses_name_the_task() -> None:
    mixed = {**TASK_AND_NER, "tapt": {"kind": "mlm", "texts": "task", "task": "ner"}}
    settings = resolve(
        {"tasks": NER, "pretrain": {"weighting": "equal", "objectives": mixed}, "finetune": {"tasks": "all"}}
    )
    uses = {use.part: (use.learns, use.reads, use.split, use.labels) for use in data_usage(settings)}
    assert uses["ner"] == ("the task ner on its texts as they are", "the texts of ner", "train", True)
    assert uses["tapt"] == ("masked LM", "the texts of ner", "train", False)
    assert uses["fine-tuning of ner"] == ("the task ner", "the texts of ner", "train", True)
    assert uses["task"][1] == "the task's texts"
