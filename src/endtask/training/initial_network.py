"""The network that a run starts from: random weights, or a given checkpoint."""

from __future__ import annotations

from pathlib import Path

from endtask.config import Settings
from endtask.encoders.auxiliary_heads import add_task_heads, take_auxiliary_head
from endtask.encoders.checkpoint import Checkpoint, check_tokenizer, load_network, open_checkpoint
from endtask.encoders.checkpoint_files import weight_files
from endtask.encoders.checkpoint_weights import check_complete
from endtask.encoders.network import Network, build_network, pooling_of
from endtask.errors import InputError
from endtask.seeds import derive
from endtask.task import Task
from endtask.tokenization.packing import given_tokenizer
from endtask.tokenization.tokenizer import load_tokenizer


def network_for(task: Task, packed: Path, settings: Settings, *, least_vocabulary: int = 0) -> Network:
    """The run's network with its first weights, and a head for each objective of pre-training that has its own.

    `least_vocabulary` is for a look ahead, whose few texts do not have all the tokens that a run will learn.
    """
    network = _network(task, packed, settings, least_vocabulary)
    if not settings.skip_pretraining:
        for name, section in settings.used_objectives.items():
            section.part.add_heads(name, network, settings)
    add_task_heads(network, task, derive(settings.pretrain_seed, "weights"))
    return network


def network_of_auxiliary_task(task: Task, name: str, packed: Path, settings: Settings, weights: Path) -> Network:
    """A network of a auxiliary task's own, with the encoder and the head that were trained for it."""
    stock = settings.pretrain.model_copy(update={"task_head": "stock"})
    network = _network(task.auxiliary[name], packed, settings.model_copy(update={"pretrain": stock}))
    take_auxiliary_head(network, name, weights)
    return network


def _network(task: Task, packed: Path, settings: Settings, least_vocabulary: int = 0) -> Network:
    tokenizer = load_tokenizer(packed / "tokenizer")
    seed, tlm_head = derive(settings.pretrain_seed, "weights"), settings.pretrain.task_head == "tlm"
    markers = tuple(tokenizer.convert_tokens_to_ids(list(settings.tokenizer.entity_markers)))
    if settings.model.path is not None:
        checkpoint = open_checkpoint(settings.model.path)
        check_tokenizer(checkpoint, tokenizer, key=_tokenizer_key(settings))
        _check_texts(checkpoint, task, settings)
        return load_network(
            checkpoint,
            settings.model,
            pad_id=tokenizer.pad_token_id,
            labels=task.labels,
            seed=seed,
            tlm_head=tlm_head,
            task_type=task.type,
            markers=markers,
        )
    return build_network(
        settings.model,
        vocabulary=max(len(tokenizer), least_vocabulary),
        special_ids={
            "pad": tokenizer.pad_token_id,
            "cls": tokenizer.cls_token_id,
            "sep": tokenizer.sep_token_id,
        },
        labels=task.labels,
        seed=seed,
        tlm_head=tlm_head,
        task_type=task.type,
        markers=markers,
    )


def check_checkpoint(task: Task, settings: Settings) -> None:
    """Meet, before any work, what would stop the training from a given checkpoint; what is on the hub is fetched."""
    assert settings.model.path is not None
    checkpoint = open_checkpoint(settings.model.path)
    tokenizer = given_tokenizer(settings)
    assert tokenizer is not None
    check_tokenizer(checkpoint, tokenizer, key=_tokenizer_key(settings))
    _check_texts(checkpoint, task, settings)
    pooling_of(settings.model, checkpoint.architecture, (0,))  # whatever number its marks will have
    check_complete(weight_files(settings.model.path))


def _check_texts(checkpoint: Checkpoint, task: Task, settings: Settings) -> None:
    lengths = {
        "pretrain.max_length": settings.pretrain.max_length,
        "pretrain.task_max_length": settings.pretrain.task_max_length or 0,
        "finetune.max_length": settings.finetune.max_length,
    }
    longest = checkpoint.max_length
    if too_long := {key: length for key, length in lengths.items() if length > longest}:
        key, length = next(iter(too_long.items()))
        raise InputError(
            f"{length} is more than the {longest} tokens that {checkpoint.path} can read",
            key=key,
            hint=f"{', '.join(too_long)} may be {longest} at most",
        )
    tasks = (task, *task.auxiliary.values())
    is_pair = any(example.text_pair is not None for one in tasks for example in one.train)
    if is_pair and not checkpoint.architecture.separates_pairs(checkpoint.config):
        raise InputError(
            "this checkpoint cannot tell the texts of a pair apart", path=checkpoint.path, key="model.path"
        )


def _tokenizer_key(settings: Settings) -> str:
    return "tokenizer.path" if settings.tokenizer.path else "model.path"
