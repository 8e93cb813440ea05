"""The typed settings of a run, how they are read, and amounts with a unit."""

from endtask.settings.aligned import AlignedSettings
from endtask.settings.budget import BatchSize, Budget, SizeBudget
from endtask.settings.domain import DomainSettings, TextAmount
from endtask.settings.evaluate import EvaluateSettings
from endtask.settings.load import dump_yaml, load_settings, read_tree, resolve
from endtask.settings.model import ModelSettings, TokenizerSettings
from endtask.settings.objectives import ObjectiveSettings
from endtask.settings.presets import preset_names
from endtask.settings.sections import (
    ColumnSettings,
    CorpusSettings,
    RetrieveSettings,
    SelectSettings,
    Settings,
    TaskKind,
    TaskSettings,
)
from endtask.settings.source import SourceSettings
from endtask.settings.training import FinetuneSettings, PhaseSettings, TrainSettings

__all__ = [
    "AlignedSettings",
    "BatchSize",
    "Budget",
    "ColumnSettings",
    "CorpusSettings",
    "DomainSettings",
    "EvaluateSettings",
    "FinetuneSettings",
    "ModelSettings",
    "ObjectiveSettings",
    "PhaseSettings",
    "RetrieveSettings",
    "SelectSettings",
    "Settings",
    "SizeBudget",
    "SourceSettings",
    "TaskKind",
    "TaskSettings",
    "TextAmount",
    "TokenizerSettings",
    "TrainSettings",
    "dump_yaml",
    "load_settings",
    "preset_names",
    "read_tree",
    "resolve",
]
