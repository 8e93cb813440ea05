"""The typed settings of a run, how they are read, and amounts with a unit."""

from endtask.settings.budget import Budget, SizeBudget
from endtask.settings.load import dump_yaml, load_settings, preset_names, read_tree, resolve
from endtask.settings.sections import (
    ColumnSettings,
    CorpusSettings,
    EvaluateSettings,
    FinetuneSettings,
    ModelSettings,
    RetrieveSettings,
    SelectSettings,
    Settings,
    SourceSettings,
    TaskKind,
    TaskSettings,
    TokenizerSettings,
    TrainSettings,
)

__all__ = [
    "Budget",
    "ColumnSettings",
    "CorpusSettings",
    "EvaluateSettings",
    "FinetuneSettings",
    "ModelSettings",
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
