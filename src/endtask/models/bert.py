"""BERT, by Hugging Face's own classes; the head reads the first token."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification, BertModel
from transformers.models.bert.modeling_bert import BertPooler, BertPredictionHeadTransform

from endtask.models.batch import TextBatch
from endtask.models.sizes import Shape


class PoolerHead(nn.Module):
    """The head of `BertForSequenceClassification`: pooler, dropout, linear."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.pooler = BertPooler(config)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)

    def forward(self, hidden: Tensor, attention_mask: Tensor) -> Tensor:
        """Class logits from the first token: (B, T, hidden) -> (B, classes)."""
        logits: Tensor = self.classifier(self.dropout(self.pooler(hidden)))
        return logits


class Bert:
    """The architecture of the TLM and ISS papers."""

    name = "bert"
    input_names: tuple[str, ...] = ("input_ids", "token_type_ids", "attention_mask")
    to_classifier = {"body.": "bert.", "task.pooler.": "bert.pooler.", "task.classifier.": "classifier."}  # noqa: RUF012
    to_masked_lm = {  # noqa: RUF012
        "body.": "bert.",
        "masked_lm.transform.": "cls.predictions.transform.",
        "masked_lm.bias": "cls.predictions.bias",
    }

    def config(
        self, shape: Shape, *, vocabulary: int, special_ids: dict[str, int], positions: int, dropout: float
    ) -> Any:
        return BertConfig(
            vocab_size=vocabulary,
            pad_token_id=special_ids["pad"],
            max_position_embeddings=positions,
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=dropout,
            attn_implementation="sdpa",
            **vars(shape),
        )

    def body(self, config: Any) -> nn.Module:
        body: nn.Module = BertModel(config, add_pooling_layer=False)
        return body

    def embeddings(self, body: nn.Module) -> nn.Embedding:
        return body.get_submodule("embeddings.word_embeddings")  # type: ignore[return-value]

    def hidden_states(self, body: nn.Module, batch: TextBatch) -> Tensor:
        hidden: Tensor = body(
            input_ids=batch.input_ids, attention_mask=batch.attention_mask, token_type_ids=batch.token_type_ids
        ).last_hidden_state
        return hidden

    def masked_lm_transform(self, config: Any) -> nn.Module:
        transform: nn.Module = BertPredictionHeadTransform(config)
        return transform

    def task_head(self, config: Any) -> nn.Module:
        return PoolerHead(config)

    def classifier(self, config: Any) -> Any:
        return BertForSequenceClassification(config)

    def masked_lm(self, config: Any) -> Any:
        return BertForMaskedLM(config)
