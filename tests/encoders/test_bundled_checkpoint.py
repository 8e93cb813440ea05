"""The small pretrained encoder of a package, and runs that start from a package's model."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import BertModel

import endtask
from endtask.config import ModelSettings, resolve
from endtask.encoders.checkpoint import load_network, open_checkpoint
from endtask.encoders.checkpoint_files import (
    SMALL_PRETRAINED,
    SMALL_PRETRAINED_NOTE,
    checkpoint_fingerprint,
    config_file,
    small_pretrained,
    weight_files,
)
from endtask.errors import InputError
from endtask.pipeline.check import check
from endtask.pipeline.run import Run
from endtask.tokenization.tokenizer import load_tokenizer, save_tokenizer
from tests.encoders.layouts import batch_of, real_rows, stock_inputs
from tests.encoders.stock_models import save_stock
from tests.tiny import LABELS, make_packed, make_tokenizer
from tests.toy_run import toy_settings

NAME = "tiny_carrier"
PATH = f"package:{NAME}"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that packages are found in."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    return folder


@pytest.fixture
def carrier(site: Path) -> Path:
    """The model folder of an installed package like the real one: a bare BERT as older releases saved it."""
    folder = site / NAME / "model"
    save_stock(folder, "bert", "bare")
    save_tokenizer(make_tokenizer(), folder)
    (site / NAME / "__init__.py").write_text("raise AssertionError('the code of the package was run')")
    edit_weights(folder, lambda tensors: tensors | {"embeddings.position_ids": torch.arange(24)[None]})
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["truncation"] = {"direction": "Right", "max_length": 6, "strategy": "LongestFirst", "stride": 0}
    tokenizer["padding"] = {
        "strategy": {"Fixed": 6},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "[PAD]",
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return folder


def edit_weights(folder: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    save_file(change(load_file(folder / "model.safetensors")), folder / "model.safetensors", metadata={"format": "pt"})


def load(path: str = PATH) -> Any:
    return load_network(open_checkpoint(path), ModelSettings(), pad_id=0, labels=LABELS, seed=0).eval()


def from_package(toy: Path, output: Path, path: str = PATH) -> dict[str, Any]:
    finetune = {"max_length": 16, "batch_size": 16, "epochs": 1, "seeds": [0]}
    changes = {"skip_pretraining": True, "corpus": {"sources": []}, "model": {"path": path}, "finetune": finetune}
    return toy_settings(toy, output, **changes)


def test_the_small_encoder_is_found_where_its_package_is(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = SMALL_PRETRAINED.removeprefix("package:")
    monkeypatch.setattr(sys, "path", [str(site)])
    assert small_pretrained() is None
    save_stock(site / name / "model", "bert", "bare")
    (site / name / "__init__.py").write_text("raise AssertionError('the code of the package was run')")
    assert small_pretrained() == site / name / "model"
    (site / name / "model" / "model.safetensors").unlink()
    assert small_pretrained() is None
    assert "billion sentence pairs" in SMALL_PRETRAINED_NOTE
    assert "\n" not in SMALL_PRETRAINED_NOTE


def test_the_files_are_the_packages_and_known_by_their_bytes(carrier: Path, tmp_path: Path) -> None:
    assert config_file(PATH) == carrier / "config.json"
    assert weight_files(PATH) == [carrier / "model.safetensors"]
    shutil.copytree(carrier, tmp_path / "copy")
    assert checkpoint_fingerprint(PATH) == checkpoint_fingerprint(str(tmp_path / "copy"))
    mark = checkpoint_fingerprint(PATH)
    edit_weights(carrier, lambda tensors: {key: value + 1 for key, value in tensors.items()})
    assert checkpoint_fingerprint(PATH) != mark


@pytest.mark.parametrize(("precision", "tolerance"), [(None, 1e-5), (torch.float16, 1e-2), (torch.bfloat16, 1e-1)])
@torch.inference_mode()
def test_the_encoder_gives_the_stock_vectors_in_float32(
    carrier: Path, tmp_path: Path, precision: torch.dtype | None, tolerance: float
) -> None:
    stock, texts = BertModel.from_pretrained(carrier).eval(), make_packed(tmp_path / "texts", pairs=True)
    if precision is not None:
        edit_weights(carrier, lambda tensors: {key: value.to(precision) for key, value in tensors.items()})
    network = load()
    assert {value.dtype for value in network.parameters()} == {torch.float32}
    theirs = real_rows(stock(**stock_inputs(network, texts)).last_hidden_state, texts)
    assert network(batch_of(network, texts)).allclose(theirs, atol=tolerance)


def test_heads_are_new_even_where_the_checkpoint_has_a_pooler(carrier: Path) -> None:
    pooler = load_file(carrier / "model.safetensors")["pooler.dense.weight"]
    one, same = load().state_dict(), load().state_dict()
    assert not one["heads.task.pooler.dense.weight"].equal(pooler)
    assert all(value.equal(same[name]) for name, value in one.items())


def test_a_weight_that_nothing_asks_for_is_refused(carrier: Path) -> None:
    edit_weights(carrier, lambda tensors: tensors | {"encoder.extra.weight": torch.zeros(2)})
    with pytest.raises(InputError, match=rf"{PATH}, key 'model.path': holds weights that its configuration does not"):
        load()


def test_the_tokenizer_forgets_the_length_it_was_saved_with(carrier: Path, tmp_path: Path) -> None:
    """As that of the real package, which cuts and pads to 128: other tools would obey it in our model's folder too."""
    tokenizer = load_tokenizer(PATH, key="model.path")
    assert len(tokenizer.backend_tokenizer.encode("river " * 20).ids) == 22
    assert len(tokenizer.backend_tokenizer.encode("river").ids) == 3
    save_tokenizer(tokenizer, tmp_path / "saved")
    saved = json.loads((tmp_path / "saved" / "tokenizer.json").read_text())
    assert (saved["truncation"], saved["padding"]) == (None, None)


@pytest.mark.slow
def test_a_whole_run_from_a_package(carrier: Path, toy: Path, tmp_path: Path) -> None:
    result = endtask.run(from_package(toy, tmp_path / "run"))
    assert result.score is not None
    assert PATH in (tmp_path / "run" / "model" / "README.md").read_text()
    saved = load_file(tmp_path / "run" / "model" / "model.safetensors")
    start = load_file(carrier / "model.safetensors")["encoder.layer.0.attention.self.query.weight"]
    moved = (saved["bert.encoder.layer.0.attention.self.query.weight"] - start).abs().max()
    assert 0 < moved < 0.1
    assert NAME not in sys.modules


def test_a_changed_package_is_noticed(carrier: Path, toy: Path, tmp_path: Path) -> None:
    endtask.run(from_package(toy, tmp_path / "run"), until="pack")
    config = json.loads((carrier / "tokenizer_config.json").read_text())
    (carrier / "tokenizer_config.json").write_text(json.dumps(config | {"model_max_length": 99}))
    with pytest.raises(InputError, match=rf"the files of the tokenizer \({PATH}\) changed since this run was made"):
        endtask.run(from_package(toy, tmp_path / "run"))


def test_the_check_reads_a_package(carrier: Path, toy: Path, tmp_path: Path) -> None:
    found = check(resolve(from_package(toy, tmp_path / "run")))
    assert found.estimate is not None
    assert found.examples[0]["masked"].startswith("[CLS]")


def test_a_missing_package_is_met_before_anything_is_written(toy: Path, tmp_path: Path) -> None:
    settings = from_package(toy, tmp_path / "run", "package:no_such_carrier_xyz")
    line = r"package:no_such_carrier_xyz, key 'model.path': no such package is installed \(pip install no-such-carrier-"
    for act in (lambda: Run(resolve(settings)).execute(), lambda: Run(resolve(settings)).plan()):
        with pytest.raises(InputError, match=line):
            act()
    assert not (tmp_path / "run").exists()
    with pytest.raises(InputError, match=r"package:no_such_carrier_xyz, key 'tokenizer.path': no such package"):
        load_tokenizer("package:no_such_carrier_xyz")
