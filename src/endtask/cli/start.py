"""The start of the `endtask` command: until its slow imports are done, a signal ends it with a line."""

from __future__ import annotations

import sys
from typing import NoReturn

from endtask.io.signals import leave_on_signals


def main() -> NoReturn:
    """Run the command line."""
    leave_on_signals(sys.argv[1:])
    from endtask.cli.main import main as run

    run()
