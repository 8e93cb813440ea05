"""ModernBERT by Hugging Face's classes, including local layers.

The head reads the mean over the tokens. In short training from random weights a first token hardly learns to represent
its text, while the mean is useful from the first step (docs/decisions.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from endtask.encoders.base import Backend, Pooling, StockEncoder, encoders

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from endtask.encoders.base import Shape
    from endtask.encoders.batch import TextBatch

_ROUND = 128


@encoders.register("modernbert")
class ModernBert(StockEncoder):
    """Rotary positions, gated feed-forward layers, no biases, no token types."""

    stock = "ModernBert"
    padded = True
    gated = True
    rotary = True
    output_projection = "layers.{}.attn.Wo"
    model_type = "modernbert"
    to_classifier: ClassVar[dict[str, str]] = {
        "encoder.": "model.",
        "heads.task.head.": "head.",
        "heads.task.classifier.": "classifier.",
    }
    to_token_classifier = to_classifier
    to_masked_lm: ClassVar[dict[str, str]] = {
        "encoder.": "model.",
        "heads.masked_lm.transform.": "head.",
        "heads.masked_lm.bias": "decoder.bias",
    }

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
        return self.config_class()(
            vocab_size=vocabulary,
            pad_token_id=special_ids["pad"],
            cls_token_id=special_ids["cls"],
            sep_token_id=special_ids["sep"],
            bos_token_id=special_ids["cls"],
            eos_token_id=special_ids["sep"],
            max_position_embeddings=positions,
            global_attn_every_n_layers=1,
            embedding_dropout=dropout,
            mlp_dropout=dropout,
            attention_dropout=0.0,
            classifier_dropout=dropout,
            classifier_pooling=_stock_pooling(pooling),
            attn_implementation="sdpa",
            **vars(shape),
        )

    def adopt(self, config: Any, *, dropout: float, pooling: Pooling) -> None:
        config.embedding_dropout = config.mlp_dropout = config.classifier_dropout = dropout
        config.attention_dropout = 0.0
        config.classifier_pooling = _stock_pooling(pooling)

    def pooling(self, config: Any) -> Pooling:
        from endtask.encoders.heads import markers_of

        stock: Pooling = config.classifier_pooling
        return "entity_markers" if markers_of(config) else stock

    def default_intermediate_size(self, hidden_size: int) -> int:
        return gated_width(hidden_size)

    def embeddings(self, encoder: nn.Module) -> nn.Embedding:
        return encoder.get_submodule("embeddings.tok_embeddings")  # type: ignore[return-value]

    def hidden_states(self, encoder: nn.Module, batch: TextBatch, backend: Backend, dtype: torch.dtype) -> Tensor:
        from endtask.encoders.batch import through_table

        pad_id = self.embeddings(encoder).padding_idx or 0
        return through_table(encoder, batch, names=self.input_names, pad_id=pad_id)

    def masked_lm_transform(self, config: Any) -> nn.Module:
        from transformers.models.modernbert.modeling_modernbert import ModernBertPredictionHead

        head: nn.Module = ModernBertPredictionHead(config)
        return head

    def task_head(self, config: Any) -> nn.Module:
        from endtask.encoders.heads import ModernTaskHead

        return ModernTaskHead(config, self.masked_lm_transform(config))

    def classifier(self, config: Any) -> Any:
        from endtask.encoders.heads import markers_of
        from endtask.encoders.saved_model import ModernBertForMarkedClassification

        return ModernBertForMarkedClassification(config) if markers_of(config) else super().classifier(config)


def gated_width(hidden: int) -> int:
    """Return the width of gated feed-forward layers with as many weights as BERT's: 8/3, rounded up to 128.

    >>> [gated_width(hidden) for hidden in (128, 512, 768)]
    [384, 1408, 2048]
    """
    return -(-8 * hidden // (3 * _ROUND)) * _ROUND if hidden >= _ROUND else -(-8 * hidden // 3)


def rotary_of_each_kind(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the rotary parameters of global and local layers, without others that transformers 5.0 writes."""
    return {kind: value for kind, value in parameters.items() if kind in ("full_attention", "sliding_attention")}


def _stock_pooling(pooling: Pooling) -> Pooling:
    """Return the closest pooling that Hugging Face's configuration supports."""
    return "mean" if pooling == "entity_markers" else pooling
