"""Settings of tokenizer and encoder."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from endtask.config.section import LARGEST, Fraction, PartSection, Section
from endtask.errors import did_you_mean
from endtask.io.home import LocalPath
from endtask.registry import Registry, encoders

Pooling = Literal["cls", "mean", "entity_markers"]
Backend = Literal["varlen", "flex", "padded"]
"""How attention stays inside each text of a batch."""


AUTO = "auto"
"""The checkpoint that `endtask.config.automatic` chooses."""
SIZES = {
    "tiny": (128, 2, 2),
    "mini": (256, 4, 4),
    "compact": (384, 6, 6),
    "small": (512, 4, 8),
    "medium": (512, 8, 8),
    "base": (768, 12, 12),
    "large": (1024, 24, 16),
}
"""Hidden size, layers, attention heads."""
HEAD_SIZE = 64
"""The width of an attention head in sizes such as `256x3`."""


def size_of(name: str) -> tuple[int, int, int]:
    """Return hidden size, layers and attention heads of a size; raises `ValueError`.

    >>> size_of("tiny"), size_of("256x3")
    ((128, 2, 2), (256, 3, 4))
    """
    if name in SIZES:
        return SIZES[name]
    numbers = re.fullmatch(r"([1-9][0-9]*)x([1-9][0-9]*)", name)
    if numbers is None:
        hint = did_you_mean(name, SIZES)
        raise ValueError(f"{name!r} is not a size; {hint}, or write WIDTHxLAYERS, such as 256x3")
    width, layers = int(numbers[1]), int(numbers[2])
    if width > LARGEST["hidden_size"] or layers > LARGEST["num_hidden_layers"]:
        raise ValueError(f"{name!r}: at most {LARGEST['hidden_size']}x{LARGEST['num_hidden_layers']}")
    if width % HEAD_SIZE:
        raise ValueError(f"{name!r}: the width must be a multiple of {HEAD_SIZE}, the width of an attention head")
    return width, layers, width // HEAD_SIZE


def _known_size(name: str) -> str:
    size_of(name)
    return name


Size = Annotated[str, AfterValidator(_known_size)]


class TokenizerSettings(Section):
    """Trained on selection + task text, or loaded from `path`."""

    path: LocalPath | None = Field(
        None,
        description="a Hugging Face fast tokenizer (a folder, `hf:NAME`, `package:NAME`); model.path has its own",
    )
    kind: Literal["wordpiece", "bpe", "unigram"] = Field("wordpiece", description="how words are cut into tokens")
    vocab_size: int = Field(8000, ge=64, le=1 << 20, description="tokens to learn, special ones included")
    lowercase: bool = Field(True, description="fold upper case before cutting into tokens")
    spell_capitals: bool = Field(
        False, description="cut capitals that follow each other apart (DNA: d, n, a), for tasks about acronyms"
    )
    entity_markers: tuple[str, ...] | Literal["auto"] = Field(
        (),
        description="strings that become single tokens, such as entity markers; auto: those that occur once or "
        "twice in nearly every train text",
    )

    @property
    def markers(self) -> tuple[str, ...]:
        """The entity markers; none while `auto` is not resolved for a task."""
        return () if self.entity_markers == "auto" else self.entity_markers


def check_encoder(name: str, *, pooling: str = "auto", attention: str = "auto") -> None:
    """Raise `ValueError` where an encoder lacks the pooling or the attention backend of the settings."""
    if pooling == attention == "auto":
        return
    encoder = encoders.get(name)
    if pooling not in ("auto", *encoder.poolings):
        raise ValueError(f"pooling: {pooling}: {name} has {' and '.join(encoder.poolings)}")
    if attention not in ("auto", *encoder.backends):
        raise ValueError(f"attention: {attention}: {name} has {' and '.join(encoder.backends)}; use auto")


class ModelSettings(PartSection):
    """The encoder; explicit sizes override the named one."""

    registry: ClassVar[Registry[Any]] = encoders
    part_key: ClassVar[str] = "architecture"

    architecture: str = Field(
        "lean",
        description="lean: our fast ModernBERT, all layers global; bert, roberta, modernbert: Hugging Face's own "
        "classes; or an encoder of a plug-in",
    )
    path: LocalPath | None = Field(
        None,
        description="start from this checkpoint (a folder, `hf:NAME` or, from an installed package, `package:NAME`), "
        "which then fixes architecture and sizes; auto: endtask-mini on a CPU or for a short "
        "budget, else random weights",
    )
    size: Size = Field(
        "tiny",
        description="tiny (128 x 2), mini (256 x 4), compact (384 x 6), small (512 x 4), medium (512 x 8), "
        "base (768 x 12), large (1024 x 24); or WIDTHxLAYERS such as 256x3, with attention heads of width 64",
    )
    hidden_size: int | None = Field(None, gt=0, le=LARGEST["hidden_size"], description="width of a token's vector")
    num_hidden_layers: int | None = Field(None, gt=0, le=LARGEST["num_hidden_layers"], description="number of layers")
    num_attention_heads: int | None = Field(
        None, gt=0, le=LARGEST["num_attention_heads"], description="must divide the hidden size"
    )
    intermediate_size: int | None = Field(
        None, gt=0, le=LARGEST["intermediate_size"], description="width inside the feed-forward blocks"
    )
    max_position_embeddings: int = Field(
        512,
        gt=0,
        le=LARGEST["max_position_embeddings"],
        description="longest text the model can ever read, in tokens",
    )
    dropout: Fraction = Field(0.1, description="dropout of the encoder and its heads, pre-training apart")
    pooling: Literal["auto", "cls", "mean", "entity_markers"] = Field(
        "auto",
        description="what the task head reads: the first token, the mean over all, or the mean over "
        "`tokenizer.entity_markers`; auto: first for bert and roberta, else the entity markers where there are some, "
        "else the mean",
    )
    attention: Literal["auto", "varlen", "flex", "padded"] = Field(
        "auto",
        description="how attention stays inside each text; auto: the fastest on this machine; padded: with bert and "
        "roberta over tables of equally long texts, with dropout of attention weights",
    )

    @classmethod
    def spelled_out(cls, value: Any) -> Any:
        """Return `auto` as the checkpoint of that name; other words are architectures."""
        return {"path": AUTO} if value == AUTO else super().spelled_out(value)

    @field_validator("path")
    @classmethod
    def path_is_not_empty(cls, path: str | None) -> str | None:
        # Presets that need a checkpoint leave it empty, so that random weights are not fine-tuned by accident.
        if path == "":
            raise ValueError("name the checkpoint to start from, a folder, hf:NAME or package:NAME")
        return path

    @model_validator(mode="after")
    def encoder_fits(self) -> ModelSettings:
        if self.path is None:  # a checkpoint has its own architecture
            check_encoder(self.architecture, pooling=self.pooling, attention=self.attention)
        return self
