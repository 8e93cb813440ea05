"""Which split is used for what, as messages and reports show it."""

from __future__ import annotations

from typing import Any

from endtask.config import load_settings, resolve
from endtask.config.data_usage import DataUse, chosen_by_dev, data_usage, data_usage_lines


def by_part(tree: dict[str, Any]) -> dict[str, DataUse]:
    return {use.part: use for use in data_usage(resolve(tree))}


def test_no_objective_ever_reads_dev_or_test() -> None:
    objectives = {
        "task": {"kind": "task"},
        "both": {"kind": "joint"},
        "tapt": {"kind": "mlm", "texts": "task"},
        "dapt": {"kind": "mlm", "texts": "domain"},
        "tlm": {"kind": "mlm", "texts": "selection"},
    }
    found = by_part({"pretrain": {"weighting": "equal", "objectives": objectives}})
    assert {name: (found[name].split, found[name].labels) for name in objectives} == {
        "task": ("train", True),
        "both": ("train", True),
        "tapt": ("train", False),
        "dapt": ("-", False),
        "tlm": ("-", False),
    }


def test_what_learned_weights_are_learned_from() -> None:
    train = {"weighting": "meta", "objectives": {"task": {"kind": "task"}, "tapt": {"kind": "mlm", "texts": "task"}}}
    assert by_part({"pretrain": train})["learned weights"].split == "train, 1/10 of it held out in turn"
    few = {use.part: use for use in data_usage(resolve({"pretrain": train}), groups=4)}
    assert few["learned weights"].split == "train, 1/4 of it held out in turn"
    by_dev = {"pretrain": {**train, "weighting": {"name": "meta", "split": "dev"}}}
    assert by_part(by_dev)["learned weights"].split == "train, held-out gradient of dev"
    own_head = {"pretrain": {**train, "weighting": {"name": "meta", "split": "dev", "head": "task"}}}
    assert by_part(own_head)["learned weights"].split == "dev"
    (told,) = chosen_by_dev(data_usage(resolve(by_dev)))
    assert told.startswith("labels of dev choose the weights of objectives")
    assert told.endswith("pretrain.weighting.split=folds uses train instead")
    assert chosen_by_dev(data_usage(resolve({"pretrain": train}))) == ()
    assert chosen_by_dev(data_usage(resolve({**by_dev, "skip_pretraining": True}))) == ()


def test_a_selection_that_reads_labels_is_told() -> None:
    assert "selection" not in by_part({"select": {"name": "dsir"}})
    influence = {"select": {"name": "influence"}}
    assert by_part(influence)["selection"] == DataUse(
        "selection", "which texts help", "the task's texts", "train, each half validated by a model of the other", True
    )
    by_dev = {"select": {"name": "influence", "targets": "dev"}}
    assert by_part(by_dev)["selection"].split == "train, validated by dev"
    assert chosen_by_dev(data_usage(resolve(influence))) == ()
    (told,) = chosen_by_dev(data_usage(resolve(by_dev)))
    assert told.startswith("labels of dev choose the texts of the selection")
    assert told.endswith("select.targets=folds uses train instead")


def test_dev_chooses_where_it_is_scored() -> None:
    assert "best step of pre-training" not in by_part({})
    assert by_part({"pretrain": {"eval_steps": 5}})["best step of pre-training"].split == "dev"
    assert "fine-tuning" not in by_part({"skip_finetuning": True})
    assert "corpus" not in by_part({"skip_pretraining": True})


def test_the_table_has_a_line_for_each() -> None:
    uses = data_usage(load_settings(preset="meta-tlm"))
    lines = list(data_usage_lines(uses))
    assert len(lines) == len(uses) + 1
    assert lines[0].split() == ["objective", "learns", "reads", "split", "labels"]
    starts = {line.index(use.reads) for line, use in zip(lines[1:], uses, strict=True)}
    assert len(starts) == 1, "columns stand below each other"
