"""Preflight finds problems that would stop a run late."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertConfig, BertForMaskedLM

from endtask.config import TokenizerSettings, resolve
from endtask.errors import InputError
from endtask.experiments import compare
from endtask.pipeline.preflight import preflight
from endtask.pipeline.run import Run
from endtask.records import Example
from endtask.task import Task
from endtask.tokenization.tokenizer import save_tokenizer, train_tokenizer
from tests.toy_run import toy_settings

ROWS = [Example(f"r{n}", f"text {n}", "ab"[n % 2]) for n in range(8)]
TASK = Task.from_examples("tiny", {"train": ROWS[:6], "dev": ROWS[6:]}, test_fraction=0.0)


@pytest.mark.parametrize(
    ("tree", "line"),
    [
        (
            {"pretrain": {"weighting": {"rho1": "inf"}}},
            "key 'pretrain.objectives': nothing is left to train on.*rho1: inf",
        ),
        ({"evaluate": {"threshold": 0.3}}, "key 'evaluate.threshold': has no meaning for a task of type 'text'"),
        ({"evaluate": {"metric": "pearson"}}, "key 'evaluate.metric': 'pearson' does not fit"),
        (
            {"pretrain": {"weighting": {"rho1": "inf"}}, "select": {"name": "none"}},
            "key 'pretrain.objectives': nothing is left",
        ),
        (
            {"pretrain": {"weighting": "meta"}},
            "key 'pretrain.weighting': meta has nothing to weigh: without corpus text ",
        ),
        ({"pretrain": {"reselect": {"every": 9}}}, "key 'pretrain.reselect.every': there is no corpus text"),
        ({"device": "cpu", "model": {"attention": "varlen"}}, "key 'model.attention': varlen does not work here"),
        ({"tokenizer": {"entity_markers": ["[[", "[["]}}, "key 'tokenizer.entity_markers': '\\[\\[' is named twice"),
        ({"model": {"hidden_size": 10, "num_attention_heads": 3}}, "key 'model.hidden_size'"),
        ({"model": {"path": "/nowhere/at/all"}}, "/nowhere/at/all"),
    ],
)
def test_one_line_before_anything_is_read(tree: dict[str, Any], line: str) -> None:
    with pytest.raises(InputError, match=line) as raised:
        preflight(TASK, resolve(tree))
    assert "\n" not in str(raised.value)


def test_nothing_wrong_is_nothing_said() -> None:
    preflight(TASK, resolve({"skip_pretraining": True, "pretrain": {"weighting": {"rho1": "inf"}}}))


@pytest.mark.parametrize(
    ("model", "line"),
    [
        ({"architecture": "bert", "pooling": "entity_markers"}, "key 'model.pooling'"),
        ({"architecture": "roberta", "attention": "flex"}, "key 'model.attention'"),
        ({"architecture": "modernbert", "attention": "varlen"}, "key 'model.attention'"),
    ],
)
def test_what_an_architecture_cannot_do_is_met_where_it_is_typed(model: dict[str, Any], line: str) -> None:
    with pytest.raises(InputError, match=line):
        resolve({"model": model})
    assert resolve({"model": {"architecture": "roberta", "attention": "varlen"}}).model.attention == "varlen"


ALIGNED = {"sources": [{"path": "rows.jsonl"}]}
LETTERS = {"weighting": "equal", "objectives": {"letters": {"kind": "acronyms"}}}


def with_labels(*labels: str) -> Task:
    rows = [Example(f"r{n}", f"text {n}", labels[n % len(labels)]) for n in range(8)]
    return Task.from_examples("tiny", {"train": rows[:6], "dev": rows[6:]}, test_fraction=0.0)


def test_a_head_that_cannot_be_kept_is_met_before_stage_1() -> None:
    settings = resolve({"aligned": ALIGNED, "pretrain": LETTERS, "finetune": {"head": "aligned"}})
    preflight(with_labels("no", "yes"), settings)
    with pytest.raises(InputError, match=r"finetune\.head.*classes \(a, b\)"):
        preflight(TASK, settings)
    scored = Task.from_examples(
        "scores", {"train": [Example(str(n), f"text {n}", float(n)) for n in range(9)]}, task_type="regression"
    )
    with pytest.raises(InputError, match=r"finetune\.head.*type 'regression'"):
        preflight(scored, settings)
    with pytest.raises(InputError, match=r"finetune\.contrastive.*type 'regression'"):
        preflight(scored, resolve({"finetune": {"contrastive": 1.0}}))


def test_what_is_prepared_here_may_be_trained_where_the_gpu_is(toy: Path, tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    settings = resolve(toy_settings(toy, tmp_path / "run", device="cuda"))
    with pytest.raises(InputError, match="no cuda device"):
        Run(settings).execute()
    assert not (tmp_path / "run").exists()
    assert Run(settings).execute(until="pack").stages["pack"]
    with pytest.raises(InputError, match="no cuda device"):
        Run(settings).execute(until="pretrain")
    cells = {"variants": {"one": {}}, "seeds": [0], "baselines": []}
    compared = settings.model_copy(update={"output_dir": str(tmp_path / "compared")})
    with pytest.raises(InputError, match="no cuda device"):
        compare(compared, cells)
    compare(compared, cells, until="pack")
    assert (tmp_path / "compared" / "variants" / "one" / "seed-0" / "pack").is_dir()


def test_marks_that_cannot_be_read_are_met_first(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"key 'model.pooling': there are no entity markers"):
        resolve({"model": {"pooling": "entity_markers"}})
    small = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    bert = BertForMaskedLM(BertConfig(vocab_size=80, max_position_embeddings=128, **small))
    bert.save_pretrained(str(tmp_path / "bert"))
    save_tokenizer(train_tokenizer(["a [[ few ]] words"], TokenizerSettings(vocab_size=64), 128), tmp_path / "bert")
    tree = {
        "model": {"path": str(tmp_path / "bert"), "pooling": "entity_markers"},
        "tokenizer": {"entity_markers": ["[[", "]]"]},
    }
    with pytest.raises(InputError, match=r"key 'model\.pooling': bert has cls"):
        preflight(TASK, resolve(tree))
    preflight(TASK, resolve({**tree, "model": {"path": str(tmp_path / "bert")}}))


@pytest.mark.parametrize(
    ("train", "key", "instead"),
    [
        (
            {"weighting": "meta", "objectives": {"task": {"kind": "task"}, "tapt": {"kind": "mlm", "texts": "task"}}},
            "pretrain.weighting.split",
            {"weighting": {"name": "meta", "split": "dev"}},
        ),
        ({"reselect": {"every": 9}}, "pretrain.reselect.every", {"reselect": {"every": None}}),
    ],
)
def test_a_train_split_that_cannot_be_cut(
    train: dict[str, Any], key: str, instead: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "corpus.txt").write_text("some text\n")
    corpus = {"sources": [{"path": str(tmp_path / "corpus.txt")}]}
    rows = [Example(str(number), "one text alone", label) for number, label in enumerate(("no", "yes", "no"))]
    task = Task.from_examples("one", {"train": rows, "dev": rows}, test_fraction=0.0)
    with pytest.raises(InputError, match=f"'{key}': train is a single group"):
        preflight(task, resolve({"pretrain": train, "corpus": corpus}))
    preflight(task, resolve({"pretrain": {**train, **instead}, "corpus": corpus}))
