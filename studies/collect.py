"""Turn the files of `endtask compare STUDY.yaml --results FOLDER` into the results file of a page.

    python -m studies.collect mix FOLDER [--runs runs/mix]     # then `make docs`

FOLDER holds TASK.json for each task of the study, or TASK-ANYTHING.json for the parts of a task, and the files of
`studies.curves`, TASK.curves.json.gz, if there are any. All are packed into benchmarks/results/raw/NAME, tested
together with the files stored before, and written to benchmarks/results/NAME.json. `--runs` makes the files of
`studies.curves` from the runs.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.results_file import RESULTS, write_results
from endtask.errors import InputError
from endtask.experiments.record import read_record
from endtask.experiments.spec import Study, TableSpec, read_study
from studies.curves import write_curves
from studies.pages import mix, tartan
from studies.pages.alignment import arm_rows, encoder_rows, few_shot_rows
from studies.pages.question import QUESTIONS, pairs_of
from studies.pages.twelve_tasks import summary_by_task
from studies.stored_results import CURVES, Compared, curve_rows, store, stored_files

Tree = dict[str, Any]
STUDIES = Path(__file__).resolve().parent
FEW_SHOT_ARMS = "alignment_fair"
"""A few-shot study of several pre-trainings an arm; its files are those of `few-shot.json`."""


def _study_of(name: str) -> str:
    """Return the study file of a question, by the name of its results file."""
    return "meta-gap" if name == "meta_gap_again" else name.replace("_", "-")


@dataclass(frozen=True)
class Template:
    """How the results of some study files become one results file; task names are split at hyphens into `keys`."""

    studies: tuple[str, ...]
    keys: tuple[str, ...] = ("task",)
    pairs: Callable[[Compared], Iterable[Tree]] = lambda compared: ()
    against: Callable[[Compared], str] | None = None
    chained: tuple[str, ...] = ()
    """Study files in which each variant is tested against the one before."""
    beside: tuple[str, ...] = ()
    """Study files whose stored results are tested together with these."""
    summary: Callable[[list[Tree]], Tree] | None = None
    """The summary of the rows; unset: the mean of every variant."""


TEMPLATES = {
    "recipe": Template(("recipe", "ladder"), ("task", "table"), chained=("ladder",)),
    "influence": Template(("influence",)),
    "mix": Template(("mix",), ("task", "part"), mix.pairs, mix.best_fixed),
    "tartan": Template(("tartan-scratch", "tartan-checkpoint"), ("task", "body"), tartan.pairs),
    **{name: Template((_study_of(name),), pairs=pairs_of(name)) for name in QUESTIONS if name != FEW_SHOT_ARMS},
    "tasks": Template(("tasks",), pairs=pairs_of("tasks"), beside=("tasks-finetune",), summary=summary_by_task),
}


def collect(name: str, folder: Path | None, results: Path = RESULTS) -> Path:
    """Store the files of a folder, test all stored files together, and write the results file."""
    template, raw = TEMPLATES[name], results / "raw" / name
    if folder is not None:
        files = sorted(folder.glob("*.json"))
        if not files:
            raise InputError("no results file of a comparison there", path=folder)
        store([*files, *sorted(folder.glob(f"*{CURVES}"))], raw)
    rows = [row for study in template.studies for row in study_rows(template, study, raw)]
    if not rows:
        raise InputError(f"no results file is named after a task of {' or '.join(template.studies)}.yaml", path=raw)
    summary = template.summary(rows) if template.summary else means(template, rows)
    command = " && ".join(f"endtask compare studies/{study}.yaml" for study in template.studies)
    return write_results(name, command, rows, summary, results)


def means(template: Template, rows: Iterable[Tree]) -> Tree:
    """Return the mean of every variant by task, table and variant."""
    keys = (*template.keys, "table", "cell")
    return {"_".join(str(row[key]) for key in keys if key in row): row["mean"] for row in rows if row["kind"] == "cell"}


def collect_alignment(folder: Path, results: Path = RESULTS) -> Path:
    """Write the results file of the few-shot study in a folder, such as runs/alignment."""
    records = sorted(folder.glob("*/few-shot/few-shot.json"))
    if not records:
        raise InputError("no few-shot study there", path=folder, hint="endtask few-shot studies/alignment.yaml")
    rows = list(encoder_rows(records[0].parents[1]))
    for record in records:
        outcome = read_record(record.parent, "few-shot").outcome or {"tables": ()}
        rows += few_shot_rows(record.parents[1].name, outcome)
    return write_results("alignment", "endtask few-shot studies/alignment.yaml", rows, {"rows": len(rows)}, results)


def collect_arms(folder: Path, results: Path = RESULTS) -> Path:
    """Write the results file of the few-shot study with several pre-trainings an arm from TASK.json files."""
    files = sorted(folder.glob("*.json"))
    if not files:
        raise InputError("no results of a few-shot study there", path=folder, hint="TASK.json, copies of few-shot.json")
    rows: list[Tree] = []
    for file in files:
        tree = read_few_shot(file)
        rows += arm_rows(file.stem, tree)
    command = "endtask few-shot studies/alignment-fair.yaml"
    return write_results(FEW_SHOT_ARMS, command, rows, {"rows": len(rows)}, results)


def read_few_shot(file: Path) -> Tree:
    """Return the outcome in a copy of `few-shot.json`."""
    try:
        outcome: Tree = json.loads(file.read_bytes())["outcome"]
        assert outcome["tables"]
    except (ValueError, KeyError, TypeError, AssertionError):
        raise InputError("not the few-shot.json of a finished study", path=file) from None
    return outcome


def study_rows(template: Template, name: str, raw: Path) -> Iterable[Tree]:
    """Yield the rows of a study file: runs, variants of its tables, pairs and curves."""
    study = _with_variants_of(read_study(STUDIES / f"{name}.yaml"), template.beside)
    for task in study.tasks:
        files = stored_files(raw, task)
        if not files:
            continue
        for other in template.beside:
            files += stored_files(raw.with_name(other.replace("-", "_")), task)
        compared = Compared.read(files)
        common = {**dict(zip(template.keys, task.split("-", len(template.keys) - 1), strict=True)), "gpu": compared.gpu}
        yield from ({"kind": "run", **common, **run} for run in compared.run_rows())
        for key, table in tables_of(study, task).items():
            against = template.against(compared) if template.against else table.against or study.against
            shown = {"metric": compared.measure.name, "against": against, **({"table": key} if key else {})}
            rows = compared.table(titles(study, table), None if name in template.chained else against)
            yield from ({"kind": "cell", **common, **shown, **row} for row in rows)
        yield from ({"kind": "pair", **common, **row} for row in template.pairs(compared))
        yield from ({"kind": "curve", **common, **row} for row in curve_rows(files, compared))


def _with_variants_of(study: Study, others: Iterable[str]) -> Study:
    """Return a study with the variants of others after its own."""
    variants = dict(study.variants)
    for other in others:
        variants |= read_study(STUDIES / f"{other}.yaml").variants
    return study.model_copy(update={"variants": variants})


def tables_of(study: Study, task: str) -> dict[str, TableSpec]:
    """Return the tables of a task; without tables in the study, a table of all variants."""
    if not study.tables:
        return {"": TableSpec(variants=tuple(study.variants), against=study.against)}
    return {name: table for name, table in study.tables.items() if table.tasks is None or task in table.tasks}


def titles(study: Study, table: TableSpec) -> dict[str, str]:
    """Return the variants and baselines of a table with their titles."""
    baselines = {"tfidf": "TF-IDF + logistic regression", "majority": "the largest class"}
    baselines["no_corpus"] = "the same encoder without corpus"
    title_of = baselines | {name: spec.title or name for name, spec in study.variants.items()}
    return {name: title_of.get(name, name) for name in table.variants}


def main() -> None:
    """Collect the results named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=(*TEMPLATES, "alignment", FEW_SHOT_ARMS))
    parser.add_argument("folder", type=Path, nargs="?", help="results files; unset: test the stored ones again")
    parser.add_argument(
        "--runs", type=Path, help="the folder of the comparisons, for their costs up to the best dev score"
    )
    args = parser.parse_args()
    try:
        if args.runs is not None:
            write_curves(args.runs, RESULTS / "raw" / args.name)
        few_shot = {"alignment": collect_alignment, FEW_SHOT_ARMS: collect_arms}
        print(few_shot[args.name](args.folder) if args.name in few_shot else collect(args.name, args.folder))
    except InputError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
