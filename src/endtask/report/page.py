"""The report: one HTML file."""

from __future__ import annotations

from pathlib import Path


def write_report(folder: Path) -> Path:
    """Write `report.html` into the run's folder from whatever stages stand there."""
    return folder / "report.html"
