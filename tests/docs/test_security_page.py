"""The page on threats lists the limits that the code has."""

from __future__ import annotations

from pathlib import Path

from endtask.io.limits import LIMITS


def test_limits_are_those_of_the_code(repository: Path) -> None:
    page = (repository / "docs" / "concepts" / "security.md").read_text(encoding="utf-8")
    rows = {f"| `{limit.variable}` | {limit.default} | {limit.meaning} |" for limit in LIMITS}
    assert rows == {line for line in page.splitlines() if line.startswith("| `ENDTASK_MAX")}
