"""BERT by Hugging Face's classes, with or without padding; the head reads the first token or the mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from endtask.encoders.base import Backend, Pooling, StockEncoder, encoders

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from endtask.encoders.attention import AttentionMetadata
    from endtask.encoders.base import Shape
    from endtask.encoders.batch import TextBatch


@encoders.register("bert")
class Bert(StockEncoder):
    """The encoder of the TLM and ISS papers."""

    stock = "Bert"
    padded = True
    backends: ClassVar[tuple[Backend, ...]] = ("varlen", "padded")
    input_names: ClassVar[tuple[str, ...]] = ("input_ids", "token_type_ids", "attention_mask")
    poolings: ClassVar[tuple[Pooling, ...]] = ("cls", "mean")
    output_projection = "encoder.layer.{}.attention.output.dense"
    model_type = "bert"
    to_classifier: ClassVar[dict[str, str]] = {
        "encoder.": "bert.",
        "heads.task.pooler.": "bert.pooler.",
        "heads.task.classifier.": "classifier.",
    }
    to_token_classifier: ClassVar[dict[str, str]] = {"encoder.": "bert.", "heads.task.classifier.": "classifier."}
    to_masked_lm: ClassVar[dict[str, str]] = {
        "encoder.": "bert.",
        "heads.masked_lm.transform.": "cls.predictions.transform.",
        "heads.masked_lm.bias": "cls.predictions.bias",
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
        from endtask.encoders.attention import ATTENTION

        config = self.config_class()(
            vocab_size=vocabulary,
            pad_token_id=special_ids["pad"],
            max_position_embeddings=positions,
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=dropout,
            attn_implementation=ATTENTION,
            **vars(shape),
        )
        _set_pooling(config, pooling)
        return config

    def separates_pairs(self, config: Any) -> bool:
        return bool(config.type_vocab_size >= 2)

    def adopt(self, config: Any, *, dropout: float, pooling: Pooling) -> None:
        from endtask.encoders.attention import ATTENTION

        config.hidden_dropout_prob = config.attention_probs_dropout_prob = dropout
        config.classifier_dropout = None  # the encoder's dropout
        config._attn_implementation = ATTENTION
        _set_pooling(config, pooling)

    def pooling(self, config: Any) -> Pooling:
        from endtask.encoders.heads import reads_mean

        return "mean" if reads_mean(config) else "cls"

    def encoder(self, config: Any) -> nn.Module:
        encoder: nn.Module = self._stock_class("Model")(config, add_pooling_layer=False)
        return encoder

    def embeddings(self, encoder: nn.Module) -> nn.Embedding:
        return encoder.get_submodule("embeddings.word_embeddings")  # type: ignore[return-value]

    def hidden_states(self, encoder: nn.Module, batch: TextBatch, backend: Backend, dtype: torch.dtype) -> Tensor:
        from endtask.encoders.attention import attention_metadata
        from endtask.encoders.batch import through_table

        if backend == "padded":
            pad_id = self.embeddings(encoder).padding_idx or 0
            return through_table(encoder, batch, names=self.input_names, pad_id=pad_id)
        return self.packed(encoder, batch, attention_metadata(backend, batch))

    def packed(self, encoder: nn.Module, batch: TextBatch, metadata: AttentionMetadata) -> Tensor:
        """Return one vector per token without padding; all layers but attention see the batch as one long text."""
        inputs = {
            "input_ids": batch.input_ids[None],
            "position_ids": self.first_position(encoder) + batch.position_ids[None],
        }
        if "token_type_ids" in self.input_names:
            inputs["token_type_ids"] = batch.token_type_ids[None]
        hidden: Tensor = encoder(**inputs, metadata=metadata).last_hidden_state  # (1, N, hidden)
        return hidden[0]

    def first_position(self, encoder: nn.Module) -> int:
        """Return the position of a text's first token."""
        return 0

    def masked_lm_transform(self, config: Any) -> nn.Module:
        from transformers.models.bert.modeling_bert import BertPredictionHeadTransform

        transform: nn.Module = BertPredictionHeadTransform(config)
        return transform

    def task_head(self, config: Any) -> nn.Module:
        from endtask.encoders.heads import PoolerHead, TokenHead, reads_mean

        return TokenHead(config) if reads_mean(config) else PoolerHead(config)

    def token_head(self, config: Any) -> nn.Module:
        from endtask.encoders.heads import TokenHead

        return TokenHead(config)

    def classifier(self, config: Any) -> Any:
        from endtask.encoders.heads import reads_mean
        from endtask.encoders.saved_model import BertForMeanClassification

        return BertForMeanClassification(config) if reads_mean(config) else super().classifier(config)


def _set_pooling(config: Any, pooling: Pooling) -> None:
    if pooling == "mean":
        config.classifier_pooling = pooling
    elif hasattr(config, "classifier_pooling"):  # of a checkpoint's earlier task
        del config.classifier_pooling
