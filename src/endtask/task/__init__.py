"""Labelled data: reading, splits and the audit."""

from endtask.task.audit import Audit, audit
from endtask.task.leaks import leaked_ids, normalize, remove_entity_markers
from endtask.task.task import Task

__all__ = ["Audit", "Task", "audit", "leaked_ids", "normalize", "remove_entity_markers"]
