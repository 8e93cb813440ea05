"""Classes of saved models without a stock class: other encoders, ModernBERT with entity markers, BERT with the mean.

Importing this module registers them with `transformers`, so that `AutoConfig` and `AutoModelFor...` load such a folder.
The encoder itself must be registered: a folder never contains code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    BertModel,
    BertPreTrainedModel,
    ModernBertModel,
    ModernBertPreTrainedModel,
    PretrainedConfig,
    PreTrainedModel,
)
from transformers.modeling_outputs import MaskedLMOutput, SequenceClassifierOutput, TokenClassifierOutput
from transformers.models.modernbert.modeling_modernbert import ModernBertPredictionHead

from endtask.encoders.batch import Layout, TextBatch, lay_out_tokens
from endtask.encoders.heads import MaskedLMHead, markers_of, mean_over, pool, reads_mean
from endtask.registry import encoders

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class EncoderConfig(PretrainedConfig):  # type: ignore[misc]
    """The configuration of a registered encoder; `endtask_encoder` is its name."""

    model_type = "endtask"

    def __init__(
        self,
        endtask_encoder: str = "",
        encoder_options: dict[str, Any] | None = None,
        vocab_size: int = 64,
        hidden_size: int = 128,
        num_hidden_layers: int = 2,
        num_attention_heads: int = 2,
        intermediate_size: int = 512,
        max_position_embeddings: int = 512,
        dropout: float = 0.1,
        classifier_pooling: str = "mean",
        initializer_range: float = 0.02,
        **others: Any,
    ) -> None:
        self.endtask_encoder, self.encoder_options = endtask_encoder, encoder_options or {}
        self.vocab_size, self.max_position_embeddings = vocab_size, max_position_embeddings
        self.hidden_size, self.intermediate_size = hidden_size, intermediate_size
        self.num_hidden_layers, self.num_attention_heads = num_hidden_layers, num_attention_heads
        self.dropout, self.classifier_pooling = dropout, classifier_pooling
        self.initializer_range = initializer_range
        super().__init__(**others)


class _SavedModel(PreTrainedModel):  # type: ignore[misc]
    """An encoder whose inputs are padded tables, as tokenizers return them."""

    config_class = EncoderConfig

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        part = encoders.get(config.endtask_encoder)
        self.part = part(part.Config(**config.encoder_options))
        self.encoder = self.part.encoder(config)

    def _init_weights(self, module: nn.Module) -> None:
        """Keep the initial weights of the encoder's modules; loading replaces them."""

    def _hidden(
        self, input_ids: Tensor, attention_mask: Tensor | None, token_type_ids: Tensor | None
    ) -> tuple[Tensor, TextBatch]:
        """Return one vector per token that is not padding, (N, hidden), and the batch."""
        present = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        lengths: NDArray[np.int64] = present.sum(1).cpu().numpy()
        seconds = lengths.copy()
        if token_type_ids is not None:
            seconds = lengths - (token_type_ids * present).sum(1).cpu().numpy()
        layout = Layout(self.config.pad_token_id, input_ids.shape[1])
        batch = lay_out_tokens(input_ids[present.bool()].cpu().numpy(), lengths, seconds, layout).to(input_ids.device)
        return self.part.hidden_states(self.encoder, batch, "padded", torch.float32), batch


class EncoderForSequenceClassification(_SavedModel):
    """An encoder with a head over pooled vectors."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.head = self.part.task_head(config)
        self.post_init()

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None, **_: Any
    ) -> SequenceClassifierOutput:
        """Return logits (S, classes) of token ids (S, T)."""
        hidden, batch = self._hidden(input_ids, attention_mask, token_type_ids)
        pooled = pool(hidden, batch, self.part.pooling(self.config), markers_of(self.config))
        return SequenceClassifierOutput(logits=self.head(pooled))


class EncoderForTokenClassification(_SavedModel):
    """An encoder with a head over every token."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.head = self.part.token_head(config)
        self.post_init()

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None, **_: Any
    ) -> TokenClassifierOutput:
        """Return logits (S, T, tags) of token ids (S, T), 0 for padding."""
        hidden, batch = self._hidden(input_ids, attention_mask, token_type_ids)
        return TokenClassifierOutput(logits=_as_table(self.head(hidden), batch, input_ids))


class EncoderForMaskedLM(_SavedModel):
    """An encoder with a masked-LM head."""

    _tied_weights_keys: Any = {}  # noqa: RUF012

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.masked_lm = MaskedLMHead(self.part.masked_lm_transform(config), config.vocab_size)
        self.post_init()

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None, **_: Any
    ) -> MaskedLMOutput:
        """Return vocabulary logits (S, T, vocabulary) of token ids (S, T), 0 for padding."""
        hidden, batch = self._hidden(input_ids, attention_mask, token_type_ids)
        logits = self.masked_lm.logits(hidden, self.part.embeddings(self.encoder).weight)
        return MaskedLMOutput(logits=_as_table(logits, batch, input_ids))


def _as_table(logits: Tensor, batch: TextBatch, input_ids: Tensor) -> Tensor:
    """Return logits as a padded table: (N, outputs) -> (S, T, outputs)."""
    table = logits.new_zeros((*input_ids.shape, logits.shape[-1]))
    table[batch.text_ids, batch.position_ids] = logits
    return table


class ModernBertForMarkedClassification(ModernBertPreTrainedModel):  # type: ignore[misc]
    """ModernBERT's classifier over the mean of the tokens `config.marker_token_ids`, or of all tokens without any.

    Hugging Face's classifiers read the first token or the mean. The head has other names than theirs, so that a stock
    class warns of a missing head instead of reading the mean.
    """

    weight_names: ClassVar[dict[str, str]] = {
        "encoder.": "model.",
        "heads.task.head.": "marked_head.",
        "heads.task.classifier.": "marked_classifier.",
    }
    """Prefixes of the network's weight names -> prefixes in this class."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels
        self.model = ModernBertModel(config)
        self.marked_head = ModernBertPredictionHead(config)
        self.drop = nn.Dropout(config.classifier_dropout)
        self.marked_classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, **_: Any
    ) -> SequenceClassifierOutput:  # ignores other inputs of tokenizers
        """Return logits (S, classes) of token ids (S, T)."""
        present = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        hidden = self.model(input_ids=input_ids, attention_mask=present).last_hidden_state  # (S, T, hidden)
        pooled = mean_over(hidden, self._read_tokens(input_ids, present.bool()))
        return SequenceClassifierOutput(logits=self.marked_classifier(self.drop(self.marked_head(pooled))))

    def _read_tokens(self, input_ids: Tensor, present: Tensor) -> Tensor:
        """Return which tokens are entity markers, or all tokens of texts without any: (S, T)."""
        is_marker = torch.stack([input_ids == marker for marker in markers_of(self.config)]).any(0) & present
        return is_marker | (present & ~is_marker.any(1, keepdim=True))


class BertForMeanClassification(BertPreTrainedModel):  # type: ignore[misc]
    """A linear layer over the mean of BERT's token vectors, which is what sentence encoders were trained for.

    Hugging Face's classifier reads the first token. The head has another name than its head, so that the stock class
    warns of a missing head.
    """

    weight_names: ClassVar[dict[str, str]] = {"encoder.": "bert.", "heads.task.classifier.": "mean_classifier."}
    """Prefixes of the network's weight names -> prefixes in this class."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels
        self.bert = BertModel(config, add_pooling_layer=False)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.mean_classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None, **_: Any
    ) -> SequenceClassifierOutput:
        """Return logits (S, classes) of token ids (S, T)."""
        present = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        hidden = self.bert(input_ids, present, token_type_ids).last_hidden_state  # (S, T, hidden)
        return SequenceClassifierOutput(logits=self.mean_classifier(self.dropout(mean_over(hidden, present))))


def classifier_class(config: Any) -> Any:
    """Return the class that loads a saved classifier of texts."""
    if isinstance(config, EncoderConfig):
        return AutoModelForSequenceClassification
    if markers_of(config):
        return ModernBertForMarkedClassification
    is_mean = config.model_type == "bert" and reads_mean(config)
    return BertForMeanClassification if is_mean else AutoModelForSequenceClassification


AutoConfig.register(EncoderConfig.model_type, EncoderConfig)
AutoModelForSequenceClassification.register(EncoderConfig, EncoderForSequenceClassification)
AutoModelForTokenClassification.register(EncoderConfig, EncoderForTokenClassification)
AutoModelForMaskedLM.register(EncoderConfig, EncoderForMaskedLM)
