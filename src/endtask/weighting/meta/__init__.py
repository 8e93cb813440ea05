"""META-TARTAN: weights learned online from the gradient of held-out task loss."""

from endtask.weighting.meta.config import MetaConfig
from endtask.weighting.meta.part import MetaWeighting

__all__ = ["MetaConfig", "MetaWeighting"]
