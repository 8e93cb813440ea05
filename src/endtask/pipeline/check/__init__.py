"""Look before spending: problems of the data, examples as the model will see them, and what the run would cost."""

from endtask.pipeline.check.check import CheckResult, check
from endtask.pipeline.check.estimate import Estimate

__all__ = ["CheckResult", "Estimate", "check"]
