"""The chart of attention heads: a row of cells for each layer, with a symbol for positional and vertical heads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from endtask.reporting.svg import LEFT, RIGHT, TITLE_LINE, WIDTH, legend_of, svg

_SYMBOLS = {"positional": "↔", "vertical": "│"}
"""What the cell of a head of a kind shows besides its colour: arrows to the neighbours, or a vertical line."""
_STYLES = {kind: number for number, kind in enumerate(_SYMBOLS)}
_LARGEST, _GAP = 26, 3
_SAMPLE = Markup('<rect class="head series-{style}" x="{x:.1f}" y="{top}" width="18" height="10" rx="2"/>')


@dataclass(frozen=True)
class Head:
    """An attention head: its kind and the shares of its maxima on neighbours and on fixed tokens."""

    kind: str
    neighbours: float
    fixed: float


def heads_chart(layers: Sequence[Sequence[Head]], *, title: str) -> Markup:
    """Return a chart with the heads of a layer in a row, the first layer on top."""
    most = max(len(layer) for layer in layers)
    size = min(_LARGEST, (WIDTH - LEFT - RIGHT) / most - _GAP)
    legend, legend_height = legend_of([f"{symbol} {kind}" for kind, symbol in _SYMBOLS.items()], _SAMPLE)
    top = TITLE_LINE + legend_height
    rows = [_row(number, layer, top + (size + _GAP) * number, size) for number, layer in enumerate(layers)]
    counts = {kind: sum(head.kind == kind for layer in layers for head in layer) for kind in (*_SYMBOLS, "other")}
    words = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    return svg(title, words, top + (size + _GAP) * len(layers) + 8, legend + Markup("").join(rows))


def _row(number: int, layer: Sequence[Head], top: float, size: float) -> Markup:
    name = Markup('<text class="tick end" x="{:g}" y="{:.1f}">{}</text>').format(
        LEFT - 6, top + size / 2 + 4, f"layer {number + 1}"
    )
    cells = [_cell(head, number, column, LEFT + (size + _GAP) * column, top, size) for column, head in enumerate(layer)]
    return name + Markup("").join(cells)


def _cell(head: Head, layer: int, column: int, x: float, y: float, size: float) -> Markup:
    style = f" series-{_STYLES[head.kind]}" if head.kind in _STYLES else ""
    words = (
        f"layer {layer + 1}, head {column + 1}: {head.kind}; of its maxima {head.neighbours:.0%} on neighbours, "
        f"{head.fixed:.0%} on [CLS], [SEP] or a full stop"
    )
    square = Markup(
        '<rect class="head{}" x="{:.1f}" y="{:.1f}" width="{size:.1f}" height="{size:.1f}" rx="2">'
        "<title>{}</title></rect>"
    ).format(style, x, y, words, size=size)
    if head.kind not in _SYMBOLS:
        return square
    symbol = Markup('<text class="head-mark middle" x="{:.1f}" y="{:.1f}">{}</text>')
    return square + symbol.format(x + size / 2, y + size / 2 + 4, _SYMBOLS[head.kind])
