"""With `rho1` the scoring model reads candidates beside the task's text."""

from __future__ import annotations

from pathlib import Path

import pytest

from endtask.select.influence import fit as fit_module
from endtask.text.packed import PackedTexts
from tests.select.influence.small import make_work, small_settings


def test_candidates_are_the_external_text_of_the_scoring_model(tmp_path: Path) -> None:
    alone, along = (make_work(tmp_path / str(rho1), small_settings({"rho1": rho1})) for rho1 in (0, 2))
    for fold, other in zip(along.folds, alone.folds, strict=True):
        external = PackedTexts(fold.packed / "external")
        assert len(external) == len(along.candidates.texts)
        assert all((external[i] == along.candidates.texts[i]).all() for i in range(len(external)))
        assert len(PackedTexts(other.packed / "external")) == 0
        assert fold.phase().steps == 3 * other.phase().steps
        assert set(fold.phase().objectives) == {"external", "internal"}
    assert along.fit()["fitted_tokens"] > alone.fit()["fitted_tokens"]


def test_a_kill_between_two_of_its_files_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(file: Path, place: Path) -> None:
        raise KeyboardInterrupt

    work = make_work(tmp_path, small_settings({"rho1": 1}))
    with monkeypatch.context() as killed:
        killed.setattr(fit_module, "link_or_copy", stop)
        with pytest.raises(KeyboardInterrupt):
            _ = work.folds
    again = make_work(tmp_path, small_settings({"rho1": 1}))
    assert all(len(PackedTexts(fold.packed / "external")) == len(again.candidates.texts) for fold in again.folds)
