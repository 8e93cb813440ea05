"""A wrong setting gets one line: where, which key, and what would be right."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from endtask.errors import InputError, nearest
from endtask.settings import Settings, resolve
from endtask.settings.explain import section_of


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
            yield from sections(below, (*place, name))


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
        assert line == f"key '{dotted}{wrong}': unknown setting (did you mean '{expected}'?)"


@settings(max_examples=50, deadline=None)
@given(st.text(min_size=1).filter(lambda key: key not in Settings.model_fields))
def test_no_unknown_key_is_ever_accepted(key: str) -> None:
    with pytest.raises(InputError, match="unknown setting"):
        resolve({key: 1})


@pytest.mark.parametrize(
    ("tree", "line"),
    [
        (
            {"learning_rate": 1},
            "key 'learning_rate': unknown setting (did you mean 'train.learning_rate' or 'finetune.learning_",
        ),
        (
            {"model": {"zzz": 1}},
            "key 'model.zzz': unknown setting (known: architecture, dropout, hidden_size, ",
        ),
        ({"train": {"rho1": "many"}}, "key 'train.rho1': must be a whole number, got 'many'"),
        ({"train": {"rho1": 1.5}}, "key 'train.rho1': must be a whole number, got 1.5"),
        ({"train": {"rho1": -1}}, "key 'train.rho1': must be greater than or equal to 0, got -1"),
        ({"train": {"learning_rate": "fast"}}, "key 'train.learning_rate': must be a number, got 'fast'"),
        (
            {"train": {"learning_rate": float("inf")}},
            "key 'train.learning_rate': must be a finite number, got inf",
        ),
        (
            {"tokenizer": {"lowercase": "perhaps"}},
            "key 'tokenizer.lowercase': must be true or false, got 'perhaps'",
        ),
        ({"task": {"path": 3}}, "key 'task.path': must be text, got 3"),
        ({"train": 3}, "key 'train': must be a section of `key: value` lines, got 3"),
        ({"corpus": {"sources": "a.txt"}}, "key 'corpus.sources': must be a list, got 'a.txt'"),
        ({"corpus": {"sources": [{"name": "a"}]}}, "key 'corpus.sources.0.path': is required"),
        ({"finetune": {"seeds": []}}, "key 'finetune.seeds': must not be empty"),
        ({"finetune": {"seeds": [0, "a"]}}, "key 'finetune.seeds.1': must be a whole number, got 'a'"),
        ({"retrieve": {"top_k": 0}}, "key 'retrieve.top_k': must be greater than 0 or 'auto', got 0"),
        ({"retrieve": {"top_k": "all"}}, "key 'retrieve.top_k': must be a whole number or 'auto', got 'all'"),
        ({"device": "gpu"}, "key 'device': must be 'auto', 'cpu', 'cuda' or 'mps', got 'gpu'"),
        ({"train": {1: 2}}, "key 'train.1': a key must be text, got 1"),
    ],
)
def test_a_wrong_value_is_named_with_what_would_be_right(tree: dict[Any, Any], line: str) -> None:
    assert complaint(tree).startswith(line)


def test_a_misspelling_is_told_before_the_key_it_leaves_unset() -> None:
    line = complaint({"corpus": {"sources": [{"pth": "a.txt"}]}})
    assert line == "key 'corpus.sources.0.pth': unknown setting (did you mean 'corpus.sources.0.path'?)"


def test_settings_that_contradict_each_other_are_named() -> None:
    with pytest.raises(InputError, match=r"run.yaml: train.max_length 600 is more than model.max_position"):
        resolve({"train": {"max_length": 600}}, where="run.yaml")
    twice = [{"path": "a", "name": "x"}, {"path": "b", "name": "x"}]
    assert complaint({"corpus": {"sources": twice}}) == "key 'corpus': two sources are named 'x'"


def test_every_setting_has_a_meaning() -> None:
    nameless = [
        ".".join((*place, name))
        for place, model in sections(Settings)
        for name, field in model.model_fields.items()
        if not field.description and section_of(model, name) is None
    ]
    assert nameless == []
