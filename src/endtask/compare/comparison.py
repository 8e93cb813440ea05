"""What is asked of a comparison: cells, seeds and baselines, as a YAML file or flags give them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator

from endtask.config.loading import read_tree
from endtask.config.messages import explain
from endtask.config.section import Section, infinity_in_words
from endtask.errors import InputError, did_you_mean
from endtask.io.nested import flatten

UNTRAINED = ("majority", "tfidf")
TRAINED = ("no_corpus", "random", "checkpoint")
BASELINES = (*UNTRAINED, *TRAINED)

Tree = dict[str, Any]
Seeds = Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)]


class Comparison(Section):
    """Cells x pre-training seeds x fine-tuning seeds, the baselines beside them, and what all are tested against."""

    cells: dict[str, Tree] = Field({}, description="name: the settings in which the cell differs, dotted or nested")
    grid: dict[str, tuple[Any, ...]] = Field({}, description="setting: values; a cell for every combination")
    seeds: Seeds | None = Field(None, description="of pre-training, a run for each; unset: the settings' one")
    finetune_seeds: Seeds | None = Field(None, description="of fine-tuning, in every run; unset: the settings' own")
    baselines: dict[str, Tree] | None = Field(
        None, description="a list of names, or name: settings to override; unset: all that apply; []: none"
    )
    checkpoint: str | None = Field(None, description="what the baseline `checkpoint` fine-tunes, as for model.path")
    checkpoint_note: str | None = Field(None, description="what readers of its row should know, such as its training")
    against: str | None = Field(None, description="the cell that all others are tested against; unset: the first")
    by: Literal["test", "dev"] = Field("test", description="dev: no run looks at test")

    @field_validator("cells", "baselines", mode="before")
    @classmethod
    def empty_ones_change_nothing(cls, given: Any) -> Any:
        if isinstance(given, list | tuple):
            twice = next((name for name, number in Counter(map(str, given)).items() if number > 1), None)
            if twice is not None:
                raise ValueError(f"{twice!r} stands twice")
            return {str(name): {} for name in given}
        if not isinstance(given, Mapping):
            return given
        return {str(name): {} if values is None else values for name, values in given.items()}

    @field_validator("cells", "baselines")
    @classmethod
    def keys_are_dotted(cls, given: dict[str, Tree] | None) -> dict[str, Tree] | None:
        return {name: _dotted(name, values) for name, values in given.items()} if given is not None else None

    @field_validator("baselines")
    @classmethod
    def baselines_are_known(cls, given: dict[str, Tree] | None) -> dict[str, Tree] | None:
        for name, values in (given or {}).items():
            if name not in BASELINES:
                raise ValueError(f"unknown baseline {name!r} ({did_you_mean(name, BASELINES)})")
            if values and name in UNTRAINED:
                raise ValueError(f"{name} has no settings to override")
        return given

    @field_validator("seeds", "finetune_seeds")
    @classmethod
    def seeds_differ(cls, seeds: tuple[int, ...] | None) -> tuple[int, ...] | None:
        twice = next((seed for seed, number in Counter(seeds or ()).items() if number > 1), None)
        if twice is not None:
            raise ValueError(f"the seed {twice} stands twice, which would pass for two runs")
        return seeds

    @field_validator("grid")
    @classmethod
    def lists_hold_something(cls, grid: dict[str, tuple[Any, ...]]) -> dict[str, tuple[Any, ...]]:
        empty = next((key for key, values in grid.items() if not values), None)
        if empty is not None:
            raise ValueError(f"no values for {empty}")
        return {key: tuple(map(infinity_in_words, values)) for key, values in grid.items()}  # JSON knows no infinity


def check_comparison(tree: Mapping[str, Any], where: str | None = None) -> Comparison:
    """Check a nested mapping against the typed comparison; `where` names the file of a mistake.

    >>> check_comparison({"baselines": ["tfdif"]}, "compare.yaml")
    Traceback (most recent call last):
    ...
    endtask.errors.InputError: compare.yaml, key 'baselines': unknown baseline 'tfdif' (did you mean 'tfidf'?)
    """
    try:
        return Comparison.model_validate(dict(tree))
    except ValidationError as error:
        raise explain(error, where, root=Comparison) from None


def read_comparison(path: Path) -> Comparison:
    """The comparison in a YAML or JSON file."""
    if not path.is_file():
        raise InputError("no such file of cells", path=path)
    return check_comparison(read_tree(path), str(path))


def _dotted(name: str, values: Tree) -> Tree:
    """The values by dotted key; a key may stand only once, in either way of writing."""
    flat = flatten(values, keep_empty=True)  # `tasks: {}` is a change
    if len(flat) < _leaves(values):
        raise ValueError(f"{name!r} names a setting twice, dotted and nested")
    return {key: infinity_in_words(value) for key, value in flat.items()}  # JSON knows no infinity


def _leaves(tree: Mapping[str, Any]) -> int:
    return sum(_leaves(value) if isinstance(value, Mapping) and value else 1 for value in tree.values())
