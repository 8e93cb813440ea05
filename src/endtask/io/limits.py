"""Limits on files that anyone may have written. Each is far above what real data need; a variable of the environment
raises it, also for worker processes.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from endtask.errors import InputError


@dataclass(frozen=True)
class Limit:
    """A limit, and the variable of the environment that changes it."""

    variable: str
    default: int
    meaning: str

    @property
    def value(self) -> int:
        """The limit in force."""
        text = os.environ.get(self.variable)
        if text is None:
            return self.default
        if not text.isdecimal() or int(text) == 0:
            raise InputError(f"{self.variable}={text}: not a positive whole number", hint=f"default: {self.default}")
        return int(text)

    @property
    def hint(self) -> str:
        """How to raise the limit."""
        return f"the variable {self.variable} sets this limit"


NESTING = Limit("ENDTASK_MAX_NESTING", 100, "levels of lists and objects in JSON and YAML")
LINE = Limit("ENDTASK_MAX_LINE_MB", 256, "MB of a line of text, decompressed")
RATIO = Limit("ENDTASK_MAX_RATIO", 1000, "bytes that a byte of a compressed file may become, beyond 256 MB")
SETTINGS = Limit("ENDTASK_MAX_SETTINGS_MB", 8, "MB of a settings file")
LIMITS = (NESTING, LINE, RATIO, SETTINGS)
MEGABYTE = 1_000_000
