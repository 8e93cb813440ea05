"""A few-shot study: pre-train the variants of a task, then train each of them on few labels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from endtask.errors import InputError
from endtask.experiments.compare import compare
from endtask.experiments.few_shot.few_shot import few_shot
from endtask.experiments.few_shot.few_shot_scores import FewShotOutcome
from endtask.experiments.few_shot.few_shot_spec import FewShotSpec
from endtask.experiments.scheduler import DeviceWorker, StartWorker
from endtask.experiments.spec import Study
from endtask.experiments.study_tasks import TaskStudy
from endtask.experiments.variants import listed_variants
from endtask.pipeline.run import Run

FOLDER = "few-shot"


def few_shot_study(
    each: TaskStudy,
    *,
    devices: Sequence[str] = (),
    where: str = "study",
    start_worker: StartWorker = DeviceWorker,
) -> FewShotOutcome:
    """Do what is left of a study on one task in the folder `settings.output_dir`, and return its tables.

    The variants that tables name, or all, are pre-trained as a comparison does it, up to the stage `pretrain`; the
    results of few-shot trials are in `few-shot/`.
    """
    spec = each.study.few_shot or FewShotSpec()
    study = _pretraining_study(each.study, spec)
    compare(
        each.settings,
        study,
        presets=each.presets,
        until="pretrain",
        devices=devices,
        where=where,
        start_worker=start_worker,
    )
    folder = Run(each.settings).folder
    variants = listed_variants(each.settings, study, where, each.presets)
    runs: dict[str, Path] = {variant.name: variant.trials(folder)[0].folder for variant in variants}
    return few_shot(runs, spec, folder / FOLDER, devices=devices, start_worker=start_worker)


def _pretraining_study(study: Study, spec: FewShotSpec) -> Study:
    """Return the study with only the variants that tables name, without baselines and fine-tuning."""
    if study.seeds is not None and len(study.seeds) > 1:
        raise InputError("a few-shot study pre-trains with one seed", key="seeds", hint="seeds: [0]")
    named = tuple(dict.fromkeys(row.variant for table in spec.tables.values() for row in table.rows))
    only = study.only or named or None
    return study.model_copy(update={"baselines": {}, "tables": {}, "only": only, "few_shot": None})
