"""Saved heads that no stock class has: those that read entity markers alone, and BERT's over the mean."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModel, AutoModelForSequenceClassification

from endtask.config import ModelSettings
from endtask.encoders.checkpoint import load_network, open_checkpoint
from endtask.encoders.heads import markers_of, pool
from endtask.encoders.huggingface import save_classifier, to_classifier
from endtask.encoders.network import Network, build_network
from endtask.encoders.saved_model import (
    BertForMeanClassification,
    ModernBertForMarkedClassification,
    classifier_class,
)
from endtask.errors import InputError
from endtask.serving.predictor import load
from endtask.tokenization.tokenizer import save_tokenizer
from tests.encoders.layouts import batch_of, stock_inputs
from tests.tiny import LABELS, make_packed, make_texts, make_tokenizer, shake

SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 32}


def mark_ids() -> tuple[int, ...]:
    """Two words that some texts have and others have not stand for marks."""
    return tuple(make_tokenizer().convert_tokens_to_ids(["river", "stone"]))


def marked(architecture: str = "lean", *, pooling: str = "auto", markers: tuple[int, ...] | None = None) -> Network:
    tokenizer = make_tokenizer()
    network = build_network(
        ModelSettings.model_validate({"architecture": architecture, "pooling": pooling, **SIZES}),
        vocabulary=len(tokenizer),
        special_ids={"pad": tokenizer.pad_token_id, "cls": tokenizer.cls_token_id, "sep": tokenizer.sep_token_id},
        labels=LABELS,
        seed=0,
        markers=mark_ids() if markers is None else markers,
    )
    return shake(network).eval()


def test_marks_are_averaged_where_there_are_some(tmp_path: Path) -> None:
    network, texts = marked(), make_packed(tmp_path)
    batch = batch_of(network, texts)
    hidden = torch.randn(len(batch.input_ids), 8, generator=torch.Generator().manual_seed(0))
    expected, with_marks = [], 0
    for row, part in enumerate(hidden.split(texts.lengths.tolist())):
        places = [place for place, token in enumerate(texts[row].tolist()) if token in mark_ids()]
        with_marks += bool(places)
        expected.append(part[places].mean(0) if places else part.mean(0))
    assert 0 < with_marks < len(texts)
    assert pool(hidden, batch, "entity_markers", mark_ids()).allclose(torch.stack(expected), atol=1e-6)


@pytest.mark.parametrize("architecture", ["lean", "modernbert"])
@torch.inference_mode()
def test_the_saved_model_gives_our_logits(architecture: str, tmp_path: Path) -> None:
    network, texts = marked(architecture), make_packed(tmp_path)
    batch = batch_of(network, texts)
    ours = network.task_logits(network(batch), batch)
    save_classifier(network, tmp_path / "model")
    saved = classifier_class(network.config).from_pretrained(str(tmp_path / "model")).eval()
    assert isinstance(saved, ModernBertForMarkedClassification)
    assert ours.allclose(saved(**stock_inputs(network, texts)).logits, atol=1e-5)
    network.config.marker_token_ids = []
    assert not ours.allclose(network.task_logits(network(batch), batch), atol=1e-2)


def test_a_stock_classifier_misses_the_head_and_says_so(tmp_path: Path) -> None:
    save_classifier(marked(), tmp_path / "model")
    _, told = AutoModelForSequenceClassification.from_pretrained(str(tmp_path / "model"), output_loading_info=True)
    assert {"classifier.weight", "head.dense.weight"} <= set(told["missing_keys"])
    _, told = AutoModel.from_pretrained(str(tmp_path / "model"), output_loading_info=True)
    assert not told["missing_keys"]


@torch.inference_mode()
def test_prediction_reads_the_marks(tmp_path: Path) -> None:
    network, texts = marked(), make_packed(tmp_path / "packed")
    save_classifier(network, tmp_path / "model")
    save_tokenizer(make_tokenizer(), tmp_path / "model")
    batch = batch_of(network, texts)
    expected = network.task_logits(network(batch), batch).softmax(-1)
    answers = load(tmp_path / "model").predict(make_texts(24, longest=6))
    assert torch.tensor([list(answer.probabilities.values()) for answer in answers]).allclose(expected, atol=1e-5)


def test_a_task_without_marks_forgets_those_of_a_checkpoint(tmp_path: Path) -> None:
    save_classifier(marked(), tmp_path / "model")
    checkpoint = open_checkpoint(str(tmp_path / "model"))
    assert markers_of(checkpoint.config) == mark_ids()
    settings = ModelSettings(path=str(tmp_path / "model"))
    again = load_network(checkpoint, settings, pad_id=0, labels=LABELS, seed=0)
    assert (markers_of(again.config), again.architecture.pooling(again.config)) == ((), "mean")
    assert not isinstance(to_classifier(marked(pooling="mean")), ModernBertForMarkedClassification)


def test_marks_that_are_not_there_cannot_be_read() -> None:
    with pytest.raises(InputError, match="no entity markers to read"):
        marked(pooling="entity_markers", markers=())


def test_bert_reads_its_first_token_whatever_marks_there_are() -> None:
    network = marked("bert")
    assert (network.architecture.pooling(network.config), markers_of(network.config)) == ("cls", ())


def mean_bert() -> Network:
    return marked("bert", pooling="mean")


@torch.inference_mode()
def test_bert_over_the_mean_is_saved_and_loaded_again(tmp_path: Path) -> None:
    network, texts = mean_bert(), make_packed(tmp_path / "packed")
    batch = batch_of(network, texts)
    hidden = network(batch)
    means = torch.stack([part.mean(0) for part in hidden.split(texts.lengths.tolist())])
    ours = network.task_logits(hidden, batch)
    assert ours.allclose(network.heads["task"](means), atol=1e-5)
    save_classifier(network, tmp_path / "model")
    save_tokenizer(make_tokenizer(), tmp_path / "model")
    saved = classifier_class(open_checkpoint(str(tmp_path / "model")).config).from_pretrained(str(tmp_path / "model"))
    assert isinstance(saved, BertForMeanClassification)
    assert ours.allclose(saved.eval()(**stock_inputs(network, texts)).logits, atol=1e-5)
    answers = load(tmp_path / "model").predict(make_texts(24, longest=6))
    found = torch.tensor([list(answer.probabilities.values()) for answer in answers])
    assert found.allclose(ours.softmax(-1), atol=1e-5)


def test_a_stock_bert_misses_the_head_over_the_mean_and_says_so(tmp_path: Path) -> None:
    save_classifier(mean_bert(), tmp_path / "model")
    _, told = AutoModelForSequenceClassification.from_pretrained(str(tmp_path / "model"), output_loading_info=True)
    assert {"classifier.weight", "bert.pooler.dense.weight"} <= set(told["missing_keys"])


def test_bert_reads_its_first_token_again_where_the_settings_say_so(tmp_path: Path) -> None:
    save_classifier(mean_bert(), tmp_path / "model")
    checkpoint = open_checkpoint(str(tmp_path / "model"))
    settings = ModelSettings(path=str(tmp_path / "model"))
    again = load_network(checkpoint, settings, pad_id=0, labels=LABELS, seed=0)
    assert again.architecture.pooling(again.config) == "cls"
    assert not isinstance(to_classifier(again), BertForMeanClassification)
