"""Durations in words."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """Format a duration in its two largest units.

    >>> duration(0.25), duration(12.34), duration(200), duration(7260)
    ('0.2 s', '12 s', '3 min 20 s', '2 h 1 min')
    """
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    rounded = round(seconds)
    minutes, remainder = divmod(rounded, 60)
    if rounded < 3600:
        return f"{minutes} min {remainder} s" if minutes else f"{remainder} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min"
