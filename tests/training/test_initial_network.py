"""The initial network of a run: random weights by its seed, or a checkpoint that is checked first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

import endtask
from endtask.config import Settings, resolve
from endtask.encoders.network import TLM_TASK
from endtask.encoders.weights import load_tensors
from endtask.errors import InputError
from endtask.pipeline.run import Run
from endtask.serving.predictor import load
from endtask.task import Task
from endtask.tokenization.packed_texts import PackedTexts
from endtask.tokenization.packing import existing_tokenizer
from endtask.tokenization.tokenizer import save_tokenizer
from endtask.training.initial_network import check_checkpoint, network_for
from endtask.training.pretrain import WEIGHTS
from tests.encoders.layouts import batch_of, real_rows, stock_inputs
from tests.encoders.stock_models import POSITIONS, save_stock
from tests.tiny import ARCHITECTURES, make_texts, make_tokenizer
from tests.toy_run import toy_settings
from tests.training.conftest import changed, packed_in

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def save_roberta_tokenizer(folder: Path) -> None:
    """As RoBERTa's: other names and numbers of the special tokens, `</s></s>` between two texts, no token types."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
    tokenizer.train_from_iterator(make_texts(100), trainers.BpeTrainer(vocab_size=90, special_tokens=SPECIAL))
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    names = {"bos": 0, "pad": 1, "eos": 2, "unk": 3, "mask": 4, "cls": 0, "sep": 2}
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, **{f"{role}_token": SPECIAL[number] for role, number in names.items()}
    )
    save_tokenizer(fast, folder)


def save_checkpoint(folder: Path, architecture: str, kind: str = "masked_lm", **changes: Any) -> Any:
    """A stock model with its tokenizer."""
    if architecture == "roberta":
        save_roberta_tokenizer(folder)
    else:
        save_tokenizer(make_tokenizer(), folder)
    return save_stock(folder, architecture, kind, **changes)


def from_checkpoint(settings: Settings, folder: Path, **sections: Any) -> Settings:
    return changed(settings, model={"path": str(folder)}, **sections)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("head", ["stock", "tlm"])
def test_random_weights_follow_the_settings(
    task: Task, packed: Path, run_settings: Settings, architecture: str, head: str
) -> None:
    settings = changed(run_settings, model={"architecture": architecture}, pretrain={"task_head": head})
    network = network_for(task, packed, settings)
    assert network.architecture.name == architecture
    assert (TLM_TASK in network.heads) == (head == "tlm")
    assert tuple(network.config.id2label.values()) == task.labels
    same, other = network_for(task, packed, settings), network_for(task, packed, changed(settings, seed=1))
    assert network.embeddings.equal(same.embeddings)
    assert not network.embeddings.equal(other.embeddings)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@torch.inference_mode()
def test_a_checkpoint_with_its_own_tokenizer(
    task: Task, run_settings: Settings, architecture: str, tmp_path: Path
) -> None:
    stock = save_checkpoint(tmp_path / "model", architecture)
    settings = from_checkpoint(run_settings, tmp_path / "model", pretrain={"task_head": "tlm"})
    check_checkpoint(task, settings)
    packed = packed_in(tmp_path, task, settings)
    network = network_for(task, packed, settings).eval()
    assert network.architecture.name == architecture
    assert TLM_TASK in network.heads
    texts = PackedTexts(packed / "dev")
    theirs = real_rows(stock(**stock_inputs(network, texts)).logits, texts)
    batch = batch_of(network, texts)
    assert network.masked_logits(network(batch), torch.arange(len(batch.input_ids))).allclose(theirs, atol=1e-5)
    if architecture == "roberta":
        assert texts[0][0] == 0
        assert np.array_equal(texts.second, texts.lengths)  # no token types


def test_another_tokenizer_may_have_fewer_tokens_but_not_more(
    task: Task, run_settings: Settings, tmp_path: Path
) -> None:
    save_checkpoint(tmp_path / "model", "bert")
    save_tokenizer(make_tokenizer(), tmp_path / "other")
    settings = from_checkpoint(run_settings, tmp_path / "model", tokenizer={"path": str(tmp_path / "other")})
    check_checkpoint(task, settings)
    size = len(make_tokenizer())
    save_stock(tmp_path / "model", "bert", vocab_size=size - 1)
    message = rf"key 'tokenizer.path': the tokenizer has {size} tokens, the checkpoint .*model vectors for {size - 1}"
    with pytest.raises(InputError, match=message):
        check_checkpoint(task, settings)
    save_tokenizer(make_tokenizer(), tmp_path / "packed" / "tokenizer")
    with pytest.raises(InputError, match=message):
        network_for(task, tmp_path / "packed", settings)


def test_marks_need_no_room_in_the_checkpoint(task: Task, run_settings: Settings, tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "model", "bert")  # with room for seven
    markers = ["[[", "]]", "<<", ">>", "{{", "}}", "@A$", "@B$"]
    settings = from_checkpoint(run_settings, tmp_path / "model", tokenizer={"entity_markers": markers})
    check_checkpoint(task, settings)
    tokenizer = existing_tokenizer(settings)
    assert tokenizer is not None
    save_tokenizer(tokenizer, tmp_path / "packed" / "tokenizer")
    assert len(network_for(task, tmp_path / "packed", settings).embeddings) == len(tokenizer)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("key", ["pretrain.max_length", "pretrain.task_max_length", "finetune.max_length"])
def test_a_text_longer_than_the_checkpoint_reads_is_refused(
    task: Task, packed: Path, run_settings: Settings, architecture: str, key: str, tmp_path: Path
) -> None:
    save_checkpoint(tmp_path, architecture)
    section, name = key.split(".")
    longest = from_checkpoint(run_settings, tmp_path, **{section: {name: POSITIONS, "batch_size": 8}})
    check_checkpoint(task, longest)
    settings = from_checkpoint(run_settings, tmp_path, **{section: {name: POSITIONS + 1, "batch_size": 8}})
    message = rf"key '{key}': {POSITIONS + 1} is more than the {POSITIONS} tokens that {tmp_path} can read "
    message += rf"\({key} may be {POSITIONS} at most\)$"
    with pytest.raises(InputError, match=message):
        check_checkpoint(task, settings)


def test_a_checkpoint_that_cannot_be_used_is_met_at_once(task: Task, run_settings: Settings, tmp_path: Path) -> None:
    settings = from_checkpoint(run_settings, tmp_path)
    save_stock(tmp_path, "bert")
    with pytest.raises(InputError, match=r"key 'model.path': holds no tokenizer"):
        check_checkpoint(task, settings)
    save_tokenizer(make_tokenizer(), tmp_path)
    check_checkpoint(task, settings)
    weights = tmp_path / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"model.safetensors: damaged: .*copy or download the checkpoint again"):
        check_checkpoint(task, settings)
    weights.unlink()
    with pytest.raises(InputError, match=r"key 'model.path': holds no model.safetensors"):
        check_checkpoint(task, settings)


def test_pairs_need_two_token_types(run_settings: Settings, task: Task, toy_pairs: Path, tmp_path: Path) -> None:
    save_checkpoint(tmp_path, "bert", type_vocab_size=1)
    settings = from_checkpoint(run_settings, tmp_path)
    check_checkpoint(task, settings)
    pairs = Task.read(changed(run_settings, task={"path": str(toy_pairs / "task")}).task, seed=0)
    with pytest.raises(InputError, match=r"cannot tell the texts of a pair apart"):
        check_checkpoint(pairs, settings)


@pytest.mark.parametrize("architecture", ["roberta", "modernbert"])
def test_a_whole_run_from_a_checkpoint(toy: Path, architecture: str, tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "model", architecture, "bare")
    settings = toy_settings(toy, tmp_path / "run", model={"path": str(tmp_path / "model")}, tokenizer={})
    result = endtask.run(settings)
    assert result.score is not None
    config = json.loads((tmp_path / "run" / "model" / "config.json").read_text())
    assert (config["model_type"], config["num_hidden_layers"]) == (architecture, 3)
    predictions = load(tmp_path / "run").predict(["soup bread salt", "star moon orbit"])
    assert {one.label for one in predictions} <= {"food", "space", "sport"}
    assert [state for _, state in Run(resolve(settings)).plan()] == ["finished"] * len(result.stages)


@pytest.mark.parametrize(("budget", "has_room"), [("1ktok", False), ("40ktok", True)])
def test_a_small_budget_goes_to_finetuning_alone(toy: Path, tmp_path: Path, budget: str, has_room: bool) -> None:
    save_checkpoint(tmp_path / "model", "modernbert", "bare")
    settings = toy_settings(toy, tmp_path / "run", model={"path": str(tmp_path / "model")}, tokenizer={}, budget=budget)
    result = endtask.run(settings)
    assert (result.stages["pretrain"]["steps"] > 0) == has_room
    assert (result.stages["pretrain"]["finetuning_share"] == 1.0) != has_room
    assert result.stages["finetune"]["steps_per_seed"] > 0
    assert result.score is not None
    if not has_room:
        weights, _ = load_tensors(tmp_path / "run" / "pretrain" / WEIGHTS)
        stored, _ = load_tensors(tmp_path / "model" / "model.safetensors")
        same = [name for name in weights if any(weights[name].equal(value) for value in stored.values())]
        assert len(same) > len(stored) / 2, "the checkpoint as it was"
    assert [state for _, state in Run(resolve(settings)).plan()] == ["finished"] * len(result.stages)


def test_a_run_from_the_hubs_cache(toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a network, from what an earlier download left; its revision is what the run depends on."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    repository, revision = tmp_path / "hub" / "models--someone--tiny", "0123456789abcdef0123456789abcdef01234567"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(revision)
    save_checkpoint(repository / "snapshots" / revision, "bert")
    settings = toy_settings(toy, tmp_path / "run", model={"path": "hf:someone/tiny"}, tokenizer={})
    endtask.run(settings, until="pretrain")
    for stage, name in (("pack", "tokenizer"), ("pretrain", "checkpoint")):
        manifest = json.loads((tmp_path / "run" / stage / "manifest.json").read_text())
        assert manifest["inputs"][name] == revision


def test_a_changed_checkpoint_is_noticed(toy: Path, tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "model", "bert")
    settings = toy_settings(toy, tmp_path / "run", model={"path": str(tmp_path / "model")}, tokenizer={})
    endtask.run(settings, until="pretrain")
    save_checkpoint(tmp_path / "model", "bert", "classifier")
    with pytest.raises(InputError, match=r"files of the tokenizer|files of the checkpoint") as raised:
        endtask.run(settings)
    assert str(tmp_path / "model") in str(raised.value)
    assert "nothing was touched" in str(raised.value)


def test_changed_weights_leave_the_packed_tokens_as_they_are(toy: Path, tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "model", "bert")
    settings = toy_settings(toy, tmp_path / "run", model={"path": str(tmp_path / "model")}, tokenizer={})
    endtask.run(settings, until="pretrain")
    weights = tmp_path / "model" / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(bytes(data))
    with pytest.raises(InputError, match=r"the files of the checkpoint \(.*model\) changed since .*--from pretrain"):
        endtask.run(settings)


def test_bad_checkpoints_stop_a_run_before_it_starts(toy: Path, tmp_path: Path) -> None:
    settings = toy_settings(toy, tmp_path / "run", model={"path": str(tmp_path / "absent")}, tokenizer={})
    with pytest.raises(InputError, match=r"absent, key 'model.path': no such checkpoint folder"):
        endtask.run(settings)
    assert not (tmp_path / "run").exists()
