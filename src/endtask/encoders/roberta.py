"""RoBERTa by Hugging Face's own classes: BERT's encoder with other heads and without token types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from endtask.encoders.base import Pooling, encoders
from endtask.encoders.bert import Bert

if TYPE_CHECKING:
    from torch import nn

    from endtask.encoders.base import Shape


@encoders.register("roberta")
class Roberta(Bert):
    """No token types; the first token has position pad id + 1."""

    input_names: ClassVar[tuple[str, ...]] = ("input_ids", "attention_mask")
    model_type = "roberta"
    to_classifier: ClassVar[dict[str, str]] = {"encoder.": "roberta.", "heads.task.stock.": "classifier."}
    to_token_classifier: ClassVar[dict[str, str]] = {"encoder.": "roberta.", "heads.task.classifier.": "classifier."}
    to_masked_lm: ClassVar[dict[str, str]] = {
        "encoder.": "roberta.",
        "heads.masked_lm.transform.": "lm_head.",
        "heads.masked_lm.bias": "lm_head.bias",
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

        return self.config_class()(
            vocab_size=vocabulary,
            pad_token_id=special_ids["pad"],
            bos_token_id=special_ids["cls"],
            eos_token_id=special_ids["sep"],
            max_position_embeddings=positions + special_ids["pad"] + 1,
            type_vocab_size=1,
            layer_norm_eps=1e-5,
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=dropout,
            attn_implementation=ATTENTION,
            **vars(shape),
        )

    def config_class(self) -> Any:
        from transformers import RobertaConfig

        return RobertaConfig

    def config_problem(self, config: Any) -> str | None:
        return "no pad_token_id, from which RoBERTa counts its positions" if config.pad_token_id is None else None

    def tokenizer_problem(self, config: Any, tokenizer: Any) -> str | None:
        if config.pad_token_id == tokenizer.pad_token_id:
            return None
        return f"pads with token {config.pad_token_id}, from which RoBERTa counts its positions"

    def separates_pairs(self, config: Any) -> bool:
        return True

    def max_length(self, config: Any) -> int:
        return int(config.max_position_embeddings) - int(config.pad_token_id) - 1

    def encoder(self, config: Any) -> nn.Module:
        from transformers import RobertaModel

        encoder: nn.Module = RobertaModel(config, add_pooling_layer=False)
        return encoder

    def first_position(self, encoder: nn.Module) -> int:
        return (self.embeddings(encoder).padding_idx or 0) + 1

    def masked_lm_transform(self, config: Any) -> nn.Module:
        from endtask.encoders.heads import RobertaTransform

        return RobertaTransform(config)

    def task_head(self, config: Any) -> nn.Module:
        from endtask.encoders.heads import FirstTokenHead

        return FirstTokenHead(config)

    def classifier(self, config: Any) -> Any:
        from transformers import RobertaForSequenceClassification

        return RobertaForSequenceClassification(config)

    def token_classifier(self, config: Any) -> Any:
        from transformers import RobertaForTokenClassification

        return RobertaForTokenClassification(config)

    def masked_lm(self, config: Any) -> Any:
        from transformers import RobertaForMaskedLM

        return RobertaForMaskedLM(config)
