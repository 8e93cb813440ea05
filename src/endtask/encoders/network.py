"""The network under training: an encoder shared by all objectives, and heads by name."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from endtask.config import ModelSettings
from endtask.encoders.attention import choose_backend
from endtask.encoders.base import Backend, Encoder, Pooling, shape_of
from endtask.encoders.batch import Layout, TextBatch
from endtask.encoders.device_context import DeviceContext
from endtask.encoders.flops import ModelCost
from endtask.encoders.heads import MaskedLMHead, TlmTaskHead, markers_of, pool
from endtask.encoders.weights import fill, load_tensors
from endtask.errors import InputError
from endtask.registry import task_types
from endtask.seeds import derive
from endtask.task import Task

MASKED_LM, TASK, TLM_TASK = "masked_lm", "task", "tlm_task"
GENERATOR, REPLACED = "generator", "replaced"
"""The heads of replaced-token detection, in objectives/replaced.py."""
_VOCABULARY_ROUND = 64  # matrix kernels want it; the rows beyond the tokenizer's stay unused


class Network(nn.Module):
    """Encoder and heads with explicit random weights.

    `backend` and `dtype` say how the encoder computes; `move` in training/device.py sets them for a device. `task_type`
    decides what the task's heads read, texts or tokens; heads of auxiliary tasks have their own.
    """

    def __init__(
        self, architecture: Encoder, config: Any, seed: int, *, tlm_head: bool = False, task_type: str = "text"
    ) -> None:
        super().__init__()
        self.architecture = architecture
        self.task_type = task_types.get(task_type)()
        self._types: dict[str, Any] = {}
        self._costs: dict[str, ModelCost] = {}
        self.config = config
        self.backend: Backend = "padded"
        self.dtype = torch.float32
        self.fixed_shapes = False
        self.encoder = architecture.encoder(config)
        self.heads = nn.ModuleDict(
            {
                MASKED_LM: MaskedLMHead(architecture.masked_lm_transform(config), config.vocab_size),
                TASK: self.task_type.head(architecture, config),
            }
        )
        if tlm_head:
            self.heads[TLM_TASK] = TlmTaskHead(config)
        self._cost = ModelCost(
            config.hidden_size,
            config.num_hidden_layers,
            config.intermediate_size,
            gated=architecture.gated,
            vocabulary=config.vocab_size,
            classes=config.num_labels,
        )
        initialize(self, seed, config)

    def forward(self, batch: TextBatch) -> Tensor:
        """One vector per token: (N, hidden)."""
        return self.architecture.hidden_states(self.encoder, batch, self.backend, self.dtype)

    @property
    def embeddings(self) -> Tensor:
        """The word vectors: (vocabulary, hidden)."""
        return self.architecture.embeddings(self.encoder).weight

    def masked_lm_loss(self, hidden: Tensor, batch: TextBatch) -> Tensor:
        """Mean cross-entropy at the M masked positions of (N, hidden); the rest is never computed."""
        positions, targets = batch.masked_positions, batch.masked_targets
        loss: Tensor = self.heads[MASKED_LM](hidden, self.embeddings, positions, targets)
        return loss

    def masked_logits(self, hidden: Tensor, positions: Tensor) -> Tensor:
        """Vocabulary logits at some positions: (N, hidden) and (M,) -> (M, vocabulary)."""
        head = self.heads[MASKED_LM]
        assert isinstance(head, MaskedLMHead)
        return head.logits(hidden[positions], self.embeddings)

    def task_logits(self, hidden: Tensor, batch: TextBatch, head: str = TASK) -> Tensor:
        """Return the logits of every text or of every token: (N, hidden) -> (S or N, outputs)."""
        if self.type_of(head).per_token:
            of_tokens: Tensor = self.heads[head](hidden)
            return of_tokens
        logits: Tensor = self.heads[head](self.pooled(hidden, batch, head))
        return logits

    def type_of(self, head: str) -> Any:
        """Return the `TaskType` of the task that a head answers."""
        return self._types.get(head, self.task_type)

    def rows_read(self, batch: TextBatch, head: str) -> int:
        """Return how many vectors of a batch a task's head reads."""
        rows: int = self.type_of(head).rows_read(batch)
        return rows

    def pooled(self, hidden: Tensor, batch: TextBatch, head: str = TASK) -> Tensor:
        """What a head reads of each text: (N, hidden) -> (S, hidden)."""
        pooling = "cls" if head == TLM_TASK else self.architecture.pooling(self.config)
        return pool(hidden, batch, pooling, markers_of(self.config))

    def choose_backend(self, requested: str, context: DeviceContext, *, fixed_shapes: bool) -> Backend:
        """Return the attention backend for a device: the requested one, or for `auto` the fastest that works there."""
        name, backends = self.architecture.name, self.architecture.backends
        if requested not in ("auto", *backends):
            hint = "use auto"
            raise InputError(f"{name} has {' and '.join(backends)}, not {requested}", key="model.attention", hint=hint)
        size = self.config.hidden_size // self.config.num_attention_heads
        return choose_backend(
            requested, context.device, context.dtype, fixed_shapes=fixed_shapes, among=backends, head_size=size
        )

    def layout(self, longest: int) -> Layout:
        """How batches for this network are laid out; the batch plan chooses fixed shapes."""
        grid = self.backend == "padded"
        return Layout(self.config.pad_token_id, longest, grid=grid, padded=grid and self.architecture.padded)

    def training_flops(self, batch: TextBatch, *, masked: int = 0, texts: int = 0, head: str = TASK) -> float:
        """Matrix products of one training step on a batch, padding left out; the `texts` are read by `head`."""
        return self._costs.get(head, self._cost).step_flops(
            tokens=batch.real_tokens, squared_lengths=batch.squared_lengths, masked=masked, texts=texts
        )

    def add_head(self, name: str, head: nn.Module, seed: int) -> None:
        """Give the network one more head, with random weights."""
        initialize(head, seed, self.config)
        self.heads[name] = head

    def add_task_head(self, name: str, head: nn.Module, seed: int, *, task_type: Any, classes: int) -> None:
        """Add the head of an auxiliary task, which has so many outputs."""
        self.add_head(name, head, seed)
        self._types[name], self._costs[name] = task_type, replace(self._cost, classes=classes)

    def reset_task_head(self, seed: int, head: str = TASK) -> None:
        """Give a task's head new random weights, as TLM does between pre-training and fine-tuning."""
        initialize(self.heads[head], seed, self.config)

    def set_dropout(self, probability: float) -> None:
        """Set every dropout of encoder and heads."""
        for module in self.modules():
            if isinstance(module, nn.Dropout):
                module.p = probability

    @contextmanager
    def uncompiled(self) -> Iterator[None]:
        """Run what follows as it is written; flex attention, which would then build whole matrices, gives way."""
        backend = self.backend
        self.backend = "padded" if backend == "flex" else backend
        try:
            with torch.compiler.set_stance("force_eager"):
                yield
        finally:
            self.backend = backend

    def compile_parts(self) -> None:
        """Compile the encoder and the losses at tokens where they are called; weights keep their names."""
        self.fixed_shapes = True
        heads = (
            head for name, head in self.heads.items() if isinstance(head, MaskedLMHead) or name in (GENERATOR, REPLACED)
        )
        for part in (self.encoder, *heads):
            part.compile(dynamic=False)


def build_network(
    settings: ModelSettings,
    *,
    vocabulary: int,
    special_ids: dict[str, int],
    labels: tuple[str, ...],
    seed: int,
    tlm_head: bool = False,
    task_type: str = "text",
    markers: tuple[int, ...] = (),
) -> Network:
    """The network that the settings describe, with random weights; its configuration names the task's labels.

    `markers` are the tokens that the task head reads where the settings say so.
    """
    architecture: Encoder = settings.part
    pooling = pooling_of(settings, architecture, markers)
    config = architecture.config(
        shape_of(settings),
        vocabulary=-(-vocabulary // _VOCABULARY_ROUND) * _VOCABULARY_ROUND,
        special_ids=special_ids,
        positions=settings.max_position_embeddings,
        dropout=settings.dropout,
        pooling=pooling,
    )
    name_labels(config, labels, task_type)
    name_markers(config, pooling, markers)
    return Network(architecture, config, seed, tlm_head=tlm_head, task_type=task_type)


def pooling_of(settings: ModelSettings, architecture: Encoder, markers: tuple[int, ...]) -> Pooling:
    """What the task head reads, by the settings: marks where there are some and the architecture can."""
    usual: Pooling = (
        "entity_markers" if markers and "entity_markers" in architecture.poolings else architecture.poolings[0]
    )
    pooling = usual if settings.pooling == "auto" else settings.pooling
    if pooling not in architecture.poolings:
        raise InputError(
            f"{architecture.name} has {' and '.join(architecture.poolings)}, not {pooling}", key="model.pooling"
        )
    if pooling == "entity_markers" and not markers:
        raise InputError(
            "there are no marks to read", key="model.pooling", hint="name them under tokenizer.entity_markers"
        )
    return pooling


def name_markers(config: Any, pooling: Pooling, markers: tuple[int, ...]) -> None:
    """Write the tokens that the task head reads into a configuration, which is how it is known that it does."""
    if pooling == "entity_markers":
        config.marker_token_ids = list(markers)
    elif markers_of(config):  # those of the task that a checkpoint was trained on before
        config.marker_token_ids = []


def name_labels(config: Any, labels: tuple[str, ...], task_type: str = "text") -> None:
    """Write the task's labels into a configuration, and what they mean where that is not one class for each text."""
    part = task_types.get(task_type)()
    config.problem_type = part.problem_type
    labels = part.output_names(labels)
    config.id2label = dict(enumerate(labels))
    config.label2id = {label: number for number, label in enumerate(labels)}


@torch.no_grad()
def initialize(module: nn.Module, seed: int, config: Any) -> None:
    """Random weights by rules stated here, so that no library version can change them.

    Matrices N(0, .02), norms 1, biases 0, as BERT's; matrices that write to the residual stream of a pre-norm encoder
    are smaller by sqrt(2 x layers), as GPT-2's and ModernBERT's; the TLM authors' own head has PyTorch's uniform rule.
    """
    random = torch.Generator().manual_seed(seed)
    deviation = config.initializer_range
    for name, part in module.named_modules():
        if isinstance(part, nn.Linear) and TLM_TASK in name:
            for weights in (part.weight, part.bias):
                weights.copy_((2 * torch.rand(weights.shape, generator=random) - 1) / math.sqrt(part.in_features))
            continue
        if isinstance(part, nn.Linear | nn.Embedding):
            smaller = math.sqrt(2 * config.num_hidden_layers) if name.endswith(".Wo") else 1.0
            # Drawn on the CPU wherever the module lies: its generator serves no other device.
            part.weight.copy_(torch.empty(part.weight.shape).normal_(0.0, deviation / smaller, generator=random))
        elif isinstance(part, nn.LayerNorm):
            part.weight.fill_(1.0)
        if isinstance(part, nn.Embedding) and part.padding_idx is not None:
            part.weight[part.padding_idx].zero_()
        bias = getattr(part, "bias", None)
        if isinstance(bias, Tensor):
            bias.zero_()


def auxiliary_head(name: str) -> str:
    """The head that answers a auxiliary task.

    >>> auxiliary_head("ner")
    'task_ner'
    """
    return f"{TASK}_{name}"


def add_task_heads(network: Network, task: Task, seed: int) -> None:
    """Give the network a stock head for each auxiliary task, with as many outputs as its labels want."""
    architecture = network.architecture
    for name, auxiliary in task.auxiliary.items():
        config = copy.deepcopy(network.config)
        name_labels(config, auxiliary.labels, auxiliary.type)
        task_type, own = auxiliary.task_type, derive(seed, "task", name)
        head = task_type.head(architecture, config)
        network.add_task_head(auxiliary_head(name), head, own, task_type=task_type, classes=config.num_labels)


def reset_auxiliary_heads(network: Network, task: Task, seed: int) -> None:
    """Give the heads of auxiliary tasks new random weights."""
    for name in task.auxiliary:
        network.reset_task_head(derive(seed, "head", name), auxiliary_head(name))


def take_auxiliary_head(network: Network, name: str, weights: Path) -> None:
    """Fill a network of a auxiliary task's own from the weights of the network that learned all tasks."""
    tensors, _ = load_tensors(weights)
    own, plain = f"heads.{auxiliary_head(name)}.", f"heads.{TASK}."
    renamed = {plain + key.removeprefix(own): value for key, value in tensors.items() if key.startswith(own)}
    others = {key: tensors[key] for key in network.state_dict() if key not in renamed}
    fill(network, {**others, **renamed}, weights)
