"""Messages, progress and the log of a run; nothing here is part of a command's result."""

from endtask.progress.bars import Advance, bar, stage_of_run
from endtask.progress.durations import duration
from endtask.progress.log import RunLog, recorded
from endtask.progress.messages import quiet, say, set_quiet, silence, warn

__all__ = [
    "Advance",
    "RunLog",
    "bar",
    "duration",
    "quiet",
    "recorded",
    "say",
    "set_quiet",
    "silence",
    "stage_of_run",
    "warn",
]
