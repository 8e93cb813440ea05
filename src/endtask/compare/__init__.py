"""Comparisons: cells x pre-training seeds x fine-tuning seeds, with baselines, tests, intervals and cost."""

from endtask.compare.comparison import Comparison, read_comparison
from endtask.compare.finished import judge_finished
from endtask.compare.outcome import Outcome
from endtask.compare.whole import compare

__all__ = ["Comparison", "Outcome", "compare", "judge_finished", "read_comparison"]
