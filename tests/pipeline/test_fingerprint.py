"""The fingerprint of a stage covers values that differ from the defaults and the code of plug-ins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from endtask.config import Settings, resolve
from endtask.errors import InputError
from endtask.pipeline import stage as fingerprint_module
from endtask.pipeline.stage import changed_values, stage_fingerprint
from endtask.pipeline.stages import STAGES
from endtask.registry import PLUGINS_VARIABLE, load_plugin, selectors

TAPT = {"weighting": "equal", "objectives": {"tapt": {"kind": "mlm", "texts": "task"}}}
DAPT = {"weighting": "equal", "objectives": {"dapt": {"kind": "mlm", "texts": "domain"}}}
PLUGIN = """
from endtask.selectors.base import Selector, selectors

@selectors.register("first_ones")
class FirstOnes(Selector):
    ...
"""


def digest(stage: str, tree: dict[str, Any], **inputs: str) -> str:
    return stage_fingerprint(STAGES[stage], resolve(tree), inputs)


@pytest.mark.parametrize("stage", STAGES)
def test_nothing_differs_by_default(stage: str) -> None:
    assert changed_values(STAGES[stage], Settings()) == {}


@pytest.mark.parametrize(
    ("stage", "tree"),
    [
        ("select", {"select": {"name": "best_rank", "budget": "5%, at least 20MB"}}),
        ("pretrain", {"pretrain": {"learning_rate": Settings().pretrain.learning_rate}}),
        ("finetune", {"finetune": {"seeds": list(Settings().finetune.seeds)}}),
        ("pack", {"tokenizer": {"vocab_size": Settings().tokenizer.vocab_size}}),
    ],
)
def test_a_default_that_is_written_out_changes_nothing(stage: str, tree: dict[str, Any]) -> None:
    assert digest(stage, tree) == digest(stage, {})


@pytest.mark.parametrize(
    ("stage", "tree"),
    [
        ("select", {"select": {"name": "dsir"}}),
        ("select", {"select": {"budget": "7%"}}),
        ("pretrain", {"pretrain": TAPT}),
        ("pretrain", {"pretrain": {"learning_rate": 0.5}}),
        ("finetune", {"finetune": {"epochs": 77}}),
    ],
)
def test_other_values_count(stage: str, tree: dict[str, Any]) -> None:
    assert digest(stage, tree) != digest(stage, {})


def test_options_inside_a_list_of_selectors_count() -> None:
    def fused(**options: Any) -> str:
        members = ["dsir", {"name": "nearest_neighbors", **options}]
        return digest("select", {"select": {"name": "fusion", "selectors": members}})

    assert fused(neighbors=1000) == fused()
    assert fused(neighbors=7) != fused()


def test_inputs_and_the_schema_version_count(monkeypatch: pytest.MonkeyPatch) -> None:
    before = digest("retrieve", {}, corpus="1")
    assert before != digest("retrieve", {}, corpus="2")
    monkeypatch.setattr(fingerprint_module, "SCHEMA_VERSION", fingerprint_module.SCHEMA_VERSION + 1)
    assert before != digest("retrieve", {}, corpus="1")


@pytest.mark.parametrize(
    "select",
    [
        {"name": "dsir", "epochs": 3},
        {"name": "random", "neighbors": 7},
        {"embedding": "e"},
        {"name": "fusion", "selectors": ["best_rank", {"name": "dsir", "path": "p"}]},
    ],
)
def test_options_of_an_unused_selector_are_refused(select: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"key 'select.+(unknown setting|no such option)"):
        resolve({"select": select})


def test_the_domain_counts_where_it_is_read() -> None:
    assert "domain" in STAGES["select"].settings_read(resolve({"pretrain": DAPT}))
    assert "domain" not in STAGES["select"].settings_read(resolve({"pretrain": TAPT}))


def test_the_metric_counts_in_pretraining_where_it_chooses_weights() -> None:
    stage = STAGES["pretrain"]
    assert "evaluate.metric" in stage.settings_read(resolve({"pretrain": {"eval_steps": 5}}))
    assert "evaluate.metric" not in stage.settings_read(Settings())


def test_the_code_of_a_plugin_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PLUGINS_VARIABLE, "")
    monkeypatch.setattr(selectors, "_parts", dict(selectors._parts))
    file = tmp_path / "first_ones.py"
    file.write_text(PLUGIN)
    load_plugin(file)
    before = digest("select", {"select": "first_ones"})
    assert before == digest("select", {"select": "first_ones"})
    file.write_text(PLUGIN + "# changed\n")
    assert before != digest("select", {"select": "first_ones"})
    assert "code" not in changed_values(STAGES["select"], resolve({"select": "dsir"}))["select"]
