"""The domain's text: a seeded draw from selected sources, without dev and test texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from endtask.config import CorpusSettings, DomainSettings, resolve
from endtask.corpus import Corpus
from endtask.errors import InputError
from endtask.io.run_layout import DOMAIN
from endtask.io.selection_table import read_selection
from endtask.pipeline.preflight import check_texts_exist
from endtask.records import Selected
from endtask.reporting.costs import stage_summary
from endtask.reporting.selection import domain_sentence
from endtask.selectors import domain
from endtask.selectors.domain import domain_corpus, select_domain


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    """Two sources of a hundred passages."""
    for name in ("physics", "cooking"):
        rows = [json.dumps({"text": f"{name} passage number {number} of many."}) for number in range(100)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    sources = [{"path": str(tmp_path / f"{name}.jsonl")} for name in ("physics", "cooking")]
    return Corpus.read(CorpusSettings.model_validate({"sources": sources}))


def draw(
    corpus: Corpus, folder: Path, *, is_contaminated: Any = None, seed: int = 0, **settings: Any
) -> list[Selected]:
    folder.mkdir(exist_ok=True)
    asked = DomainSettings.model_validate(settings)
    counts = select_domain(asked, folder, corpus=corpus, train_rows=10, seed=seed, is_contaminated=is_contaminated)
    found = list(read_selection(folder / DOMAIN))
    assert counts["passages"] == len(found)
    assert counts["bytes"] == sum(len(one.document.text.encode()) for one in found)
    return found


def test_only_the_named_sources_are_drawn_from(corpus: Corpus, tmp_path: Path) -> None:
    drawn = draw(corpus, tmp_path / "a", sources=["cooking"], amount="2x")
    assert len(drawn) == 20
    assert {one.document.source for one in drawn} == {"cooking"}
    everywhere = draw(corpus, tmp_path / "b", amount="10x")
    assert len(everywhere) == 100
    assert {one.document.source for one in everywhere} == {"physics", "cooking"}


def test_the_draw_hangs_on_the_seed_alone(corpus: Corpus, tmp_path: Path) -> None:
    draws = [
        [one.document.id for one in draw(corpus, tmp_path / name, amount="3x", seed=seed)]
        for name, seed in (("a", 0), ("b", 0), ("c", 1))
    ]
    assert draws[0] == draws[1] != draws[2]


def test_more_of_the_same_draw_holds_what_less_held(corpus: Corpus, tmp_path: Path) -> None:
    less = {one.document.id for one in draw(corpus, tmp_path / "a", amount="2x")}
    more = {one.document.id for one in draw(corpus, tmp_path / "b", amount="40passages")}
    assert len(less) == 20
    assert less < more
    assert len(draw(corpus, tmp_path / "c", amount="all")) == 200


def test_passages_stand_in_the_order_of_the_corpus_and_say_why(corpus: Corpus, tmp_path: Path) -> None:
    drawn = draw(corpus, tmp_path / "a", amount="2x", seed=3)
    assert [one.position for one in drawn] == sorted(one.position for one in drawn)
    assert sorted(one.rank for one in drawn) == list(range(1, 21))
    assert all(one.reason == f"domain: draw {one.rank} of seed 3" for one in drawn)


def test_guarded_passages_are_replaced_by_the_next_of_the_draw(corpus: Corpus, tmp_path: Path) -> None:
    plain = draw(corpus, tmp_path / "a", amount="2x")
    bad = {one.document.text for one in plain[:3]}
    is_contaminated = draw(corpus, tmp_path / "b", amount="2x", is_contaminated=lambda text: text in bad)
    assert len(is_contaminated) == 20
    assert not bad & {one.document.text for one in is_contaminated}
    assert {one.document.text for one in plain[3:]} < {one.document.text for one in is_contaminated}
    assert max(one.rank for one in is_contaminated) == 23


def test_a_guard_that_keeps_much_out_leaves_no_smaller_domain(
    tmp_path: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(domain, "_FEWEST_SPARE", 2)
    drawn = draw(corpus, tmp_path / "a", amount="4x", is_contaminated=lambda text: int(text.split()[3]) % 4 > 0)
    assert len(drawn) == 40
    assert all(int(one.document.text.split()[3]) % 4 == 0 for one in drawn)
    in_order = draw(corpus, tmp_path / "b", amount="all")
    clean = sorted(one.rank for one in in_order if int(one.document.text.split()[3]) % 4 == 0)
    assert sorted(one.rank for one in drawn) == clean[:40], "the first of the draw that are clean"


def test_all_without_what_the_guard_keeps_out(corpus: Corpus, tmp_path: Path) -> None:
    drawn = draw(corpus, tmp_path / "a", amount="all", is_contaminated=lambda text: "physics" in text)
    assert len(drawn) == 100
    with pytest.raises(InputError, match=r"domain\.amount.*no passage was drawn"):
        draw(corpus, tmp_path / "b", amount="all", is_contaminated=lambda text: True)


@pytest.mark.parametrize(
    ("amount", "said"),
    [
        ("30x", "30x of train would be 300"),
        ("20x", None),
        ("201passages", "201passages were requested"),
        ("1MB", "1MB were requested"),
        ("1kB", None),
        ("5%", None),
        ("all", None),
    ],
)
def test_a_domain_smaller_than_asked_for_is_told(corpus: Corpus, tmp_path: Path, amount: str, said: str | None) -> None:
    counts = select_domain(
        DomainSettings.model_validate({"amount": amount}),
        tmp_path,
        corpus=corpus,
        train_rows=10,
        seed=0,
        is_contaminated=None,
    )
    assert counts.get("less_than_requested") == said
    line = stage_summary("select", {"passages": 0, "domain": counts})
    told = "" if said is None else f", all there are; {said}"
    assert line == f"{counts['passages']} passages of the domain{told}"
    assert domain_sentence({"domain": counts}).endswith(f"drawn at random{told}.")


def test_what_the_guard_keeps_out_may_be_what_is_lacking(corpus: Corpus, tmp_path: Path) -> None:
    def counts(amount: str) -> dict[str, Any]:
        asked = DomainSettings.model_validate({"amount": amount})
        return select_domain(
            asked, tmp_path, corpus=corpus, train_rows=10, seed=0, is_contaminated=lambda text: "physics" in text
        )

    assert counts("11x")["less_than_requested"] == "11x of train would be 110"
    assert "less_than_requested" not in counts("10x")


def test_an_unknown_source_is_met_with_the_nearest(corpus: Corpus) -> None:
    with pytest.raises(InputError, match=r"domain\.sources.*no source 'fysics' \(did you mean 'physics'\?\)"):
        domain_corpus(corpus, ["fysics"])


def test_the_beginning_of_a_long_name_is_met_with_all_of_it(tmp_path: Path) -> None:
    for name in ("craft_pmc_fulltext", "wikipedia_pages-00"):
        (tmp_path / f"{name}.jsonl").write_text('{"text": "a passage", "source": "craft"}\n', encoding="utf-8")
    corpus = Corpus.read(CorpusSettings.model_validate({"sources": [{"path": str(tmp_path)}]}))
    with pytest.raises(InputError, match=r"no source 'craft' \(did you mean 'craft_pmc_fulltext'\?\)"):
        domain_corpus(corpus, ["craft"])


def test_objectives_without_corpus_text_are_met_before_any_work(tmp_path: Path) -> None:
    def complaint(objectives: dict[str, Any], **tree: Any) -> str:
        with pytest.raises(InputError) as caught:
            check_texts_exist(resolve({"pretrain": {"weighting": "equal", "objectives": objectives}, **tree}))
        return str(caught.value)

    dapt = {"kind": "mlm", "texts": "domain"}
    line = "key 'pretrain.objectives.dapt.texts': there is no domain to read (--corpus path/to/text, or leave the "
    assert complaint({"dapt": dapt}).startswith(line)
    tlm = {"tlm": {"kind": "mlm", "texts": "selection"}}
    assert "there is no selection to read" in complaint(tlm)
    corpus = {"sources": [{"path": str(tmp_path / "*.jsonl")}]}
    assert "there is no selection to read" in complaint(tlm, corpus=corpus, select={"name": "none"})
    left_out = {"task": {"kind": "task"}, "dapt": {**dapt, "weight": 0}}
    check_texts_exist(resolve({"pretrain": {"weighting": "equal", "objectives": left_out}}))
    check_texts_exist(
        resolve({"pretrain": {"weighting": "equal", "objectives": {"dapt": dapt}}, "skip_pretraining": True})
    )
