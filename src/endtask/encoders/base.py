"""The contract of an encoder: its modules, its configuration, and how it is saved and loaded.

An encoder registers itself under the name that `model.architecture` takes:

    @encoders.register("bag")
    class Bag(Encoder):
        def encoder(self, config): ...
        def embeddings(self, encoder): ...
        def hidden_states(self, encoder, batch, backend, dtype): ...

These three methods are enough: heads, configuration and file format have defaults. The encoders of the package read and
write stock Hugging Face checkpoints instead. The attributes of these classes validate settings, so the modules that
register the package's encoders import torch inside methods only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from endtask.config.model import Backend, ModelSettings, Pooling, size_of
from endtask.config.section import PartConfig
from endtask.errors import InputError
from endtask.registry import encoders

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from endtask.encoders.batch import TextBatch


__all__ = ["Backend", "Encoder", "Pooling", "StockEncoder", "encoders"]


class Encoder:
    """Base class of all encoders; one object serves all networks of a run."""

    name: ClassVar[str]
    """Set by the registry."""
    padded: ClassVar[bool] = False
    """Whether the backend `padded` runs the whole encoder over a padded table instead of attention only."""
    backends: ClassVar[tuple[Backend, ...]] = ("padded",)
    """The attention backends of this encoder, fastest first."""
    gated: ClassVar[bool] = False
    """Whether feed-forward layers have a second input matrix."""
    rotary: ClassVar[bool] = False
    """Whether positions are rotary, which requires attention heads of even width."""
    splits_layers: ClassVar[bool] = False
    """Whether gradients of one layer can be computed without a backward pass through the layers below."""
    poolings: ClassVar[tuple[Pooling, ...]] = ("mean", "cls", "entity_markers")
    """The poolings that the task head supports, the default first."""
    input_names: ClassVar[tuple[str, ...]] = ("input_ids", "attention_mask")
    """The inputs that the saved model takes from its tokenizer."""
    output_projection: ClassVar[str | None] = None
    """The path of the attention output projection of layer `{}`, for gradients, or None."""
    model_type: ClassVar[str] = "endtask"
    """`model_type` of the configuration files that this encoder reads and writes."""
    preferred: ClassVar[bool] = False
    """Whether to prefer this encoder if several can read a checkpoint."""
    to_classifier: ClassVar[dict[str, str]] = {"encoder.": "encoder.", "heads.task.": "head."}
    """Prefixes of the network's weight names -> prefixes in the saved sequence classifier."""
    to_token_classifier: ClassVar[dict[str, str]] = to_classifier
    """The same for the saved token classifier."""
    to_masked_lm: ClassVar[dict[str, str]] = {"encoder.": "encoder.", "heads.masked_lm.": "masked_lm."}
    """The same for the saved masked language model."""

    class Config(PartConfig):
        """Options of this encoder, next to `model.architecture` in the settings."""

    def __init__(self, options: PartConfig | None = None) -> None:
        self.options = self.Config() if options is None else options

    def encoder(self, config: Any) -> nn.Module:
        """Return the encoder without any head."""
        raise NotImplementedError

    def embeddings(self, encoder: nn.Module) -> nn.Embedding:
        """Return the word embeddings, which the masked-LM head shares."""
        raise NotImplementedError

    def hidden_states(self, encoder: nn.Module, batch: TextBatch, backend: Backend, dtype: torch.dtype) -> Tensor:
        """Return one vector per token: (N, hidden)."""
        raise NotImplementedError

    def config(
        self,
        shape: Shape,
        *,
        vocabulary: int,
        special_ids: dict[str, int],
        positions: int,
        dropout: float,
        pooling: Pooling,
    ) -> Any:
        """Return the configuration, without labels."""
        return self.config_class()(
            endtask_encoder=self.name,
            encoder_options=self.options.model_dump(mode="json"),
            vocab_size=vocabulary,
            pad_token_id=special_ids["pad"],
            cls_token_id=special_ids["cls"],
            sep_token_id=special_ids["sep"],
            max_position_embeddings=positions,
            dropout=dropout,
            classifier_pooling=pooling,
            **vars(shape),
        )

    def config_class(self) -> Any:
        """Return the class that reads a checkpoint's configuration."""
        from endtask.encoders.saved_model import EncoderConfig

        return EncoderConfig

    def accepts(self, config: Any) -> bool:
        """Return whether this encoder can read a checkpoint with this configuration."""
        return bool(config.endtask_encoder == self.name)

    def config_problem(self, config: Any) -> str | None:
        """Return why a configuration cannot be used although its class accepts it, or None."""
        return None

    def tokenizer_problem(self, config: Any, tokenizer: Any) -> str | None:
        """Return why a checkpoint cannot read the ids of a tokenizer, or None; its size is checked elsewhere."""
        return None

    def separates_pairs(self, config: Any) -> bool:
        """Return whether a checkpoint can distinguish the two texts of a pair."""
        return True

    def adopt(self, config: Any, *, dropout: float, pooling: Pooling) -> None:
        """Set the dropout and pooling of a checkpoint's configuration."""
        config.dropout, config.classifier_pooling = dropout, pooling

    def max_length(self, config: Any) -> int:
        """Return the maximum number of tokens of a text."""
        return int(config.max_position_embeddings)

    def pooling(self, config: Any) -> Pooling:
        """Return the pooling of the task head."""
        pooling: Pooling = config.classifier_pooling
        return pooling

    def default_intermediate_size(self, hidden_size: int) -> int:
        """Return the width of the feed-forward layers if the settings have none."""
        return 4 * hidden_size

    def check_shape(self, shape: Shape) -> None:
        """Raise `InputError` if this encoder does not support a shape."""
        head_size = shape.hidden_size // shape.num_attention_heads
        if self.rotary and head_size % 2:
            raise InputError(
                f"{shape.num_attention_heads} heads of width {head_size}; "
                "rotary positions rotate pairs of numbers and need an even width",
                key="model.hidden_size",
            )

    def masked_lm_transform(self, config: Any) -> nn.Module:
        """Return the part of the masked-LM head before the output matrix."""
        from endtask.encoders.heads import DenseNorm

        return DenseNorm(config.hidden_size)

    def task_head(self, config: Any) -> nn.Module:
        """Return the head of the sequence classifier: pooled vectors (S, hidden) -> logits (S, classes)."""
        from endtask.encoders.heads import DenseNorm, TransformHead

        return TransformHead(DenseNorm(config.hidden_size), config.hidden_size, config.num_labels, config.dropout)

    def token_head(self, config: Any) -> nn.Module:
        """Return the head of the token classifier: one vector per token (N, hidden) -> logits (N, tags)."""
        return self.task_head(config)

    def classifier(self, config: Any) -> Any:
        """Return an empty sequence classifier with `save_pretrained`."""
        from endtask.encoders.saved_model import EncoderForSequenceClassification

        return EncoderForSequenceClassification(config)

    def token_classifier(self, config: Any) -> Any:
        """Return an empty token classifier with `save_pretrained`."""
        from endtask.encoders.saved_model import EncoderForTokenClassification

        return EncoderForTokenClassification(config)

    def masked_lm(self, config: Any) -> Any:
        """Return an empty masked language model with `save_pretrained`."""
        from endtask.encoders.saved_model import EncoderForMaskedLM

        return EncoderForMaskedLM(config)


class StockEncoder(Encoder):
    """Base class of encoders whose configuration, encoder and saved models are Hugging Face's own classes."""

    stock: ClassVar[str]
    """The prefix of the names of these classes: `Bert` for `BertModel`."""

    def config_class(self) -> Any:
        return self._stock_class("Config")

    def accepts(self, config: Any) -> bool:
        return True

    def encoder(self, config: Any) -> nn.Module:
        encoder: nn.Module = self._stock_class("Model")(config)
        return encoder

    def classifier(self, config: Any) -> Any:
        return self._stock_class("ForSequenceClassification")(config)

    def token_classifier(self, config: Any) -> Any:
        return self._stock_class("ForTokenClassification")(config)

    def masked_lm(self, config: Any) -> Any:
        return self._stock_class("ForMaskedLM")(config)

    def _stock_class(self, ending: str) -> Any:
        import transformers

        return getattr(transformers, self.stock + ending)


@dataclass(frozen=True)
class Shape:
    """The sizes of an encoder."""

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int


def shape_of(settings: ModelSettings) -> Shape:
    """Return the sizes of the settings: those of `model.size`, replaced by explicit numbers.

    >>> shape_of(ModelSettings(architecture="bert", size="tiny", num_hidden_layers=1))
    Shape(hidden_size=128, num_hidden_layers=1, num_attention_heads=2, intermediate_size=512)
    """
    named_hidden, named_layers, named_heads = size_of(settings.size)
    hidden = settings.hidden_size or named_hidden
    encoder = settings.part
    shape = Shape(
        hidden,
        settings.num_hidden_layers or named_layers,
        settings.num_attention_heads or named_heads,
        settings.intermediate_size or encoder.default_intermediate_size(hidden),
    )
    if shape.hidden_size % shape.num_attention_heads:
        raise InputError(
            f"{shape.hidden_size} is not a multiple of model.num_attention_heads {shape.num_attention_heads}",
            key="model.hidden_size",
        )
    encoder.check_shape(shape)
    return shape
