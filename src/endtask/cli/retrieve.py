"""`endtask retrieve`."""

from __future__ import annotations

import json

from endtask.cli.options import (
    CorpusOption,
    JsonOption,
    OutputOption,
    QuietOption,
    SetOption,
    SettingsPath,
    TaskOption,
    examples,
    settings_from,
)
from endtask.progress import set_quiet

NAME = "retrieve"
EXAMPLES = examples(
    "endtask retrieve --task data/chemprot --corpus 'corpus/*.jsonl.zst' --output runs/chemprot",
    "endtask retrieve --task labels.csv --corpus notes/ --set retrieve.top_k=50",
)


def command(
    settings: SettingsPath = None,
    task: TaskOption = None,
    corpus: CorpusOption = None,
    output: OutputOption = None,
    overrides: SetOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Only find the passages that the task's texts ask for, and keep the best of them.

    The result is a Parquet table with text, source, rank, score and who asked, in the run's folder.
    """
    from endtask.errors import InputError
    from endtask.files.run_layout import SELECTION
    from endtask.run import run

    set_quiet(quiet)
    resolved = settings_from(settings, task=task, corpus=corpus, output=output, overrides=overrides)
    if not resolved.corpus.sources:
        raise InputError("no corpus to retrieve from", key="corpus.sources", hint="--corpus path/to/text")
    if resolved.select.selector == "none":
        raise InputError("none keeps nothing", key="select.selector", hint="--set select.selector=best_rank")
    result = run(resolved, until="select")
    retrieved, kept = result.stages["retrieve"], result.stages["select"]
    table = result.folder / "select" / SELECTION
    if as_json:
        print(json.dumps({"retrieve": retrieved, "select": kept, "table": str(table)}, ensure_ascii=False))
        return
    print(
        f"{retrieved['queries']:,} queries x {retrieved['top_k']:,} passages each asked for "
        f"{retrieved['passages']:,} of {retrieved['corpus']['passages']:,} passages; "
        f"{retrieved['dropped_by_guard']:,} held dev or test texts and were dropped"
    )
    size = f"{kept['bytes'] / 1e6:.1f} MB, {kept['share_of_corpus']:.1%} of the corpus"
    print(f"kept: {kept['passages']:,} passages, {size}")
    print(f"table: {table}")
