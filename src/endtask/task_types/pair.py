"""One class for each pair of texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from endtask.task_types.base import task_types
from endtask.task_types.text import Text

if TYPE_CHECKING:
    from endtask.task.columns import Columns
    from endtask.task.split_tables import Table


@task_types.register("pair")
class Pair(Text):
    """One class for each pair of texts, which the encoder reads together."""

    aliases: ClassVar[tuple[str, ...]] = ("sentence_pair",)
    columns: ClassVar[tuple[str, ...]] = ("text", "text_pair", "label")
    second_text: ClassVar[Literal["never", "optional", "always"]] = "always"
    card_title = "A classifier of text pairs"
    detection_order = 3

    def detect(self, columns: Columns, train: Table, labels: dict[int, Any], delimiter: str | None) -> bool:
        return columns.text_pair is not None
