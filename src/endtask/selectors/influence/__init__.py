"""Influence selection (ISS): candidates ranked by the agreement of their gradients with the task's."""

from endtask.selectors.influence.config import InfluenceConfig, influence_config
from endtask.selectors.influence.selector import Influence

__all__ = ["Influence", "InfluenceConfig", "influence_config"]
