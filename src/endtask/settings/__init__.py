"""The typed settings of a run, how they are read, and amounts with a unit."""

from endtask.settings.budget import BatchSize, Budget, SizeBudget
from endtask.settings.load import dump_yaml, load_settings, read_tree, resolve
from endtask.settings.presets import preset_names
from endtask.settings.sections import (
    ColumnSettings,
    CorpusSettings,
    EvaluateSettings,
    RetrieveSettings,
    SelectSettings,
    Settings,
    SourceSettings,
    TaskKind,
    TaskSettings,
)
from endtask.settings.training import (
    FinetuneSettings,
    ModelSettings,
    PhaseSettings,
    TokenizerSettings,
    TrainSettings,
)

__all__ = [
    "BatchSize",
    "Budget",
    "ColumnSettings",
    "CorpusSettings",
    "EvaluateSettings",
    "FinetuneSettings",
    "ModelSettings",
    "PhaseSettings",
    "RetrieveSettings",
    "SelectSettings",
    "Settings",
    "SizeBudget",
    "SourceSettings",
    "TaskKind",
    "TaskSettings",
    "TokenizerSettings",
    "TrainSettings",
    "dump_yaml",
    "load_settings",
    "preset_names",
    "read_tree",
    "resolve",
]
