"""What is saved is what was trained: stock Hugging Face models give the network's own logits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from endtask.models.batch import TextBatch, gather_texts
from endtask.models.huggingface import save_classifier, to_masked_lm, to_sequence_classification
from endtask.models.network import Network
from endtask.text.packed import PackedTexts, pack_examples
from endtask.text.tokenizer import save_tokenizer
from tests.tiny import ARCHITECTURES, LABELS, MAX_LENGTH, make_network, make_packed, make_texts, make_tokenizer, shake

# A process in which endtask cannot be imported, as on a machine that never had it.
LOAD_WITHOUT_ENDTASK = """
import importlib.abc, json, sys
class NoEndtask(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "endtask":
            raise ImportError("endtask is not installed here")
sys.meta_path.insert(0, NoEndtask())
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer
answers = {}
for folder in sys.argv[2:]:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    for name, columns in json.load(open(sys.argv[1])).items():
        inputs = tokenizer(*columns, truncation=True, padding=True, return_tensors="pt")
        with torch.inference_mode():
            answers[f"{folder}/{name}"] = model(**inputs).logits.tolist()
    answers[f"{folder}/labels"] = list(model.config.id2label.values())
assert not any(name.partition(".")[0] == "endtask" for name in sys.modules)
print(json.dumps(answers))
"""


def inputs_of(network: Network, batch: TextBatch) -> dict[str, torch.Tensor]:
    inputs = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask}
    return inputs | ({"token_type_ids": batch.token_type_ids} if network.architecture.name == "bert" else {})


@torch.inference_mode()
def class_logits(network: Network, texts: PackedTexts) -> torch.Tensor:
    batch = gather_texts(texts, np.arange(len(texts)), 0)
    return network.task_logits(network(batch), batch)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("pairs", [False, True])
@torch.inference_mode()
def test_the_stock_classifier_gives_our_logits(architecture: str, pairs: bool, tmp_path: Path) -> None:
    network, texts = shake(make_network(architecture, dropout=0.1)).eval(), make_packed(tmp_path, pairs=pairs)
    batch = gather_texts(texts, np.arange(len(texts)), 0)
    stock = to_sequence_classification(network)
    assert not stock.training
    ours = class_logits(network, texts)
    assert ours.allclose(stock(**inputs_of(network, batch)).logits, atol=1e-6)
    assert ours.std(dim=0).min() > 1e-2


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@torch.inference_mode()
def test_the_stock_masked_lm_gives_our_logits(architecture: str, tmp_path: Path) -> None:
    network, texts = shake(make_network(architecture, dropout=0.1)).eval(), make_packed(tmp_path, pairs=True)
    batch = gather_texts(texts, np.arange(len(texts)), 0)
    ours = network.masked_logits(network(batch), torch.arange(batch.input_ids.numel()))
    stock = to_masked_lm(network)(**inputs_of(network, batch)).logits.flatten(0, 1)
    real = batch.attention_mask.flatten().bool()
    assert ours[real].allclose(stock[real], atol=1e-5)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_copy_shares_nothing_with_the_network(architecture: str) -> None:
    network = shake(make_network(architecture, dropout=0.1)).eval()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    with torch.no_grad():
        for model in (to_sequence_classification(network), to_masked_lm(network)):
            for parameter in model.parameters():
                parameter.zero_()
    assert all(value.equal(before[name]) for name, value in network.state_dict().items())


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("convert", [to_sequence_classification, to_masked_lm])
def test_a_weight_without_a_place_is_an_error(
    architecture: str, convert: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = shake(make_network(architecture, dropout=0.1)).eval()
    names = "to_classifier" if convert is to_sequence_classification else "to_masked_lm"
    prefixes = getattr(network.architecture, names)
    for lost in prefixes:
        monkeypatch.setattr(network.architecture, names, {k: v for k, v in prefixes.items() if k != lost})
        with pytest.raises((RuntimeError, ValueError), match=r"[Mm]issing"):
            convert(network)  # type: ignore[operator]
    stray = {**prefixes, "body.": "elsewhere."}
    monkeypatch.setattr(network.architecture, names, stray)
    with pytest.raises((RuntimeError, ValueError), match=r"[Uu]nexpected"):
        convert(network)  # type: ignore[operator]


def test_saved_models_load_where_endtask_is_not(tmp_path: Path) -> None:
    firsts, seconds = make_texts(9, seed=5, longest=20), make_texts(9, seed=6, longest=20)
    columns = {"single": [firsts], "pair": [firsts, seconds]}
    (tmp_path / "texts.json").write_text(json.dumps(columns))
    expected = {}
    for architecture in ARCHITECTURES:
        folder, network = tmp_path / architecture, shake(make_network(architecture, dropout=0.1)).eval()
        save_classifier(network, folder)
        save_tokenizer(make_tokenizer(), folder)
        expected[f"{folder}/labels"] = list(LABELS)
        for name, given in columns.items():
            rows = list(zip(*given, strict=True)) if len(given) == 2 else [(text, None) for text in given[0]]
            packed = pack_examples(rows, make_tokenizer(), MAX_LENGTH, tmp_path / "packed" / name)
            expected[f"{folder}/{name}"] = class_logits(network, packed).tolist()
    command = [sys.executable, "-I", "-c", LOAD_WITHOUT_ENDTASK, str(tmp_path / "texts.json")]
    finished = subprocess.run(
        [*command, *(str(tmp_path / architecture) for architecture in ARCHITECTURES)],
        capture_output=True,
        text=True,
        env=dict(os.environ),
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    answers = json.loads(finished.stdout)
    assert answers.keys() == expected.keys()
    for name, values in expected.items():
        assert answers[name] == (values if name.endswith("labels") else pytest.approx(np.array(values), abs=1e-6)), name


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_saved_configuration_is_complete(architecture: str, tmp_path: Path) -> None:
    save_classifier(make_network(architecture, dropout=0.1), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["id2label"] == {str(number): label for number, label in enumerate(LABELS)}
    assert config["pad_token_id"] == make_tokenizer().pad_token_id
    assert config["vocab_size"] == len(make_tokenizer())
    if architecture == "modernbert":  # the key that releases before `layer_types` read
        assert config["global_attn_every_n_layers"] == 1
        assert set(config["layer_types"]) == {"full_attention"}
        assert config["classifier_pooling"] == "mean"
