"""`endtask retrieve`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from endtask.cli.options import (
    CorpusOption,
    JsonOption,
    OutputOption,
    PresetOption,
    QuietOption,
    SetOption,
    SettingsPath,
    StartOption,
    TaskOption,
    examples,
    settings_from,
)
from endtask.progress import set_quiet
from endtask.terminal import print_json, print_lines

NAME = "retrieve"
EXAMPLES = examples(
    "endtask retrieve --task data/chemprot --corpus 'corpus/*.jsonl.zst' --output runs/chemprot",
    "endtask retrieve --task labels.csv --corpus notes/ --set retrieve.top_k=50 --set select.budget=300MB",
    "endtask retrieve runs/chemprot --set select.name=dsir --from select  # the same passages, another selector",
    "endtask retrieve --task labels.csv --corpus notes/ --set select.name=random --output runs/random",
    "endtask retrieve --task labels.csv --set select.name=imported --set select.path=mine.csv "
    "--set select.budget=null --output runs/mine",
)


def command(
    settings: SettingsPath = None,
    task: TaskOption = None,
    corpus: CorpusOption = None,
    output: OutputOption = None,
    preset: PresetOption = None,
    overrides: SetOption = None,
    start: StartOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Retrieve passages for the task's texts and select the best of them, without any training.

    For comparison, select at random or import your own selection. Writes a Parquet table with text, source, rank,
    score and matched queries to the run's folder.
    """
    from endtask.errors import InputError
    from endtask.io.run_layout import SELECTION
    from endtask.pipeline.run import run

    set_quiet(quiet)
    resolved = settings_from(settings, task=task, corpus=corpus, output=output, preset=preset, overrides=overrides)
    if not resolved.corpus.sources and resolved.select.part_class.reads_candidates:
        raise InputError("no corpus to retrieve from", key="corpus.sources", hint="--corpus path/to/text")
    if not resolved.select.part_class.selects:
        raise InputError("none selects nothing", key="select.name", hint="--set select.name=best_rank")
    result = run(resolved, until="select", start=start)
    retrieved, selected = result.stages["retrieve"], result.stages["select"]
    table = result.folder / "select" / SELECTION
    if as_json:
        print_json({"retrieve": retrieved, "select": selected, "table": str(table)})
        return
    lines = selection_lines(selected, has_corpus=bool(retrieved["corpus"]["bytes"]))
    print_lines(*_retrieval_lines(retrieved), *lines, f"table: {table}")


def _retrieval_lines(counts: dict[str, Any]) -> Iterator[str]:
    """Yield lines about queries, retrieved passages and dropped texts."""
    if "queries" not in counts:
        return
    yield (
        f"{counts['queries']:,} queries x {counts['top_k']:,} passages each retrieved "
        f"{counts['passages']:,} of {counts['corpus']['passages']:,} passages; "
        f"the contamination filter dropped {counts['dropped_by_contamination_filter']:,}"
    )
    if counts["texts_without_words"]:
        yield f"skipped texts without any word: {counts['texts_without_words']:,}"


def selection_lines(counts: dict[str, Any], *, has_corpus: bool) -> Iterator[str]:
    """Yield lines about the selected passages and the quality of the selection."""
    from endtask.reporting.selection import quality_sentence

    if "rows" in counts:
        yield (
            f"imported: {counts['rows']:,} rows; {counts['empty']:,} were empty, "
            f"the contamination filter dropped {counts['dropped_by_contamination_filter']:,}"
        )
    share = f", {counts['share_of_corpus']:.1%} of the corpus" if has_corpus else ""
    yield f"selected: {counts['passages']:,} passages, {counts['bytes'] / 1e6:.1f} MB{share}"
    if "quality" in counts:
        yield f"quality: {quality_sentence(counts)}"
    if "warning" in counts:
        yield f"warning: {counts['warning']}"
