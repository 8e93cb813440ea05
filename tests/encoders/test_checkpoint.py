"""Stock checkpoints: equal logits after loading, and one clear line for each unusable checkpoint."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import DistilBertConfig

from endtask.config import ModelSettings
from endtask.encoders.checkpoint import check_complete, check_tokenizer, load_network, open_checkpoint
from endtask.encoders.huggingface import save_classifier, save_masked_lm
from endtask.encoders.network import MASKED_LM, TASK, TLM_TASK, Network
from endtask.errors import InputError
from endtask.tokenization.packed_texts import PackedTexts
from tests.encoders.layouts import batch_of, real_rows, stock_inputs
from tests.encoders.stock_models import CASES, CLASSES, PAD, POSITIONS, save_stock, stock_config
from tests.tiny import ARCHITECTURES, LABELS, make_network, make_packed, make_tokenizer, shake

Tensors = dict[str, Tensor]


def load(folder: Path, *, seed: int = 0, tlm_head: bool = False, **settings: Any) -> Network:
    checkpoint = open_checkpoint(str(folder))
    return load_network(
        checkpoint,
        ModelSettings.model_validate(settings),
        pad_id=PAD[checkpoint.architecture.name],
        labels=LABELS,
        seed=seed,
        tlm_head=tlm_head,
    ).eval()


def word_logits(network: Network, texts: PackedTexts) -> Tensor:
    batch = batch_of(network, texts)
    return network.masked_logits(network(batch), torch.arange(len(batch.input_ids)))


def edit_weights(folder: Path, change: Callable[[Tensors], object]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def edit_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(("architecture", "kind"), CASES)
@pytest.mark.parametrize("pairs", [False, True])
@torch.inference_mode()
def test_the_encoder_gives_the_stock_vectors(architecture: str, kind: str, pairs: bool, tmp_path: Path) -> None:
    stock, texts = save_stock(tmp_path / "model", architecture, kind), make_packed(tmp_path / "texts", pairs=pairs)
    network = load(tmp_path / "model")
    assert network.architecture.name == architecture
    encoder = getattr(stock, stock.base_model_prefix, stock)
    theirs = real_rows(encoder(**stock_inputs(network, texts)).last_hidden_state, texts)
    assert network(batch_of(network, texts)).allclose(theirs, atol=1e-5)
    assert theirs.std(dim=0).min() > 1e-2


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@torch.inference_mode()
def test_the_masked_lm_head_gives_the_stock_logits(architecture: str, tmp_path: Path) -> None:
    stock, texts = save_stock(tmp_path / "model", architecture), make_packed(tmp_path / "texts", pairs=True)
    network = load(tmp_path / "model")
    theirs = real_rows(stock(**stock_inputs(network, texts)).logits, texts)
    assert word_logits(network, texts).allclose(theirs, atol=1e-5)


@torch.inference_mode()
def test_the_masked_lm_head_comes_from_a_pretraining_model_too(tmp_path: Path) -> None:
    stock, texts = save_stock(tmp_path / "model", "bert", "pretraining"), make_packed(tmp_path / "texts")
    network = load(tmp_path / "model")
    theirs = real_rows(stock(**stock_inputs(network, texts)).prediction_logits, texts)
    assert word_logits(network, texts).allclose(theirs, atol=1e-5)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@torch.inference_mode()
def test_the_classifier_gives_the_stock_logits_with_the_stock_head(architecture: str, tmp_path: Path) -> None:
    """The head is new by rule; given the weights of the stock one, nothing else may differ."""
    labels = {"num_labels": len(LABELS)}
    stock, texts = save_stock(tmp_path / "model", architecture, "classifier", **labels), make_packed(tmp_path / "texts")
    network = load(tmp_path / "model", **({"pooling": "cls"} if architecture in ("lean", "modernbert") else {}))
    weights = stock.state_dict()
    for own, name in network.architecture.to_classifier.items():
        if own.startswith(f"heads.{TASK}."):
            for suffix, value in network.get_submodule(own.removesuffix(".")).state_dict().items():
                value.copy_(weights[name + suffix])
    batch = batch_of(network, texts)
    theirs = stock(**stock_inputs(network, texts)).logits
    assert network.task_logits(network(batch), batch).allclose(theirs, atol=1e-5)


@pytest.mark.parametrize(("architecture", "kind"), CASES)
def test_heads_that_are_not_there_come_from_the_seed(architecture: str, kind: str, tmp_path: Path) -> None:
    save_stock(tmp_path, architecture, kind)
    one, same, other = (load(tmp_path, seed=seed, tlm_head=True).state_dict() for seed in (1, 1, 2))
    assert all(value.equal(same[name]) for name, value in one.items())
    by_seed = {name for name, value in one.items() if not value.equal(other[name])}
    expected = {TASK, TLM_TASK} | (set() if kind in ("masked_lm", "pretraining") else {MASKED_LM})
    assert {".".join(name.split(".")[:2]) for name in by_seed} == {f"heads.{head}" for head in expected}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("save", [save_classifier, save_masked_lm])
def test_what_we_save_we_load(architecture: str, save: Callable[[Network, Path], None], tmp_path: Path) -> None:
    network = shake(make_network(architecture))
    save(network, tmp_path)
    loaded = load_network(open_checkpoint(str(tmp_path)), ModelSettings(), pad_id=0, labels=LABELS, seed=3)
    assert loaded.architecture.name == ("lean" if architecture == "modernbert" else architecture)
    there = ("encoder.", f"heads.{MASKED_LM}.") if save is save_masked_lm else ("encoder.",)
    found = loaded.state_dict()
    for name, value in network.state_dict().items():
        assert value.equal(found[name]) == (name.startswith(there) or not value.any()), name


def test_dropout_and_pooling_are_for_the_settings_to_say(tmp_path: Path) -> None:
    for architecture in ARCHITECTURES:
        save_stock(tmp_path / architecture, architecture, "masked_lm", classifier_dropout=0.4)
        network = load(tmp_path / architecture, dropout=0.2)
        assert {module.p for module in network.modules() if isinstance(module, nn.Dropout)} == {0.2}, architecture
        save_classifier(network, tmp_path / "again")
        saved = json.loads((tmp_path / "again" / "config.json").read_text())
        wrong = {key: value for key, value in saved.items() if "dropout" in key and value not in (0.2, None)}
        assert wrong.keys() <= {"attention_dropout"}, architecture
    for pooling in ("cls", "mean"):
        assert load(tmp_path / "lean", pooling=pooling).config.classifier_pooling == pooling
    with pytest.raises(InputError, match="roberta has cls, not mean"):
        load(tmp_path / "roberta", pooling="mean")


def test_labels_are_the_tasks_and_nothing_of_an_earlier_task_stays(tmp_path: Path) -> None:
    earlier = {"id2label": {0: "a", 1: "b"}, "label2id": {"a": 0, "b": 1}, "problem_type": "multi_label_classification"}
    save_stock(tmp_path / "old", "bert", "classifier", **earlier)
    save_classifier(load(tmp_path / "old"), tmp_path / "new")
    config = json.loads((tmp_path / "new" / "config.json").read_text())
    assert list(config["id2label"].values()) == list(LABELS)
    assert config.get("problem_type") is None


@pytest.mark.parametrize(
    "quirk",
    [
        {"attention_bias": True},
        {"mlp_bias": True},
        {"norm_bias": True},
        {"classifier_bias": True},
        {"hidden_activation": "relu"},
        {"classifier_activation": "silu"},
        {
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            }
        },
    ],
    ids=lambda quirk: next(iter(quirk)),
)
@torch.inference_mode()
def test_what_our_encoder_lacks_is_left_to_the_stock_one(quirk: dict[str, Any], tmp_path: Path) -> None:
    stock, texts = save_stock(tmp_path / "model", "lean", **quirk), make_packed(tmp_path / "texts")
    network = load(tmp_path / "model")
    assert network.architecture.name == "modernbert"
    theirs = real_rows(stock(**stock_inputs(network, texts)).logits, texts)
    assert word_logits(network, texts).allclose(theirs, atol=1e-5)
    save_masked_lm(network, tmp_path / "again")
    again = load(tmp_path / "again")
    assert word_logits(again, texts).equal(word_logits(network, texts))


@torch.inference_mode()
def test_other_rotary_angles_are_kept(tmp_path: Path) -> None:
    rotary = {kind: {"rope_type": "default", "rope_theta": 500.0} for kind in ("full_attention", "sliding_attention")}
    stock, texts = save_stock(tmp_path / "model", "lean", rope_parameters=rotary), make_packed(tmp_path / "texts")
    network = load(tmp_path / "model")
    assert network.architecture.name == "lean"
    theirs = real_rows(stock(**stock_inputs(network, texts)).logits, texts)
    assert word_logits(network, texts).allclose(theirs, atol=1e-5)


@torch.inference_mode()
def test_what_transformers_5_0_wrote_is_read(tmp_path: Path) -> None:
    """Strays among the rotary parameters, which later releases refuse."""
    stock, texts = save_stock(tmp_path / "model", "lean"), make_packed(tmp_path / "texts")
    rotary = json.loads((tmp_path / "model" / "config.json").read_text())["rope_parameters"]
    edit_config(tmp_path / "model", rope_parameters={**rotary, "rope_theta": None, "rope_type": "default"})
    network = load(tmp_path / "model")
    theirs = real_rows(stock(**stock_inputs(network, texts)).logits, texts)
    assert word_logits(network, texts).allclose(theirs, atol=1e-5)
    save_masked_lm(network, tmp_path / "again")
    written = json.loads((tmp_path / "again" / "config.json").read_text())["rope_parameters"]
    assert written.keys() == {"full_attention", "sliding_attention"}


@torch.inference_mode()
def test_a_head_without_a_bias_gets_a_zero_one(tmp_path: Path) -> None:
    stock, texts = save_stock(tmp_path / "model", "lean", decoder_bias=False), make_packed(tmp_path / "texts")
    network = load(tmp_path / "model")
    theirs = real_rows(stock(**stock_inputs(network, texts)).logits, texts)
    assert word_logits(network, texts).allclose(theirs, atol=1e-5)
    save_masked_lm(network, tmp_path / "again")
    assert word_logits(load(tmp_path / "again"), texts).equal(word_logits(network, texts))


@torch.inference_mode()
def test_old_names_of_weights_are_known(tmp_path: Path) -> None:
    """BERT's first checkpoints have TensorFlow's names of norms, tables as weights, a copy of the output matrix."""
    stock, texts = save_stock(tmp_path / "model", "bert", "pretraining"), make_packed(tmp_path / "texts")

    def age(tensors: Tensors) -> None:
        for name in list(tensors):
            old = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
            tensors[old] = tensors.pop(name)
        tensors["bert.embeddings.position_ids"] = torch.arange(POSITIONS)[None]
        tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"].clone()
        tensors["cls.predictions.decoder.bias"] = tensors.pop("cls.predictions.bias")

    edit_weights(tmp_path / "model", age)
    network = load(tmp_path / "model")
    theirs = real_rows(stock(**stock_inputs(network, texts)).prediction_logits, texts)
    assert word_logits(network, texts).allclose(theirs, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_becomes_single(dtype: torch.dtype, tmp_path: Path) -> None:
    save_stock(tmp_path / "model", "bert").to(dtype).save_pretrained(tmp_path / "half")
    network, half = load(tmp_path / "model"), load(tmp_path / "half")
    assert {value.dtype for value in half.state_dict().values()} == {torch.float32}
    assert half.embeddings.equal(network.embeddings.to(dtype).float())
    save_classifier(half, tmp_path / "again")
    assert json.loads((tmp_path / "again" / "config.json").read_text())["dtype"] == "float32"


@pytest.mark.parametrize(("architecture", "kind"), CASES)
def test_missing_and_unexpected_weights_of_the_encoder_are_refused(
    architecture: str, kind: str, tmp_path: Path
) -> None:
    save_stock(tmp_path, architecture, kind)
    whole = (tmp_path / "model.safetensors").read_bytes()
    name = next(name for name in load_file(tmp_path / "model.safetensors") if ".1." in name)
    edit_weights(tmp_path, lambda tensors: tensors.pop(name))
    with pytest.raises(InputError, match=rf"lacks weights that its configuration needs: .*{name}$") as raised:
        load(tmp_path)
    assert str(raised.value).startswith(f"{tmp_path}, key 'model.path': ")
    (tmp_path / "model.safetensors").write_bytes(whole)
    stranger = name.replace(".1.", ".7.")
    edit_weights(tmp_path, lambda tensors: tensors.update({stranger: torch.zeros(2)}))
    with pytest.raises(InputError, match=rf"holds weights that its configuration does not ask for: .*{stranger}$"):
        load(tmp_path)


def test_of_many_missing_weights_the_first_few_are_named(tmp_path: Path) -> None:
    save_stock(tmp_path, "bert")
    edit_config(tmp_path, num_hidden_layers=5)
    with pytest.raises(InputError, match=r": bert.encoder.layer.3[^,]*, [^,]*, [^,]* and 29 more$"):
        load(tmp_path)


def test_half_a_masked_lm_head_is_refused(tmp_path: Path) -> None:
    save_stock(tmp_path, "roberta")
    edit_weights(tmp_path, lambda tensors: tensors.pop("lm_head.dense.bias"))
    with pytest.raises(InputError, match=r"lacks part of its masked-LM head: lm_head.dense.bias$"):
        load(tmp_path)


@pytest.mark.parametrize("architecture", ["bert", "roberta", "lean"])
def test_an_output_matrix_of_its_own_is_refused(architecture: str, tmp_path: Path) -> None:
    save_stock(tmp_path, architecture, tie_word_embeddings=False)
    with pytest.raises(InputError, match=r"decoder.weight is not equal to .*embeddings.weight, which is not supported"):
        load(tmp_path)


@torch.inference_mode()
def test_an_output_matrix_that_equals_the_embeddings_is_tied(tmp_path: Path) -> None:
    save_stock(tmp_path / "model", "roberta", tie_word_embeddings=False)
    words, output = "roberta.embeddings.word_embeddings.weight", "lm_head.decoder.weight"
    edit_weights(tmp_path / "model", lambda tensors: tensors.update({output: tensors[words].clone()}))
    save_masked_lm(load(tmp_path / "model"), tmp_path / "again")
    assert json.loads((tmp_path / "again" / "config.json").read_text())["tie_word_embeddings"] is True
    assert output not in load_file(tmp_path / "again" / "model.safetensors")


def test_the_padding_is_the_tokenizers(tmp_path: Path) -> None:
    """Another tokenizer may pad with another token; that one's vector is then the one that does not learn."""
    stock = save_stock(tmp_path / "model", "bert")
    checkpoint = open_checkpoint(str(tmp_path / "model"))
    network = load_network(checkpoint, ModelSettings(), pad_id=7, labels=LABELS, seed=0)
    assert network.embeddings.equal(stock.bert.embeddings.word_embeddings.weight)
    assert network.layout(16).pad_id == network.architecture.embeddings(network.encoder).padding_idx == 7
    assert checkpoint.config.pad_token_id == 0  # what was read stays as it was


def test_weights_of_another_size_are_refused(tmp_path: Path) -> None:
    save_stock(tmp_path, "bert")
    vocabulary = stock_config("bert").vocab_size
    edit_config(tmp_path, vocab_size=vocabulary + 1)
    wanted = (
        rf"word_embeddings.weight has the shape \({vocabulary}, 16\), its configuration says \({vocabulary + 1}, 16\)"
    )
    with pytest.raises(InputError, match=wanted):
        load(tmp_path)


@pytest.mark.parametrize("kept", [0, 5, 300, -1])
def test_a_cut_off_checkpoint_is_refused(kept: int, tmp_path: Path) -> None:
    save_stock(tmp_path, "bert")
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    for attempt in (lambda: load(tmp_path), lambda: check_complete([path])):
        with pytest.raises(InputError, match=r"model.safetensors: damaged: .*download the checkpoint again") as raised:
            attempt()
        assert "\n" not in str(raised.value)


def test_other_kinds_of_models_are_refused(tmp_path: Path) -> None:
    DistilBertConfig().save_pretrained(tmp_path)
    with pytest.raises(
        InputError, match=r"type 'distilbert' cannot be trained here \(known: bert, modernbert, roberta\)"
    ):
        open_checkpoint(str(tmp_path))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "config.json, key 'model.path': not valid JSON"),
        ("[1]", "config.json, key 'model.path': no JSON object"),
        ('{"model_type": ["bert"]}', r"a model of type \['bert'\] cannot be trained here"),
        ('{"vocab_size": 5}', "a model of type None cannot be trained here"),
        (
            '{"model_type": "modernbert", "classifier_pooling": "max"}',
            "config.json, .*: no configuration of modernbert: ",
        ),
        ('{"model_type": "bert", "is_decoder": true}', "a decoder; only encoders can be trained here"),
        ('{"model_type": "bert", "hidden_size": 100}', "hidden_size 100 is not a multiple of num_attention_heads 12"),
        ('{"model_type": "roberta", "pad_token_id": null}', "no pad_token_id, from which RoBERTa counts"),
    ],
)
def test_a_configuration_that_cannot_be_used_is_one_line(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(InputError, match=message) as raised:
        open_checkpoint(str(tmp_path))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@torch.inference_mode()
def test_it_knows_the_longest_text(architecture: str, tmp_path: Path) -> None:
    stock = save_stock(tmp_path, architecture)
    checkpoint = open_checkpoint(str(tmp_path))
    assert checkpoint.max_length == POSITIONS
    assert stock(input_ids=torch.full((1, POSITIONS), 7)).logits.isfinite().all()
    if architecture in ("bert", "roberta"):
        with pytest.raises((IndexError, RuntimeError)):
            stock(input_ids=torch.full((1, POSITIONS + 1), 7))


def test_a_tokenizer_with_more_tokens_than_vectors_is_refused(tmp_path: Path) -> None:
    tokenizer = make_tokenizer()
    for vocabulary in (len(tokenizer), len(tokenizer) - 1):
        save_stock(tmp_path / str(vocabulary), "bert", vocab_size=vocabulary)
    check_tokenizer(open_checkpoint(str(tmp_path / str(len(tokenizer)))), tokenizer, key="model.path")
    message = (
        rf"key 'tokenizer.path': the tokenizer has {len(tokenizer)} tokens, the checkpoint .* vectors for {vocabulary}"
    )
    with pytest.raises(InputError, match=message):
        check_tokenizer(open_checkpoint(str(tmp_path / str(vocabulary))), tokenizer, key="tokenizer.path")


def test_roberta_wants_its_own_padding(tmp_path: Path) -> None:
    tokenizer = deepcopy(make_tokenizer())
    for architecture in CLASSES:
        save_stock(tmp_path / architecture, architecture)
        checkpoint = open_checkpoint(str(tmp_path / architecture))
        if architecture == "roberta":
            with pytest.raises(InputError, match=r"pads with token 0, .* with token 1, from which RoBERTa"):
                check_tokenizer(checkpoint, tokenizer, key="tokenizer.path")
        else:
            check_tokenizer(checkpoint, tokenizer, key="tokenizer.path")
