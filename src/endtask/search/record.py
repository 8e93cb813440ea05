"""search.json: what a search was asked, its trials so far and the winner; written whole after every change."""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from endtask.config.loading import up_to_date
from endtask.errors import InputError
from endtask.io.atomic import write_json
from endtask.io.nested import changes_in_words

SEARCH_FILE = "search.json"
TRIALS = "trials"
Tree = dict[str, Any]

NOT_ASKED = ("output_dir", "budget")
"""Settings that are not part of what a search was asked: trials have their own."""


@dataclass(frozen=True)
class Trial:
    """One setting of the searched keys: the best dev score of each fine-tuning seed, and what the trial itself cost.

    Stages that it was given by other trials cost nothing here.

    >>> trial = Trial(7, {"pretrain.weighting.rho1": 19}, dev=(0.5, 0.75))
    >>> trial.folder, trial.mean, trial.is_finished
    ('trials/007', 0.625, True)
    """

    number: int
    values: Tree
    dev: tuple[float, ...] = ()
    failure: str | None = None
    seconds: float = 0.0
    tokens: int = 0
    flops: float = 0.0

    @property
    def folder(self) -> str:
        """Where the trial's run stands, seen from the search's folder."""
        return f"{TRIALS}/{self.number:03}"

    @property
    def is_finished(self) -> bool:
        """Whether there is nothing left to do, well or badly ended."""
        return bool(self.dev) or self.failure is not None

    @property
    def mean(self) -> float:
        """The score that decides; of a trial whose training broke, the worst there is."""
        return statistics.fmean(self.dev) if self.dev else 0.0

    @property
    def spread(self) -> float:
        """Standard deviation over the seeds; 0 for a single one."""
        return statistics.stdev(self.dev) if len(self.dev) > 1 else 0.0


@dataclass(frozen=True)
class Record:
    """A search as it stands: `asked` never changes, `winner` is filled in at the end."""

    folder: Path
    asked: Tree
    trials: tuple[Trial, ...] = ()
    winner: Tree | None = None
    keys: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "keys", tuple(self.asked["space"]))

    @property
    def finished(self) -> tuple[Trial, ...]:
        """The trials with a result, in order."""
        return tuple(trial for trial in self.trials if trial.is_finished)

    @property
    def best(self) -> Trial | None:
        """The highest mean on dev; of equal ones the first."""
        scored = [trial for trial in self.finished if trial.dev]
        return max(scored, key=lambda trial: trial.mean) if scored else None

    def with_trial(self, trial: Trial) -> Record:
        """The record with a trial added, or exchanged for the one of the same number; saved."""
        return self._saved(trials=(*self.trials[: trial.number], trial))

    def with_winner(self, winner: Tree) -> Record:
        """The record with its end; saved."""
        return self._saved(winner=winner)

    def statistics(self) -> Tree:
        """Plain values for JSON."""
        trials = [
            {**asdict(trial), "folder": trial.folder, "mean": trial.mean, "spread": trial.spread}
            for trial in self.trials
        ]
        return {**self.asked, "trials": trials, "winner": self.winner}

    def _saved(self, **changes: Any) -> Record:
        changed = replace(self, **changes)
        write_json(changed.folder / SEARCH_FILE, changed.statistics())
        return changed


def open_record(folder: Path, asked: Tree) -> Record:
    """The record that stands in the folder, which must be of the same search once it has a trial; else a new one."""
    path = folder / SEARCH_FILE
    asked = json.loads(json.dumps(asked))  # as it will be read back
    if not path.exists():
        return Record(folder, asked)._saved()
    found = read_record(folder)
    if not found.trials:
        return Record(folder, asked)._saved()
    before = {
        **found.asked,
        "settings": up_to_date(found.asked["settings"], without=NOT_ASKED, where=str(path)),
    }
    changes = [change.removeprefix("settings.") for change in changes_in_words(before, asked)]
    if changes:
        raise InputError(
            f"this search was asked otherwise: {', '.join(changes[:4])}",
            path=folder,
            hint="choose another --output; nothing was touched",
        )
    return found


def read_record(folder: Path) -> Record:
    """The record in a search's folder."""
    path = folder / SEARCH_FILE
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
        trials = tuple(_read_trial(each) for each in tree.pop("trials"))
        winner = tree.pop("winner")
        return Record(folder, tree, trials, winner)
    except FileNotFoundError:
        raise InputError("no search here", path=folder, hint="endtask search --output FOLDER makes one") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError("not the record of a search", path=path, hint="was the file changed by hand?") from None


def _read_trial(tree: Tree) -> Trial:
    names = ("number", "values", "failure", "seconds", "tokens", "flops")
    return Trial(dev=tuple(tree["dev"]), **{name: tree[name] for name in names})
