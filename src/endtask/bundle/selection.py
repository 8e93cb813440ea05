"""Selections without compression of their own: the bundle's, which sees all of the text at once, does better."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from endtask.bundle.contents import Item
from endtask.io.run_layout import DOMAIN, SELECTION


def with_plain_selections(items: Iterable[Item], scratch: Path) -> list[Item]:
    """The items with every selection exchanged for an uncompressed copy in `scratch`, equal ones for the same."""
    copies: dict[tuple[int, int], Path] = {}
    found = []
    for item in items:
        if isinstance(item.source, Path) and item.source.name in (SELECTION, DOMAIN):
            status = item.source.stat()
            place = copies.setdefault((status.st_dev, status.st_ino), scratch / f"{len(copies)}.parquet")
            if not place.exists():
                _copy_plain(item.source, place)
            item = replace(item, source=place)
        found.append(item)
    return found


def _copy_plain(file: Path, place: Path) -> None:
    """The same rows in the same groups, as they are."""
    import pyarrow.parquet as parquet

    with parquet.ParquetFile(file) as table, parquet.ParquetWriter(place, table.schema_arrow, compression="none") as to:
        for number in range(table.num_row_groups):
            group = table.read_row_group(number)
            to.write_table(group, row_group_size=max(1, group.num_rows))
