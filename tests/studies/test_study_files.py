"""Every study in studies/ can run: its keys are settings, its variants are valid, and its data exist."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from endtask.config import Settings, load_settings
from endtask.experiments.spec import TaskStudy, read_study, study_tasks
from endtask.experiments.trial_runs import make_plan
from endtask.io.installed_package import package_model
from endtask.pipeline.preflight import preflight
from endtask.selectors.influence import influence_config
from endtask.task import Task
from endtask.task.task import read_all

STUDIES = sorted((Path(__file__).resolve().parents[2] / "studies").glob("*.yaml"))


def tasks_of(path: Path, folder: Path, variables: dict[str, str] | None = None) -> list[TaskStudy]:
    """The studies of a file's tasks."""

    def load(values: dict[str, Any], preset: str | None) -> Settings:
        return load_settings(preset=preset, given={"output_dir": str(folder / path.stem), **values})

    return study_tasks(read_study(path, variables), load)


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_every_variant_resolves(path: Path, tmp_path: Path) -> None:
    """A misspelt or removed setting, an unknown part or preset, or a table of unknown variants fails here."""
    for each in tasks_of(path, tmp_path):
        plan = make_plan(each.settings, each.study, str(path), each.presets)
        assert len({variant.settings.model_dump_json() for variant in plan.variants}) == len(plan.variants)
        if each.study.few_shot is not None:
            named = {row.variant for table in each.study.few_shot.tables.values() for row in table.rows}
            seeds = each.study.seeds or (0,)
            suffixes = [f"-{seed}" for seed in seeds] if len(seeds) > 1 else [""]
            names = [variant.name for variant in plan.variants if not variant.is_baseline]
            assert named == {name + suffix for name in names for suffix in suffixes}


def is_missing_package(path: str | None) -> bool:
    """Whether a path names a package that is not installed."""
    return path is not None and path.startswith("package:") and package_model(path) is None


@pytest.mark.long
@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_every_variant_passes_the_checks_before_training(path: Path, tmp_path: Path, shared_data: Path) -> None:
    """Needs the sample data; reads the tasks, not the corpus."""
    if path.stem in ("alignment", "alignment-fair"):
        pytest.skip("its tasks are made by `python -m studies.alignment_data` first")
    if path.stem == "demo":
        pytest.skip("its task, the docstrings of all installed libraries, takes minutes to read")
    tasks: dict[str, Task] = {}
    for each in tasks_of(path, tmp_path, {"data": str(shared_data)} if "data" in read_study(path).variables else None):
        for variant in make_plan(each.settings, each.study, str(path), each.presets).variants:
            settings = variant.settings
            scoring = influence_config(settings).model
            if any(is_missing_package(name) for name in (settings.model.path, settings.tokenizer.path, scoring)):
                continue  # an encoder that is installed on request, or not trained yet
            task = tasks.get(settings.task.path) or tasks.setdefault(settings.task.path, read_all(settings))
            preflight(task, settings, has_corpus=not path.stem.startswith("influence"), trains=False)
