"""Look before spending: problems of the data, examples as the model will see them, and what the run would cost."""

from endtask.check.estimate import Estimate
from endtask.check.whole import CheckResult, check

__all__ = ["CheckResult", "Estimate", "check"]
