"""The typed settings of a run, how they are read, and amounts with a unit."""

from endtask.config.aligned import AlignedSettings
from endtask.config.budget import BatchSize, Budget, SizeBudget, TextAmount
from endtask.config.cluster import ClusterSettings
from endtask.config.data import (
    ColumnSettings,
    CorpusSettings,
    DomainSettings,
    RetrieveSettings,
    SourceSettings,
    TaskSettings,
)
from endtask.config.loading import dump_yaml, load_settings, read_tree, resolve
from endtask.config.model import ModelSettings, TokenizerSettings
from endtask.config.objectives import ObjectiveSettings
from endtask.config.preset_files import preset_names
from endtask.config.root import EvaluateSettings, SelectSettings, Settings
from endtask.config.training import FinetuneSettings, PhaseSettings, PretrainSettings

__all__ = [
    "AlignedSettings",
    "BatchSize",
    "Budget",
    "ClusterSettings",
    "ColumnSettings",
    "CorpusSettings",
    "DomainSettings",
    "EvaluateSettings",
    "FinetuneSettings",
    "ModelSettings",
    "ObjectiveSettings",
    "PhaseSettings",
    "PretrainSettings",
    "RetrieveSettings",
    "SelectSettings",
    "Settings",
    "SizeBudget",
    "SourceSettings",
    "TaskSettings",
    "TextAmount",
    "TokenizerSettings",
    "dump_yaml",
    "load_settings",
    "preset_names",
    "read_tree",
    "resolve",
]
