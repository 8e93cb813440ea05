"""The code of docs/how-to/python.md and of the README runs, with a finished run in place of training."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import endtask
from endtask import sklearn
from endtask.api import model as model_module
from endtask.api.corpora import corpus_rows, source_settings
from endtask.api.fit import _given
from endtask.api.tables import splits_of

_BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


class AlwaysFirst:
    """A model of the classes that an estimator was given."""

    def __init__(self, labels: list[str]) -> None:
        self.classes_ = sorted(set(labels))

    def predict(self, texts: list[str]) -> list[str]:
        return [self.classes_[0] for _ in texts]

    def explain(self, text: str) -> str:
        return text


@pytest.fixture
def calls(finished_run: Path, toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The calls of `fit`, whose arguments are checked as `fit` does; the run behind them is finished already."""
    calls: list[Any] = []
    own_load = endtask.load

    def record(data: Any, corpus: Any, given: Any, preset: str | None) -> None:
        if not isinstance(data, str):
            assert splits_of(data)["train"]
        if corpus is not None and source_settings(corpus) is None:
            assert corpus_rows(corpus)
        calls.append(endtask.load_settings(preset=preset, given=given))

    def fit_in(runs: Path, data: Any, corpus: Any, given: Any, *, preset: str | None) -> AlwaysFirst:
        record(data, corpus, given, preset)
        return AlwaysFirst(data[1])

    def fit(data: Any, corpus: Any = None, *, output: Any = None, preset: Any = None, columns: Any = None,
            budget: Any = None, **settings: Any) -> endtask.Model:  # fmt: skip
        record(data, corpus, _given(settings, columns=columns, budget=budget), preset)
        return own_load(finished_run)

    def load(path: str) -> endtask.Model:
        return own_load(finished_run if path.startswith("runs/") else path)

    monkeypatch.setattr(endtask, "fit", fit)
    monkeypatch.setattr(endtask, "load", load)
    monkeypatch.setattr(sklearn, "fit_in", fit_in)
    monkeypatch.setattr(model_module, "upload", lambda source, facts, name, *, private: name)
    monkeypatch.chdir(tmp_path)
    return calls


@pytest.mark.parametrize(("page", "fits"), [("docs/how-to/python.md", 6), ("README.md", 1)])
def test_the_code_runs(repository: Path, calls: list[Any], page: str, fits: int) -> None:
    blocks = _BLOCK.findall((repository / page).read_text(encoding="utf-8"))
    assert blocks
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, page, "exec"), names)
    assert len(calls) == fits
