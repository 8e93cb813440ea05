"""Settings of aligned objectives: what does not fit together is refused in one line."""

from __future__ import annotations

from typing import Any

import pytest

from endtask.config import resolve
from endtask.errors import InputError
from endtask.pipeline.stages import STAGES

TREE: dict[str, Any] = {
    "aligned": {"sources": [{"path": "wiki.jsonl"}]},
    "pretrain": {"weighting": "equal", "objectives": {"links": {"kind": "hyperlinks"}}},
}


def tree(**changes: Any) -> dict[str, Any]:
    merged = {name: {**TREE.get(name, {}), **values} for name, values in changes.items()}
    return {**TREE, **merged}


def test_what_fits_is_accepted() -> None:
    settings = resolve(TREE)
    assert settings.reads_aligned
    assert settings.pretrain.used_objectives["links"].reads == "aligned"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"aligned": {"sources": []}}, r"aligned\.sources.*name the files"),
        ({"pretrain": {"max_length": 24}}, r"train\.max_length.*aligned objectives need 32 tokens"),
        ({"aligned": {"subword_sampling": ["wiki"]}}, "needs tokenizer.kind: unigram"),
        ({"aligned": {"spans_from": "title_case"}, "tokenizer": {"lowercase": False}}, "title_case can be read off"),
        ({"aligned": {"spans_from": "markups"}}, "markup"),
        ({"aligned": {"span_from": "markup"}}, "spans_from"),
        ({"aligned": {"entity_markers": ["[[", "]]"]}}, "entity_markers"),
        ({"pretrain": {"objectives": {"links": {"kind": "hyperlink"}}}}, "hyperlinks"),
        ({"pretrain": {"objectives": {"links": {"kind": "hyperlinks", "texts": "task"}}}}, "reads aligned"),
        ({"pretrain": {"objectives": {"a": {"kind": "task"}}}, "aligned": {"keep_head": True}}, "keep_head"),
        ({"aligned": {"keep_head": True}, "finetune": {"reset_head": False}}, r"keep_head.*reset_head"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        resolve(tree(**changes))


def test_stages_read_the_section_only_where_an_objective_is_aligned() -> None:
    plain, used = resolve({}), resolve(TREE)
    for name in ("pack", "pretrain", "finetune"):
        assert not any(key.startswith("aligned") for key in STAGES[name].settings_read(plain))
        assert any(key.startswith("aligned") for key in STAGES[name].settings_read(used))
    assert "aligned" in STAGES["pack"].inputs_read(used)
    assert "aligned" not in STAGES["pack"].inputs_read(plain)
