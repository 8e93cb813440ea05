"""Settings of aligned objectives: contradictions raise errors of one line."""

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
        ({"aligned": {"subwords_sampling": ["wiki"]}}, "subword_sampling"),
        ({"pretrain": {"objectives": {"links": {"kind": "hyperlinks", "span_label": "bio"}}}}, "span_labels"),
        ({"pretrain": {"objectives": {"links": {"kind": "hyperlink"}}}}, "hyperlinks"),
        ({"pretrain": {"objectives": {"links": {"kind": "hyperlinks", "texts": "task"}}}}, "reads aligned"),
        ({"pretrain": {"objectives": {"a": {"kind": "task"}}}, "finetune": {"head": "aligned"}}, "finetune.head"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        resolve(tree(**changes))


def test_packing_reads_the_section_only_where_an_objective_is_aligned() -> None:
    plain, used = resolve({}), resolve(TREE)
    assert "aligned" not in STAGES["pack"].settings_read(plain)
    assert "aligned" in STAGES["pack"].settings_read(used)
    assert "aligned" in STAGES["pack"].inputs_read(used)
    assert "aligned" not in STAGES["pack"].inputs_read(plain)
