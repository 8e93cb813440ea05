"""Experiments: many runs under a shared engine. `compare`, `search` and `few-shot` differ in the trials they make."""

from endtask.experiments.compare import compare, compare_finished, read_comparison_folder
from endtask.experiments.comparison import ComparisonResult
from endtask.experiments.spec import Study, check_study, read_study

__all__ = [
    "ComparisonResult",
    "Study",
    "check_study",
    "compare",
    "compare_finished",
    "read_comparison_folder",
    "read_study",
]
