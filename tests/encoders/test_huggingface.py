"""The saved model is the trained model: stock Hugging Face classes give the network's logits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoModelForMaskedLM, AutoModelForSequenceClassification, ModernBertConfig, pipeline

from endtask.encoders.base import encoders
from endtask.encoders.heads import TlmTaskHead
from endtask.encoders.huggingface import save_classifier, save_masked_lm, to_classifier, to_masked_lm
from endtask.encoders.network import TLM_TASK, Network, name_labels
from endtask.tokenization.packed_texts import PackedTexts, pack_examples
from endtask.tokenization.tokenizer import save_tokenizer
from tests.encoders.layouts import batch_of, real_rows, stock_inputs
from tests.tiny import ARCHITECTURES, LABELS, MAX_LENGTH, make_network, make_packed, make_texts, make_tokenizer, shake

MODEL_TYPES = {"lean": "modernbert", "modernbert": "modernbert", "bert": "bert", "roberta": "roberta"}
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


def trained(architecture: str) -> Network:
    return shake(make_network(architecture, dropout=0.1)).eval()


@torch.inference_mode()
def class_logits(network: Network, texts: PackedTexts) -> torch.Tensor:
    batch = batch_of(network, texts)
    return network.task_logits(network(batch), batch)


@torch.inference_mode()
def word_logits(network: Network, texts: PackedTexts) -> torch.Tensor:
    batch = batch_of(network, texts)
    return network.masked_logits(network(batch), torch.arange(len(batch.input_ids)))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("pairs", [False, True])
@torch.inference_mode()
def test_the_stock_classifier_gives_our_logits(architecture: str, pairs: bool, tmp_path: Path) -> None:
    network, texts = trained(architecture), make_packed(tmp_path, pairs=pairs)
    stock = to_classifier(network)
    assert not stock.training
    ours = class_logits(network, texts)
    assert ours.allclose(stock(**stock_inputs(network, texts)).logits, atol=1e-5)
    assert ours.std(dim=0).min() > 1e-2


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("architecture", ["lean", "modernbert"])
@torch.inference_mode()
def test_both_poolings_are_the_stock_heads(architecture: str, pooling: str, tmp_path: Path) -> None:
    network, texts = trained(architecture), make_packed(tmp_path)
    network.config.classifier_pooling = pooling
    stock = to_classifier(network)
    assert class_logits(network, texts).allclose(stock(**stock_inputs(network, texts)).logits, atol=1e-5)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@torch.inference_mode()
def test_the_stock_masked_lm_gives_our_logits(architecture: str, tmp_path: Path) -> None:
    network, texts = trained(architecture), make_packed(tmp_path, pairs=True)
    stock = to_masked_lm(network)(**stock_inputs(network, texts)).logits
    ours = word_logits(network, texts)
    assert ours.allclose(real_rows(stock, texts), atol=1e-5)
    assert ours.std(dim=0).min() > 1e-2


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_copy_shares_nothing_with_the_network(architecture: str) -> None:
    network = trained(architecture)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    with torch.no_grad():
        for model in (to_classifier(network), to_masked_lm(network)):
            for parameter in model.parameters():
                parameter.zero_()
    assert all(value.equal(before[name]) for name, value in network.state_dict().items())


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("convert", [to_classifier, to_masked_lm])
def test_a_weight_without_a_place_is_an_error(
    architecture: str, convert: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = trained(architecture)
    names = "to_classifier" if convert is to_classifier else "to_masked_lm"
    prefixes = getattr(network.architecture, names)
    for lost in prefixes:
        monkeypatch.setattr(network.architecture, names, {k: v for k, v in prefixes.items() if k != lost})
        with pytest.raises((RuntimeError, ValueError), match=r"[Mm]issing"):
            convert(network)  # type: ignore[operator]
    stray = {**prefixes, "encoder.": "elsewhere."}
    monkeypatch.setattr(network.architecture, names, stray)
    with pytest.raises((RuntimeError, ValueError), match=r"[Uu]nexpected"):
        convert(network)  # type: ignore[operator]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("save", [save_classifier, save_masked_lm])
@torch.inference_mode()
def test_auto_classes_find_all_weights_and_no_others(
    architecture: str, save: Callable[[Network, Path], None], tmp_path: Path
) -> None:
    network, texts = trained(architecture), make_packed(tmp_path / "texts", pairs=True)
    save(network, tmp_path / "model")
    auto: Any = AutoModelForSequenceClassification if save is save_classifier else AutoModelForMaskedLM
    model, loading = auto.from_pretrained(tmp_path / "model", output_loading_info=True)
    assert not any(loading.values()), loading
    logits = model(**stock_inputs(network, texts)).logits
    ours, theirs = (
        (class_logits(network, texts), logits)
        if save is save_classifier
        else (word_logits(network, texts), real_rows(logits, texts))
    )
    assert ours.allclose(theirs, atol=1e-5)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("save", [save_classifier, save_masked_lm])
@torch.inference_mode()
def test_the_encoder_alone_can_be_loaded_from_either(
    architecture: str, save: Callable[[Network, Path], None], tmp_path: Path
) -> None:
    network, texts = trained(architecture), make_packed(tmp_path / "texts")
    save(network, tmp_path / "model")
    extra = {"add_pooling_layer": False} if architecture in ("bert", "roberta") else {}
    model, loading = AutoModel.from_pretrained(tmp_path / "model", output_loading_info=True, **extra)
    assert not loading["missing_keys"]
    hidden = model(**stock_inputs(network, texts)).last_hidden_state
    assert network(batch_of(network, texts)).allclose(real_rows(hidden, texts), atol=1e-5)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("save", [save_classifier, save_masked_lm])
def test_the_authors_own_head_stays_behind(
    architecture: str, save: Callable[[Network, Path], None], tmp_path: Path
) -> None:
    network = trained(architecture)
    save(network, tmp_path / "without")
    network.heads[TLM_TASK] = TlmTaskHead(network.config)
    save(network, tmp_path / "with")
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / "with" / name).read_bytes() == (tmp_path / "without" / name).read_bytes()


@pytest.mark.long
@pytest.mark.slow
def test_saved_models_load_where_endtask_is_not(tmp_path: Path) -> None:
    firsts, seconds = make_texts(9, seed=5, longest=20), make_texts(9, seed=6, longest=20)
    columns = {"single": [firsts], "pair": [firsts, seconds]}
    (tmp_path / "texts.json").write_text(json.dumps(columns))
    expected = {}
    for architecture in ARCHITECTURES:
        folder, network = tmp_path / architecture, trained(architecture)
        save_classifier(network, folder)
        tokenizer = deepcopy(make_tokenizer())
        tokenizer.model_input_names = list(network.architecture.input_names)
        save_tokenizer(tokenizer, folder)
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
        assert answers[name] == (values if name.endswith("labels") else pytest.approx(np.array(values), abs=1e-5)), name


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("save", [save_classifier, save_masked_lm])
def test_the_saved_configuration_is_complete(
    architecture: str, save: Callable[[Network, Path], None], tmp_path: Path
) -> None:
    save(make_network(architecture, dropout=0.1), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["model_type"] == MODEL_TYPES[architecture]
    assert config["id2label"] == {str(number): label for number, label in enumerate(LABELS)}
    assert config["pad_token_id"] == make_tokenizer().pad_token_id
    assert config["vocab_size"] == 128 > len(make_tokenizer())
    if config["model_type"] == "modernbert":
        assert config["classifier_pooling"] == "mean"
    else:
        assert config["hidden_dropout_prob"] == config["attention_probs_dropout_prob"] == 0.1


@pytest.mark.parametrize("architecture", ["lean", "modernbert"])
@pytest.mark.parametrize("save", [save_classifier, save_masked_lm])
def test_the_configuration_has_the_keys_of_all_releases(
    architecture: str, save: Callable[[Network, Path], None], tmp_path: Path
) -> None:
    save(make_network(architecture), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["global_attn_every_n_layers"] == 1
    assert config["layer_types"] == ["full_attention"] * 2
    assert config["global_rope_theta"] == config["rope_parameters"]["full_attention"]["rope_theta"] == 160_000
    assert config["local_rope_theta"] == config["rope_parameters"]["sliding_attention"]["rope_theta"] == 10_000
    assert config["local_attention"] == 2 * config["sliding_window"] == 128
    assert config["rope_parameters"].keys() == {"full_attention", "sliding_attention"}


@pytest.mark.parametrize(
    ("kinds", "every"),
    [("GGGG", 1), ("GLGL", 2), ("GLLG", 3), ("GLLL", 4), ("LLGG", None), ("GGLG", None)],
)
def test_local_layers_are_told_to_all_releases(kinds: str, every: int | None, tmp_path: Path) -> None:
    config = ModernBertConfig(
        vocab_size=64,
        hidden_size=16,
        num_hidden_layers=4,
        num_attention_heads=2,
        intermediate_size=24,
        local_attention=6,
        layer_types=[{"G": "full_attention", "L": "sliding_attention"}[kind] for kind in kinds],
        pad_token_id=0,
    )
    name_labels(config, LABELS)
    save_classifier(Network(encoders.get("modernbert")(), config, 0), tmp_path)
    written = json.loads((tmp_path / "config.json").read_text())
    assert written.get("global_attn_every_n_layers") == every
    assert written["layer_types"] == config.layer_types
    again = ModernBertConfig.from_pretrained(tmp_path)
    assert (again.layer_types, again.local_attention, again.rope_parameters) == (
        config.layer_types,
        config.local_attention,
        config.rope_parameters,
    )


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_words_can_be_filled_in_by_the_stock_pipeline(architecture: str, tmp_path: Path) -> None:
    """There are more vectors than tokens; none of the spare ones may break what reads the model."""
    network = trained(architecture)
    save_masked_lm(network, tmp_path)
    tokenizer = deepcopy(make_tokenizer())
    tokenizer.model_input_names = list(network.architecture.input_names)
    save_tokenizer(tokenizer, tmp_path)
    found = pipeline("fill-mask", str(tmp_path))("river [MASK] stone", top_k=network.config.vocab_size)
    assert len(found) == 128
    assert sum(one["score"] for one in found) == pytest.approx(1.0, abs=1e-4)
    assert {one["token"] for one in found if one["token_str"]} >= set(range(5, len(make_tokenizer())))
