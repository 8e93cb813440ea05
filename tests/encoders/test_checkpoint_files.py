"""The files of a checkpoint: in a folder or on the hub, never pickled, identified by their bytes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
import huggingface_hub.constants
import pytest
import torch

from endtask.config import ModelSettings
from endtask.encoders.checkpoint import load_network, open_checkpoint
from endtask.encoders.checkpoint_files import checkpoint_fingerprint, config_file, hub_folder, weight_files
from endtask.encoders.network import Network
from endtask.errors import InputError
from tests.encoders.stock_models import save_stock

REVISION = "0123456789abcdef0123456789abcdef01234567"


def load(path: object) -> Network:
    return load_network(open_checkpoint(str(path)), ModelSettings(), pad_id=1, labels=("a", "b"), seed=0)


def test_weights_in_several_files(tmp_path: Path) -> None:
    model = save_stock(tmp_path / "one", "roberta")
    model.save_pretrained(tmp_path / "many", max_shard_size="5KB")
    assert len(weight_files(str(tmp_path / "many"))) > 2
    one, many = load(tmp_path / "one").state_dict(), load(tmp_path / "many").state_dict()
    assert all(value.equal(many[name]) for name, value in one.items())
    lost = weight_files(str(tmp_path / "many"))[1]
    lost.unlink()
    with pytest.raises(InputError, match=rf"model.safetensors.index.json: {lost.name} is listed here and missing"):
        load(tmp_path / "many")
    (tmp_path / "many" / "model.safetensors.index.json").write_text("[]")
    with pytest.raises(InputError, match="damaged: no list of weight files"):
        load(tmp_path / "many")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "pytorch_model-00001-of-00002.bin"])
def test_pickled_weights_are_refused_unread(name: str, tmp_path: Path) -> None:
    model = save_stock(tmp_path, "bert")
    (tmp_path / "model.safetensors").unlink()
    torch.save(model.state_dict(), tmp_path / name)
    with pytest.raises(
        InputError, match=rf"only pickled weights \({name}\), which are not read \(convert .*safetensors"
    ):
        load(tmp_path)


def test_a_folder_without_weights_is_refused(tmp_path: Path) -> None:
    save_stock(tmp_path, "bert")
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(InputError, match=r"key 'model.path': holds no model.safetensors$"):
        load(tmp_path)


def test_a_place_without_a_checkpoint_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"absent, key 'model.path': no such checkpoint folder \(on the hub it would be"
    ):
        open_checkpoint(str(tmp_path / "absent"))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(InputError, match=r"no such checkpoint folder \(name the folder, not a file in it\)"):
        open_checkpoint(str(tmp_path / "config.json"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"empty, key 'model.path': holds no config.json"):
        open_checkpoint(str(tmp_path / "empty"))


def test_a_copy_has_the_same_fingerprint_and_a_changed_byte_another(tmp_path: Path) -> None:
    save_stock(tmp_path / "one", "bert")
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    (tmp_path / "copy" / "README.md").write_text("no part of the model")
    mark = checkpoint_fingerprint(str(tmp_path / "one"))
    assert checkpoint_fingerprint(str(tmp_path / "copy")) == mark
    for name in ("config.json", "model.safetensors"):
        path = tmp_path / "copy" / name
        whole = path.read_bytes()
        path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        assert checkpoint_fingerprint(str(tmp_path / "copy")) != mark
        path.write_bytes(whole)
    assert checkpoint_fingerprint(None) == "random"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """A hub cache that holds one revision of a model, on a machine without a network."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)

    def make(name: str) -> Path:
        repository = tmp_path / "hub" / f"models--{name.replace('/', '--')}"
        (repository / "refs").mkdir(parents=True)
        (repository / "refs" / "main").write_text(REVISION)
        return repository / "snapshots" / REVISION

    return make


def test_a_model_of_the_hub_is_read_from_its_cache(cache: Callable[[str], Path]) -> None:
    model = save_stock(cache("someone/tiny"), "roberta")
    network = load("hf:someone/tiny")
    assert network.embeddings.equal(model.roberta.embeddings.word_embeddings.weight)
    assert checkpoint_fingerprint("hf:someone/tiny") == REVISION


def test_a_model_that_cannot_be_fetched_is_one_line(cache: Callable[[str], Path]) -> None:
    for path, message in {
        "hf:someone/absent": r"hf:someone/absent, key 'model.path': cannot be fetched: ",
        "hf:": r"hf:, key 'model.path': not an address on the hub \(write hf:NAME\)",
        "hf:a/b/c": r"hf:a/b/c, key 'model.path': cannot be fetched: ",
    }.items():
        with pytest.raises(InputError, match=message) as raised:
            open_checkpoint(path)
        assert "\n" not in str(raised.value)


def test_pickled_weights_of_the_hub_are_refused(cache: Callable[[str], Path]) -> None:
    folder = cache("someone/old")
    save_stock(folder, "bert")
    (folder / "model.safetensors").unlink()
    with pytest.raises(
        InputError, match=r"hf:someone/old, .*no model.safetensors; pickled weights, which are not read"
    ):
        load("hf:someone/old")


def test_only_what_is_needed_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The configuration first, the weights of that very revision later, never pickled ones or other formats."""
    asked: list[tuple[str, Any, list[str]]] = []

    def fetch(name: str, *, revision: str | None, allow_patterns: list[str], local_files_only: bool) -> str:
        assert not local_files_only
        asked.append((name, revision, allow_patterns))
        return str(tmp_path / REVISION)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    save_stock(tmp_path / REVISION, "bert")
    assert config_file("hf:someone/tiny") == tmp_path / REVISION / "config.json"
    assert asked == [("someone/tiny", None, ["config.json"])]
    assert weight_files("hf:someone/tiny") == [tmp_path / REVISION / "model.safetensors"]
    name, revision, patterns = asked[-1]
    assert (name, revision) == ("someone/tiny", REVISION)
    assert set(patterns) == {"config.json", "model*.safetensors", "model.safetensors.index.json"}


def test_a_folder_is_never_looked_for_on_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: pytest.fail("the hub was asked"))
    save_stock(tmp_path / "model", "bert")
    load(tmp_path / "model")
    with pytest.raises(InputError, match="no such checkpoint folder"):
        load(tmp_path / "absent")
    with pytest.raises(InputError, match=r"key 'tokenizer.path': not an address"):
        hub_folder("hf:", "config.json", key="tokenizer.path")


@pytest.mark.parametrize(
    "name", ["../../x.safetensors", "/x.safetensors", "below/x.safetensors", "..", "x.bin", "", "\0/x.safetensors"]
)
def test_an_index_that_leads_elsewhere(tmp_path: Path, name: str) -> None:
    save_stock(tmp_path / "model", "bert")
    (tmp_path / "model" / "model.safetensors").unlink()
    (tmp_path / "model" / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(InputError, match=r"index.json: lists '.*', which is not the name of a safetensors file"):
        weight_files(str(tmp_path / "model"))
