"""A wrong setting gives one line: place, key and the right spelling."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from endtask.config import Settings, resolve
from endtask.config.messages import _OTHER_KEYS, holds_named_sections, section_of
from endtask.errors import InputError, nearest
from endtask.io.nested import flatten


def complaint(tree: dict[Any, Any]) -> str:
    with pytest.raises(InputError) as caught:
        resolve(tree, where="run.yaml")
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix("run.yaml, ")


def sections(model: type[BaseModel], place: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], type[BaseModel]]]:
    yield place, model
    for name in model.model_fields:
        below = section_of(model, name)
        if below is not None:
            own = ("own",) if holds_named_sections(model, name) else ()
            yield from sections(below, (*place, name, *own))


def tree_with(place: tuple[str, ...], value: dict[str, Any]) -> dict[str, Any]:
    tree: Any = value
    for name in reversed(place):
        tree = {name: [tree] if name == "sources" else tree}
    return dict(tree)


@pytest.mark.parametrize(("place", "model"), list(sections(Settings)))
def test_a_misspelt_key_is_met_with_the_right_one_at_every_level(
    place: tuple[str, ...], model: type[BaseModel]
) -> None:
    for name in model.model_fields:
        wrong = f"{name}x"
        dotted = ".".join("sources.0" if part == "sources" else part for part in (*place, ""))
        expected = dotted + str(nearest(wrong, sorted(model.model_fields)))
        line = complaint(tree_with(place, {wrong: 1}))
        assert line.startswith(f"key '{dotted}{wrong}': ")
        assert line.endswith(f"(did you mean '{expected}'?)")


@pytest.mark.parametrize(
    ("place", "wrong", "right"),
    [
        (("pretrain",), "save_steps", "'pretrain.checkpoint_steps'"),
        (("finetune",), "save_steps", "'finetune.checkpoint_steps'"),
        ((), "save_steps", "'pretrain.checkpoint_steps' or 'finetune.checkpoint_steps'"),
        (("finetune",), "num_train_epochs", "'finetune.epochs'"),
        (("pretrain",), "num_train_epochs", "'finetune.epochs'"),
        (("pretrain",), "max_steps", "'budget'"),
        (("pretrain",), "warmup_ratio", "'pretrain.warmup_steps'"),
        (("pretrain", "objectives", "own"), "warmup_ratio", "'pretrain.objectives.own.warmup_steps'"),
        (("finetune",), "per_device_train_batch_size", "'finetune.batch_size'"),
        (("pretrain",), "bf16", "'precision'"),
    ],
)
def test_a_name_of_hugging_face_is_met_with_ours(place: tuple[str, ...], wrong: str, right: str) -> None:
    assert complaint(tree_with(place, {wrong: 1})).endswith(f"unknown setting (did you mean {right}?)")


def test_every_name_of_hugging_face_has_one_here() -> None:
    known = [".".join((*place, name)) for place, model in sections(Settings) for name in model.model_fields]
    for other, ours in _OTHER_KEYS.items():
        assert any(ours == key or key.endswith(f".{ours}") for key in known), ours
        assert "did you mean" in complaint({other: 1}), other


@settings(max_examples=50, deadline=None)
@example("[key]")  # what pydantic calls a key that it complains about
@given(st.text(min_size=1).filter(lambda key: key not in Settings.model_fields))
def test_no_unknown_key_is_ever_accepted(key: str) -> None:
    with pytest.raises(InputError, match="unknown setting"):
        resolve({key: 1})


@pytest.mark.parametrize(
    ("tree", "line"),
    [
        (
            {"learning_rate": 1},
            "key 'learning_rate': unknown setting (did you mean 'pretrain.learning_rate' or 'finetune.learning_",
        ),
        (
            {"finetune": {"stride": 5}},
            "key 'finetune.stride': unknown setting (did you mean 'finetune.window_stride'?)",
        ),
        (
            {"task": {"label": "class"}},  # not label_delimiter, which only begins so
            "key 'task.label': unknown setting (did you mean 'task.columns.label'?)",
        ),
        (
            {"model": {"zzz": 1}},
            "key 'model.zzz': unknown setting (known: architecture, attention, dropout, hidden_size, ",
        ),
        (
            {"task": {"type": "Token-Classification"}},
            "key 'task.type': there is no task type 'Token-Classification' (did you mean 'token_classification'?)",
        ),
        (
            {"select": {"name": "influence", "measure": "cosin"}},
            "key 'select.measure': must be 'dot' or 'cosine', got 'cosin' (did you mean 'cosine'?)",
        ),
        (
            {"select": {"name": "influence", "measure": "labels"}},
            "key 'select.measure': must be 'dot' or 'cosine', got 'labels'",
        ),
        (
            {"pretrain": {"weighting": {"rho1": "many"}}},
            "key 'pretrain.weighting.rho1': must be a whole number or 'inf' or 'auto', got 'many'",
        ),
        (
            {"pretrain": {"weighting": {"rho1": 1.5}}},
            "key 'pretrain.weighting.rho1': must be a whole number or 'inf' or 'auto', got 1.5",
        ),
        (
            {"pretrain": {"weighting": {"rho1": -1}}},
            "key 'pretrain.weighting.rho1': must be greater than or equal to 0 or 'inf' or 'auto', got -1",
        ),
        (
            {"pretrain": {"objectives": {"task": {"rho2": -1}}}},
            "key 'pretrain.objectives.task.rho2': must be greater than or equal to 0, got -1",
        ),
        ({"pretrain": {"warmup_steps": -1}}, "key 'pretrain.warmup_steps': must be greater than or equal to 0, got -1"),
        ({"pretrain": {"max_grad_norm": 0}}, "key 'pretrain.max_grad_norm': must be greater than 0, got 0"),
        ({"pretrain": {"dropout": 1}}, "key 'pretrain.dropout': must be less than 1, got 1"),
        ({"compile": "maybe"}, "key 'compile': must be true or false or 'auto' or 'graphs', got 'maybe'"),
        (
            {"report_to": ["wand"]},
            "key 'report_to.0': must be 'tensorboard', 'wandb', 'trackio' or 'mlflow', got 'wand'",
        ),
        (
            {"model": {"path": ""}},
            "key 'model.path': name the checkpoint to start from, a folder, hf:NAME or package:NAME",
        ),
        (
            {"finetune": {"learning_rate": "fast"}},
            "key 'finetune.learning_rate': must be a number or a list such as [a, b], got 'fast'",
        ),
        ({"finetune": {"learning_rate": []}}, "key 'finetune.learning_rate': must be a number or must not be empty"),
        ({"finetune": {"learning_rate": [1e-5, 0]}}, "key 'finetune.learning_rate': must be a number"),
        ({"pretrain": {"learning_rate": "fast"}}, "key 'pretrain.learning_rate': must be a number, got 'fast'"),
        (
            {"pretrain": {"learning_rate": float("inf")}},
            "key 'pretrain.learning_rate': must be a finite number, got inf",
        ),
        (
            {"tokenizer": {"lowercase": "perhaps"}},
            "key 'tokenizer.lowercase': must be true or false, got 'perhaps'",
        ),
        ({"task": {"path": 3}}, "key 'task.path': must be text, got 3"),
        ({"pretrain": 3}, "key 'pretrain': must be a section of `key: value` lines, got 3"),
        ({"corpus": {"sources": 3}}, "key 'corpus.sources': must be a list such as [a, b], got 3"),
        ({"corpus": {"sources": [{"name": "a"}]}}, "key 'corpus.sources.0.path': is required"),
        ({"finetune": {"seeds": []}}, "key 'finetune.seeds': must not be empty"),
        ({"finetune": {"seeds": [0, "a"]}}, "key 'finetune.seeds.1': must be a whole number, got 'a'"),
        ({"retrieve": {"top_k": 0}}, "key 'retrieve.top_k': must be greater than 0 or 'auto' or 'auto_large', got 0"),
        (
            {"retrieve": {"top_k": "all"}},
            "key 'retrieve.top_k': must be a whole number or 'auto' or 'auto_large', got 'all'",
        ),
        ({"device": "gpu"}, "key 'device': must be 'auto', 'cpu', 'cuda' or 'mps', got 'gpu'"),
        ({"pretrain": {1: 2}}, "key 'pretrain.1': a key must be text, got 1"),
    ],
)
def test_a_wrong_value_is_named_with_what_would_be_right(tree: dict[Any, Any], line: str) -> None:
    assert complaint(tree).startswith(line)


def test_a_misspelling_is_told_before_the_key_it_leaves_unset() -> None:
    line = complaint({"corpus": {"sources": [{"pth": "a.txt"}]}})
    assert line == "key 'corpus.sources.0.pth': unknown setting (did you mean 'corpus.sources.0.path'?)"


BEST = {"start_from": "best"}
KEEP_HEAD = {"head": "pretrained"}


@pytest.mark.parametrize(
    ("tree", "line"),
    [
        (
            {"pretrain": {"max_length": 600}},
            "key 'pretrain.max_length': 600 is more than model.max_position_embeddings 512",
        ),
        (
            {"pretrain": {"task_max_length": 600}},
            "key 'pretrain.task_max_length': 600 is more than model.max_position_embeddings 512",
        ),
        (
            {"finetune": {"max_length": 600}},
            "key 'finetune.max_length': 600 is more than model.max_position_embeddings 512",
        ),
        (
            {"pretrain": {"batch_size": "255tok"}},
            "key 'pretrain.batch_size': 255tok is less than two texts of 128 tokens",
        ),
        (
            {"pretrain": {"batch_size": "1000tok", "task_max_length": 501}},
            "key 'pretrain.batch_size': 1000tok is less than two texts of 501 tokens",
        ),
        (
            {"finetune": {"batch_size": "100tok", "max_length": 51}},
            "key 'finetune.batch_size': 100tok is less than two texts of 51 tokens",
        ),
        (
            {"skip_pretraining": True, "skip_finetuning": True},
            "key 'skip_pretraining': true with skip_finetuning: true would train nothing",
        ),
        (
            {"skip_pretraining": True, "finetune": BEST},
            "key 'finetune.start_from': best needs pre-training; skip_pretraining is true",
        ),
        (
            {"skip_finetuning": True, "pretrain": {"weighting": {"rho1": "inf"}}},
            "key 'skip_finetuning': true with pretrain.weighting.rho1: inf would leave the task head untrained",
        ),
        ({"finetune": BEST}, "key 'finetune.start_from': best needs pretrain.eval_steps"),
        (
            {"pretrain": {"eval_steps": 5, "weighting": {"rho1": "inf"}}},
            "key 'pretrain.eval_steps': dev is scored by the task head, which pretrain.weighting.rho1: inf never trains",
        ),
        (
            {"finetune": {"seeds": [3, 1, 3]}},
            "key 'finetune.seeds': the seed 3 is given twice and would count as two runs",
        ),
        (
            {"finetune": KEEP_HEAD, "pretrain": {"task_head": "tlm"}},
            "key 'finetune.head': pretrained needs pretrain.task_head: stock, the head of the saved model",
        ),
        (
            {"corpus": {"sources": [{"path": "a", "name": "x"}, {"path": "b", "name": "x"}]}},
            "key 'corpus': two sources are named 'x'",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(tree: dict[str, Any], line: str) -> None:
    assert complaint(tree) == line


@pytest.mark.parametrize(
    "tree",
    [
        {"pretrain": {"weighting": {"rho1": "inf"}}},
        {"pretrain": {"weighting": {"rho1": "auto"}}},
        {"pretrain": {"weighting": {"rho1": 0}}},
        {"pretrain": {"objectives": {"task": {"rho2": 0}}}},
        {"pretrain": {"max_length": 64, "task_max_length": 512}},
        {"pretrain": {"batch_size": "256tok"}},
        {"pretrain": {"max_grad_norm": None, "warmup_steps": 0}},
        {"pretrain": {"max_length": 8192, "batch_size": 32}, "model": {"path": "folder"}},
        {"skip_pretraining": True},
        {"skip_finetuning": True},
        {"skip_finetuning": True, "pretrain": {"weighting": {"rho1": "auto"}}},
        {"finetune": BEST, "pretrain": {"eval_steps": 5}},
        {"finetune": KEEP_HEAD},
        {"finetune": {"learning_rate": [1e-5, 2e-5]}},
    ],
)
def test_unusual_settings_that_make_sense_are_accepted(tree: dict[str, Any]) -> None:
    written = flatten(resolve(tree).model_dump(mode="json"))
    assert flatten(tree).items() <= written.items()


@pytest.mark.parametrize(
    ("overridden", "tree"),
    [
        ("pretrain.max_length", {"pretrain": {"max_length": 600}}),
        ("model.max_position_embeddings", {"model": {"max_position_embeddings": 64}}),
        ("pretrain", {"pretrain": {"max_length": 600}}),
    ],
)
def test_a_contradiction_that_comes_from_the_command_line_is_blamed_on_it(
    overridden: str, tree: dict[str, Any]
) -> None:
    with pytest.raises(InputError, match=r"^--set, key 'pretrain.max_length': "):
        resolve(tree, where="run.yaml", overridden=[overridden])
    with pytest.raises(InputError, match=r"^run.yaml, key 'pretrain.max_length': "):
        resolve(tree, where="run.yaml", overridden=["seed"])


def test_every_setting_has_a_meaning() -> None:
    nameless = [
        ".".join((*place, name))
        for place, model in sections(Settings)
        for name, field in model.model_fields.items()
        if not field.description and section_of(model, name) is None
    ]
    assert nameless == []
