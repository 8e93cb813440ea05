"""RoBERTa by Hugging Face's classes: BERT's encoder with other heads and without token types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from endtask.encoders.base import encoders
from endtask.encoders.bert import Bert

if TYPE_CHECKING:
    from torch import nn

    from endtask.encoders.base import Pooling, Shape


@encoders.register("roberta")
class Roberta(Bert):
    """No token types; the first token has position pad id + 1."""

    stock = "Roberta"
    poolings: ClassVar[tuple[Pooling, ...]] = ("cls",)
    input_names: ClassVar[tuple[str, ...]] = ("input_ids", "attention_mask")
    model_type = "roberta"
    to_classifier: ClassVar[dict[str, str]] = {"encoder.": "roberta.", "heads.task.stock.": "classifier."}
    to_token_classifier: ClassVar[dict[str, str]] = {"encoder.": "roberta.", "heads.task.classifier.": "classifier."}
    to_masked_lm: ClassVar[dict[str, str]] = {
        "encoder.": "roberta.",
        "heads.masked_lm.transform.": "lm_head.",
        "heads.masked_lm.bias": "lm_head.bias",
    }

    def config(self, shape: Shape, **options: Any) -> Any:
        config, special_ids = super().config(shape, **options), options["special_ids"]
        config.bos_token_id, config.eos_token_id = special_ids["cls"], special_ids["sep"]
        config.max_position_embeddings += special_ids["pad"] + 1
        config.type_vocab_size, config.layer_norm_eps = 1, 1e-5
        return config

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

    def first_position(self, encoder: nn.Module) -> int:
        return (self.embeddings(encoder).padding_idx or 0) + 1

    def masked_lm_transform(self, config: Any) -> nn.Module:
        from endtask.encoders.heads import RobertaTransform

        return RobertaTransform(config)

    def task_head(self, config: Any) -> nn.Module:
        from endtask.encoders.heads import FirstTokenHead

        return FirstTokenHead(config)
