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
from endtask.encoders.weights import load_state_dict, load_tensors
from endtask.errors import InputError
from endtask.registry import task_types
from endtask.seeds import derive
from endtask.task import Task

MASKED_LM, TASK, TLM_TASK = "masked_lm", "task", "tlm_task"
GENERATOR, REPLACED = "generator", "replaced"
"""The heads of replaced-token detection, in objectives/replaced.py."""
_VOCABULARY_ROUND = 64  # for matrix kernels; rows beyond the tokenizer's tokens are unused


class Network(nn.Module):
    """An encoder and its heads, with random weights by `initialize`.

    `backend` and `dtype` are the attention backend and the precision of the encoder; `move` in training/device.py sets
    them. `task_type` decides whether the task's heads read texts or tokens; each auxiliary task has its own type.
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
        """Return one vector per token: (N, hidden)."""
        return self.architecture.hidden_states(self.encoder, batch, self.backend, self.dtype)

    @property
    def embeddings(self) -> Tensor:
        """The word embeddings: (vocabulary, hidden)."""
        return self.architecture.embeddings(self.encoder).weight

    def masked_lm_loss(self, hidden: Tensor, batch: TextBatch) -> Tensor:
        """Return the mean cross-entropy at the M masked positions of (N, hidden); computes no other logits.

        For a part of a batch, return its contribution to the mean over the whole batch.
        """
        positions, targets = batch.masked_positions, batch.masked_targets
        loss: Tensor = self.heads[MASKED_LM](hidden, self.embeddings, positions, targets)
        return batch.of_masked(loss)

    def masked_logits(self, hidden: Tensor, positions: Tensor) -> Tensor:
        """Return vocabulary logits at some positions: (N, hidden) and (M,) -> (M, vocabulary)."""
        head = self.heads[MASKED_LM]
        assert isinstance(head, MaskedLMHead)
        return head.logits(hidden[positions], self.embeddings)

    def task_logits(self, hidden: Tensor, batch: TextBatch, head: str = TASK) -> Tensor:
        """Return the logits of every text or of every token: (N, hidden) -> (S or N, outputs)."""
        read = hidden if self.type_of(head).per_token else self.pooled(hidden, batch, head)
        logits: Tensor = self.heads[head](read)
        return logits

    def type_of(self, head: str) -> Any:
        """Return the `TaskType` of a head's task."""
        return self._types.get(head, self.task_type)

    def rows_read(self, batch: TextBatch, head: str) -> int:
        """Return the number of vectors that a task's head reads of a batch."""
        rows: int = self.type_of(head).rows_read(batch)
        return rows

    def pooled(self, hidden: Tensor, batch: TextBatch, head: str = TASK) -> Tensor:
        """Return the vector of each text for a head: (N, hidden) -> (S, hidden)."""
        pooling = "cls" if head == TLM_TASK else self.architecture.pooling(self.config)
        return pool(hidden, batch, pooling, markers_of(self.config))

    def choose_backend(self, requested: str, context: DeviceContext, *, fixed_shapes: bool) -> Backend:
        """Return the attention backend for a device: the requested one, or for `auto` the fastest that works there."""
        name, backends = self.architecture.name, self.architecture.backends
        if requested not in ("auto", *backends):
            problem = f"{name} has {' and '.join(backends)}, not {requested}"
            raise InputError(problem, key="model.attention", hint="use auto")
        size = self.config.hidden_size // self.config.num_attention_heads
        return choose_backend(
            requested, context.device, context.dtype, fixed_shapes=fixed_shapes, among=backends, head_size=size
        )

    def layout(self, longest: int) -> Layout:
        """Return the layout of batches for this network; the batch plan adds fixed shapes."""
        grid = self.backend == "padded"
        return Layout(self.config.pad_token_id, longest, grid=grid, padded=grid and self.architecture.padded)

    def training_flops(self, batch: TextBatch, *, masked: int = 0, texts: int = 0, head: str = TASK) -> float:
        """Return the FLOPs of a training step on a batch without padding; `head` reads `texts` texts."""
        return self._costs.get(head, self._cost).step_flops(
            tokens=batch.real_tokens, squared_lengths=batch.squared_lengths, masked=masked, texts=texts
        )

    def add_head(self, name: str, head: nn.Module, seed: int) -> None:
        """Add a head with random weights."""
        initialize(head, seed, self.config)
        self.heads[name] = head

    def add_task_head(self, name: str, head: nn.Module, seed: int, *, task_type: Any, classes: int) -> None:
        """Add the head of an auxiliary task with `classes` outputs."""
        self.add_head(name, head, seed)
        self._types[name], self._costs[name] = task_type, replace(self._cost, classes=classes)

    def reset_task_head(self, seed: int, head: str = TASK) -> None:
        """Initialise a task's head again, as TLM does between pre-training and fine-tuning."""
        initialize(self.heads[head], seed, self.config)

    def set_dropout(self, probability: float) -> None:
        """Set the probability of all dropouts of encoder and heads."""
        for module in self.modules():
            if isinstance(module, nn.Dropout):
                module.p = probability

    @contextmanager
    def uncompiled(self) -> Iterator[None]:
        """Run a block without compilation; replaces flex attention, which would build whole matrices."""
        backend = self.backend
        self.backend = "padded" if backend == "flex" else backend
        try:
            with torch.compiler.set_stance("force_eager"):
                yield
        finally:
            self.backend = backend

    def compile_parts(self) -> None:
        """Compile the encoder and the heads of token losses in place; weights keep their names."""
        self.fixed_shapes = True
        self.encoder.compile(dynamic=False)
        for name, head in self.heads.items():
            if isinstance(head, MaskedLMHead) or name in (GENERATOR, REPLACED):
                head.compile(dynamic=False)


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
    """Return a network by the settings, with random weights and the task's labels in its configuration.

    `markers` are the ids of the entity markers, which the task head reads if the settings have this pooling.
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
    """Return the pooling of the settings; `auto` is entity markers if there are any and the architecture has them."""
    poolings, pooling = architecture.poolings, settings.pooling
    if pooling == "auto":
        pooling = "entity_markers" if markers and "entity_markers" in poolings else poolings[0]
    if pooling not in poolings:
        raise InputError(f"{architecture.name} has {' and '.join(poolings)}, not {pooling}", key="model.pooling")
    if pooling == "entity_markers" and not markers:
        hint = "name them under tokenizer.entity_markers"
        raise InputError("there are no entity markers to read", key="model.pooling", hint=hint)
    return pooling


def name_markers(config: Any, pooling: Pooling, markers: tuple[int, ...]) -> None:
    """Write the entity markers that the task head reads into a configuration, where `markers_of` finds them."""
    if pooling == "entity_markers":
        config.marker_token_ids = list(markers)
    elif markers_of(config):  # of a checkpoint's earlier task
        config.marker_token_ids = []


def name_labels(config: Any, labels: tuple[str, ...], task_type: str = "text") -> None:
    """Write the task's labels and problem type into a configuration."""
    described = task_types.get(task_type)()
    config.problem_type = described.problem_type
    labels = described.output_names(labels)
    config.id2label = dict(enumerate(labels))
    config.label2id = {label: number for number, label in enumerate(labels)}


@torch.no_grad()
def initialize(module: nn.Module, seed: int, config: Any) -> None:
    """Set random weights by rules that do not depend on library versions.

    Matrices are N(0, .02), norms 1, biases 0, as in BERT. Matrices that write to the residual stream of a pre-norm
    encoder are scaled by 1 / sqrt(2 x layers), as in GPT-2 and ModernBERT. TLM's task head has PyTorch's uniform rule.
    """
    random = torch.Generator().manual_seed(seed)
    deviation = config.initializer_range
    for name, part in module.named_modules():
        if isinstance(part, nn.Linear) and TLM_TASK in name:
            for weights in (part.weight, part.bias):
                weights.copy_((2 * torch.rand(weights.shape, generator=random) - 1) / math.sqrt(part.in_features))
            continue
        if isinstance(part, nn.Linear | nn.Embedding):
            divisor = math.sqrt(2 * config.num_hidden_layers) if name.endswith(".Wo") else 1.0
            # Sampled on the CPU for modules on any device, since the generator is on the CPU.
            part.weight.copy_(torch.empty(part.weight.shape).normal_(0.0, deviation / divisor, generator=random))
        elif isinstance(part, nn.LayerNorm):
            part.weight.fill_(1.0)
        if isinstance(part, nn.Embedding) and part.padding_idx is not None:
            part.weight[part.padding_idx].zero_()
        bias = getattr(part, "bias", None)
        if isinstance(bias, Tensor):
            bias.zero_()


def auxiliary_head(name: str) -> str:
    """Return the name of an auxiliary task's head.

    >>> auxiliary_head("ner")
    'task_ner'
    """
    return f"{TASK}_{name}"


def add_task_heads(network: Network, task: Task, seed: int) -> None:
    """Add a stock head for each auxiliary task, with an output per label."""
    for name, auxiliary in task.auxiliary.items():
        config = copy.deepcopy(network.config)
        name_labels(config, auxiliary.labels, auxiliary.type)
        task_type, head_seed = auxiliary.task_type, derive(seed, "task", name)
        head = task_type.head(network.architecture, config)
        network.add_task_head(auxiliary_head(name), head, head_seed, task_type=task_type, classes=config.num_labels)


def reset_auxiliary_heads(network: Network, task: Task, seed: int) -> None:
    """Initialise the heads of auxiliary tasks again."""
    for name in task.auxiliary:
        network.reset_task_head(derive(seed, "head", name), auxiliary_head(name))


def load_auxiliary_head(network: Network, name: str, weights: Path) -> None:
    """Load the encoder and an auxiliary task's head from a file of all tasks into a network for this task alone."""
    tensors, _ = load_tensors(weights)
    old, new = f"heads.{auxiliary_head(name)}.", f"heads.{TASK}."
    renamed = {new + key.removeprefix(old): value for key, value in tensors.items() if key.startswith(old)}
    others = {key: tensors[key] for key in network.state_dict() if key not in renamed}
    load_state_dict(network, {**others, **renamed}, weights)
