"""Metrics, one class each; a metric of a plug-in registers itself in the same registry."""

from endtask.evaluation.metrics.base import Metric, metrics

__all__ = ["Metric", "metrics"]
