"""Curves sent to TensorBoard, W&B, trackio or MLflow, by name; to none of them unless asked."""

from endtask.train.trackers.trackers import TRACKERS, Trackers, find_libraries, open_trackers

__all__ = ["TRACKERS", "Trackers", "find_libraries", "open_trackers"]
