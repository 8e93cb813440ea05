"""The default encoder: ModernBERT without padding, with global layers only; saved as a stock ModernBERT."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from endtask.encoders.base import Backend, encoders
from endtask.encoders.modernbert import ModernBert

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from endtask.encoders.batch import TextBatch


@encoders.register("lean")
class Lean(ModernBert):
    """ModernBERT without padding, with global layers only and no biases."""

    padded = False
    backends: ClassVar[tuple[Backend, ...]] = ("varlen", "flex", "padded")
    splits_layers = True
    preferred = True

    def accepts(self, config: Any) -> bool:
        return (
            set(config.layer_types) == {"full_attention"}
            and config.rope_parameters["full_attention"]["rope_type"] == "default"
            and not (config.attention_bias or config.mlp_bias or config.norm_bias or config.classifier_bias)
            and config.hidden_activation == config.classifier_activation == "gelu"
            and getattr(config, "head_dim", None) is None
        )

    def encoder(self, config: Any) -> nn.Module:
        from endtask.encoders.lean_layers import LeanEncoder

        return LeanEncoder(config)

    def hidden_states(self, encoder: nn.Module, batch: TextBatch, backend: Backend, dtype: torch.dtype) -> Tensor:
        from endtask.encoders.attention import attention_metadata

        hidden: Tensor = encoder(batch.input_ids, batch.position_ids, attention_metadata(backend, batch), dtype)
        return hidden

    def masked_lm_transform(self, config: Any) -> nn.Module:
        from endtask.encoders.lean_layers import PredictionHead

        return PredictionHead(config)
