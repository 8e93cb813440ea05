"""META-TARTAN: weights learned online from the gradient of held-out task loss."""

from endtask.weighting.meta.part import MetaConfig, MetaWeighting

__all__ = ["MetaConfig", "MetaWeighting"]
