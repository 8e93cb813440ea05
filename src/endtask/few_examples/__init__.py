"""Few-example learning on top of pre-training: how a small model does with 50, 200 or 1000 labels."""

from endtask.few_examples.outcome import Outcome
from endtask.few_examples.plan import Plan
from endtask.few_examples.work import few_examples

__all__ = ["Outcome", "Plan", "few_examples"]
