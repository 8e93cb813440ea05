"""The select stage as a whole: its settings, its errors, and its message about the selected share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from endtask.errors import InputError
from tests.selectors.candidates import passage, run_select, write_corpus, write_retrieved


@pytest.fixture
def retrieved(tmp_path: Path) -> Path:
    return write_retrieved(tmp_path / "retrieve", [passage(place, 1, 9.0 - place) for place in range(10)])


def test_selector_none_keeps_nothing(retrieved: Path) -> None:
    counts, kept = run_select(retrieved, name="none")
    assert counts == {"passages": 0, "bytes": 0, "share_of_corpus": 0.0}
    assert kept == []


@pytest.mark.parametrize(("budget", "warned"), [("30%", False), ("31%", False), ("40%", True), (None, True)])
def test_a_large_share_is_warned_of_with_a_budget(
    retrieved: Path, capsys: pytest.CaptureFixture[str], budget: str | None, warned: bool
) -> None:
    counts, _ = run_select(retrieved, corpus_bytes=100, budget=budget)
    said = capsys.readouterr().err
    assert ("warning" in counts) == ("warning: " in said) == warned
    if warned:
        assert counts["warning"].startswith(f"{counts['share_of_corpus']:.0%} of the corpus is selected")
        assert counts["warning"].endswith("--set select.budget=5%")
        assert said == f"warning: {counts['warning']}\n"


IMPOSSIBLE: dict[str, tuple[dict[str, Any], str]] = {
    "random without a corpus": ({"name": "random"}, "key 'corpus.sources': random selects from a corpus"),
    "importance without a corpus": ({"name": "dsir"}, "key 'corpus.sources': dsir selects from a corpus"),
    "fusion without a corpus": ({"name": "fusion"}, "key 'corpus.sources': fusion selects from a corpus"),
    "import of nothing": ({"name": "imported"}, "key 'select.path': no file to import the selection from"),
    "import of an absent file": (
        {"name": "imported", "path": "absent.csv"},
        "absent.csv, key 'select.path': no such file",
    ),
    "import of a folder": ({"name": "imported", "path": "."}, "., key 'select.path': is a folder, not a file"),
    "a share of no corpus": (
        {"name": "imported", "path": __file__},
        "key 'select.budget': 5%, at least 20MB is a share of the corpus, but there is no corpus (null selects all rows",
    ),
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_what_cannot_work_is_refused_in_one_line(tmp_path: Path, case: str) -> None:
    values, line = IMPOSSIBLE[case]
    write_retrieved(tmp_path, [])
    with pytest.raises(InputError) as caught:
        run_select(tmp_path, corpus_bytes=0, **values)
    assert str(caught.value).startswith(line)
    assert "\n" not in str(caught.value)
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("selector", ["random", "dsir", "classifier", "fusion"])
def test_options_of_other_selectors_are_refused(tmp_path: Path, selector: str) -> None:
    corpus = write_corpus(tmp_path, ["one text"])
    with pytest.raises(InputError, match=r"key 'select\.neighbors': selector '\w+' has no such option"):
        run_select(tmp_path, corpus=corpus, name=selector, neighbors=7)


@pytest.mark.parametrize("selector", ["nearest_neighbors", "fusion"])
def test_neighbours_need_an_embedding(retrieved: Path, selector: str) -> None:
    fused = {"selectors": ["dsir", "nearest_neighbors"]} if selector == "fusion" else {}
    with pytest.raises(InputError, match=r"key 'select\.embedding': nearest_neighbors needs an embedding"):
        run_select(retrieved, name=selector, **fused)


@pytest.mark.parametrize("selector", ["dsir", "classifier", "fusion"])
def test_nothing_retrieved_is_refused(tmp_path: Path, selector: str) -> None:
    write_retrieved(tmp_path, [])
    with pytest.raises(InputError, match=r"no passage was selected \(the corpus shares no word with the task"):
        run_select(tmp_path, name=selector, budget=None)
