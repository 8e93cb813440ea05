"""`endtask retrieve`."""

from __future__ import annotations

import json
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
from endtask.reporting.selection import quality_sentence

NAME = "retrieve"
EXAMPLES = examples(
    "endtask retrieve --task data/chemprot --corpus 'corpus/*.jsonl.zst' --output runs/chemprot",
    "endtask retrieve --task labels.csv --corpus notes/ --set retrieve.top_k=50 --set select.budget=300MB",
    "endtask retrieve runs/chemprot --set select.per_class=true --from select  # the same answers, dealt to classes",
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
    """Only find the passages that the task's texts ask for, and keep the best of them.

    Other selections of the same size stand beside it: a random one, one dealt to the classes in turn, or your own.
    The result is a Parquet table with text, source, rank, score and who asked, in the run's folder.
    """
    from endtask.errors import InputError
    from endtask.io.run_layout import SELECTION
    from endtask.pipeline.run import run

    set_quiet(quiet)
    resolved = settings_from(settings, task=task, corpus=corpus, output=output, preset=preset, overrides=overrides)
    if not resolved.corpus.sources and resolved.select.part_class.reads_candidates:
        raise InputError("no corpus to retrieve from", key="corpus.sources", hint="--corpus path/to/text")
    if not resolved.select.part_class.selects:
        raise InputError("none keeps nothing", key="select.name", hint="--set select.name=best_rank")
    result = run(resolved, until="select", start=start)
    retrieved, kept = result.stages["retrieve"], result.stages["select"]
    table = result.folder / "select" / SELECTION
    if as_json:
        print(json.dumps({"retrieve": retrieved, "select": kept, "table": str(table)}, ensure_ascii=False))
        return
    print(
        "\n".join(
            [*_searched(retrieved), *kept_lines(kept, has_corpus=bool(retrieved["corpus"]["bytes"])), f"table: {table}"]
        )
    )


def _searched(counts: dict[str, Any]) -> Iterator[str]:
    """What was asked and found; what did not ask or was left out, if any."""
    if "queries" not in counts:
        return
    yield (
        f"{counts['queries']:,} queries x {counts['top_k']:,} passages each asked for "
        f"{counts['passages']:,} of {counts['corpus']['passages']:,} passages; "
        f"{counts['dropped_by_contamination_filter']:,} held dev or test texts and were dropped"
    )
    unlabelled, held_back = counts["unlabelled_texts"], counts["unlabelled_texts_in_dev_or_test"]
    if unlabelled or held_back:
        yield f"unlabelled texts: {unlabelled:,} asked too; {held_back:,} were held back, as dev or test has them"
    if counts["texts_without_words"]:
        yield f"texts without any word, which asked nothing: {counts['texts_without_words']:,}"
    if counts["near_duplicates"]:
        yield f"near-duplicates left out: {counts['near_duplicates']:,}"


def kept_lines(counts: dict[str, Any], *, has_corpus: bool) -> Iterator[str]:
    """What was kept, and how good it looks."""
    if "rows" in counts:
        yield (
            f"imported: {counts['rows']:,} rows; {counts['empty']:,} were empty, "
            f"{counts['dropped_by_contamination_filter']:,} held dev or test texts and were dropped"
        )
    share = f", {counts['share_of_corpus']:.1%} of the corpus" if has_corpus else ""
    yield f"kept: {counts['passages']:,} passages, {counts['bytes'] / 1e6:.1f} MB{share}"
    if "quality" in counts:
        yield f"quality: {quality_sentence(counts)}"
    if "warning" in counts:
        yield f"warning: {counts['warning']}"
