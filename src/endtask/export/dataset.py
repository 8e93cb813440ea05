"""`--to dataset`: the selection as a data set folder with a card, for `datasets.load_dataset` and pyarrow."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from endtask.errors import InputError
from endtask.export import markdown
from endtask.export.base import Facts, FolderExporter, TrainedRun, exporters
from endtask.io.atomic import write_text
from endtask.io.run_layout import SELECTION
from endtask.io.selection_table import read_batches
from endtask.reporting import format as shown

_FILE = "data/train-00000-of-00001.parquet"
_UNKNOWN = "not stated"
_IDS = frozenset(
    {
        *("apache-2.0", "bsd-2-clause", "bsd-3-clause", "gfdl", "gpl-3.0", "lgpl-3.0", "mit", "mpl-2.0"),
        *("cc0-1.0", "cc-by-2.0", "cc-by-3.0", "cc-by-4.0", "cc-by-sa-3.0", "cc-by-sa-4.0"),
        *("cc-by-nc-4.0", "cc-by-nc-sa-4.0", "cc-by-nc-nd-4.0", "cc-by-nd-4.0", "odbl", "odc-by", "pddl"),
    }
)
"""Licences that the hub has identifiers for."""
_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))


@dataclass
class Contents:
    """The passages, bytes and licences of each source."""

    passages: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)
    licenses: dict[str, Counter[str]] = field(default_factory=dict)

    def add(self, batch: Any) -> None:
        """Count the passages of a batch of the table."""
        columns = (batch.column(name).to_pylist() for name in ("source", "license", "text"))
        for source, license, text in zip(*columns, strict=True):
            self.passages[source] += 1
            self.bytes[source] += len(text.encode())
            self.licenses.setdefault(source, Counter())[license or _UNKNOWN] += 1

    @property
    def all_licenses(self) -> list[str]:
        """All licences, the most frequent first."""
        counts = sum(self.licenses.values(), Counter())
        return [name for name, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]


@exporters.register("dataset")
class Dataset(FolderExporter):
    """The selected passages in Parquet, and a card with sources and licences."""

    needs: ClassVar[str] = "select"
    repository_type: ClassVar[str] = "dataset"

    def write(self, run: TrainedRun, folder: Path) -> Facts:
        table = run.path / "select" / SELECTION
        if not table.exists():
            raise InputError("the selected texts are not in this folder", path=run.path)
        contents = Contents()
        for batch in read_batches(table, columns=["source", "license", "text"]):
            contents.add(batch)
        if not contents.passages:
            raise InputError("this run selected no text", path=run.path)
        (folder / "data").mkdir()
        shutil.copyfile(table, folder / _FILE)
        write_text(folder / "README.md", dataset_card(run, contents))
        return {
            "passages": contents.passages.total(),
            "bytes": contents.bytes.total(),
            "sources": dict(contents.passages),
            "licenses": contents.all_licenses,
        }

    def lines(self, facts: Facts) -> Iterator[str]:
        passages = shown.plural(facts["passages"], "passage")
        yield f"{passages}, {shown.size(facts['bytes'])}, licences: {', '.join(facts['licenses'])}"


def dataset_card(run: TrainedRun, contents: Contents) -> str:
    """Return the card: metadata of the hub, and sources with licences."""
    settings, passages = run.settings, contents.passages.total()
    title = f"{Path(settings.task.path).name or 'task'}: selected text"
    ids = [name.lower().replace(" ", "-") for name in contents.all_licenses]
    metadata = {
        "license": ids if set(ids) <= _IDS else "other" if set(ids) != {_UNKNOWN.replace(" ", "-")} else "unknown",
        "pretty_name": markdown.one_line(title),
        "size_categories": [next((name for most, name in _SIZES if passages < most), "n>1M")],
        "tags": ["endtask", "pre-training"],
        "configs": [{"config_name": "default", "data_files": [{"split": "train", "path": "data/*.parquet"}]}],
    }
    rows = [
        {
            "source": source,
            "passages": f"{count:,}",
            "bytes": shown.size(contents.bytes[source]),
            "licenses": ", ".join(f"{name} ({number:,})" for name, number in contents.licenses[source].most_common()),
        }
        for source, count in contents.passages.most_common()
    ]
    card: str = markdown.template("dataset_card.md.jinja").render(
        metadata=markdown.front_matter(metadata),
        title=title,
        task_path=settings.task.path,
        selector=settings.select.name,
        budget=str(settings.select.budget),
        passages=shown.plural(passages, "passage"),
        bytes=shown.size(contents.bytes.total()),
        rows=rows,
        dropped=run.record.counts("retrieve").get("dropped_by_contamination_filter"),
    )
    return card + "\n"
