"""Labelled data: reading, splits and the audit."""

from endtask.task.audit import Audit, audit
from endtask.task.leaks import leaked_ids
from endtask.task.task import Task
from endtask.task.text_keys import normalize, remove_entity_markers

__all__ = ["Audit", "Task", "audit", "leaked_ids", "normalize", "remove_entity_markers"]
