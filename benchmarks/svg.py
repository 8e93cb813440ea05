"""Pieces of the pictures that are drawn as SVG from results files."""

from __future__ import annotations


def text(x: float, y: float, content: str, anchor: str = "start", size: int = 11, *, bold: bool = False) -> str:
    """A line of writing; `content` is ours, so nothing in it is escaped."""
    weight = ' font-weight="bold"' if bold else ""
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"'
    return f'<text {place}{weight} fill="#222">{content}</text>'
