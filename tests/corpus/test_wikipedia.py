"""Wikipedia dumps: wikitext to text with links, and the parallel reader against the plain one."""

from __future__ import annotations

import bz2
import gzip
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from endtask.config import AlignedSettings, CorpusSettings, SourceSettings
from endtask.corpus import Corpus
from endtask.corpus.formats import wikipedia
from endtask.corpus.formats.base import DocumentOptions
from endtask.corpus.formats.wikipedia import Wikipedia
from endtask.errors import InputError
from tests.corpus.dumps import FOOT, HEAD, DumpPage, dump, multistream, official, plainly

pytest.importorskip("mwparserfromhell")
from endtask.corpus.formats.wikitext import plain_text


@pytest.fixture(autouse=True)
def one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start no processes for the small dumps of these tests."""
    monkeypatch.setattr("endtask.corpus.corpus.usable_cores", lambda: 1)


PAGES = [
    DumpPage(
        number,
        f"Town & {number}",
        f"'''Town {number}''' is in [[Land {number}|a land]] of 1 < 2 & [[river]]s. It has [[Datei:x.jpg|thumb|[[y]]]] sights.",
        namespace=4 if number % 7 == 6 else 0,
        redirect=number % 5 == 4,
    )
    for number in range(1, 40)
]


def read(path: Path, **options: Any) -> list[tuple[str | None, str | None, str, tuple[tuple[int, int], ...]]]:
    documents = Wikipedia().documents(path, DocumentOptions(**{"with_links": True, **options}))
    return [(each.id, each.title, "".join(each.parts), each.links) for each in documents]


@pytest.mark.parametrize(
    ("wikitext", "text", "links"),
    [
        ("a [[b]] c", "a b c", ["b"]),
        ("a [[b|c ]]d", "a c d", ["c d"]),
        ("[[bus]]es and [[Bus|car]]s, [[x]]2", "buses and cars, x2", ["buses", "cars", "x"]),
        ("''a'' '''b''' '''''c'''''", "a b c", []),
        ("a{{t|{{u}}}} b<ref>c</ref> d<ref name=x/>.", "a b d.", []),
        ("a<!-- b -->&nbsp;c &lt;d&gt; &#233;", "a c <d> é", []),
        ("a ({{lang-grc|x}}; {{lang|de|b}}) c (, d) e ()", "a (b) c (d) e", []),
        ("[[File:a.jpg|thumb|a [[b]]]]c [[Kategorie:d]] [[:Kategorie:e]]", "c Kategorie:e", ["Kategorie:e"]),
        ("[[de:Bern]][[c#d]] [http://x.y e] [http://z]", "c#d e", ["c#d"]),
        ("{|\n|-\n| a || b\n|}\nc", "c", []),
        ("* a\n* [[b]]\n# c", "a\nb\nc", ["b"]),
        ("a\n== B ==\nc\n== D ==\n{{e}}\n=== F ===\n", "a\n\nB\n\nc", []),
        ("a<br/>b <small>c</small> <math>d</math><gallery>\ne\n</gallery>", "a b c", []),
        ("a\n\n\n\n\nb __TOC__", "a\n\nb", []),
        ("a [[b [[c]] d", "a [[b c d", ["c"]),
        ("[[a|]] [[ | ]] [[b|'' '']]", "", []),
        ("\ue000a\ue001 [[b]]", "a b", ["b"]),
        ("a '' b {{c", "a b {{c", []),
    ],
)
def test_wikitext(wikitext: str, text: str, links: list[str]) -> None:
    found, spans = plain_text(wikitext, ("kategorie",))
    assert (found, [found[start:end] for start, end in spans]) == (text, links)


@settings(max_examples=100)
@given(st.text(st.sampled_from("ab [](){}|'=*#:;<>/!-\n&\ue000"), max_size=40))
def test_any_wikitext_gives_ordered_links_inside_the_text(wikitext: str) -> None:
    text, links = plain_text(wikitext)
    assert text == text.strip()
    ends = [0, *(index for span in links for index in span)]
    assert ends == sorted(ends)
    assert all(start < end <= len(text) and text[start:end] == text[start:end].strip() for start, end in links)
    assert not {"\ue000", "\ue001", "\ue002"} & set(text)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("wiki-pages.xml", dump(PAGES)),
        ("wiki-pages.xml.gz", gzip.compress(dump(PAGES))),
        ("wiki-pages.xml.bz2", bz2.compress(dump(PAGES))),
        ("enwiki-multistream1.xml-p1p41242.bz2", official(PAGES)),
    ],
)
def test_every_kind_of_dump_is_read_the_same(tmp_path: Path, name: str, content: bytes) -> None:
    plain = tmp_path / "plain.xml"
    plain.write_bytes(dump(PAGES))
    path = tmp_path / name
    path.write_bytes(content)
    counts: list[int] = []
    assert read(path, progress=counts.append) == plainly(plain)
    assert sum(counts) == path.stat().st_size
    assert len(plainly(plain)) == sum(page.namespace == 0 and not page.redirect for page in PAGES)


def test_several_processes_read_the_same(tmp_path: Path) -> None:
    path = tmp_path / "wiki.xml.bz2"
    path.write_bytes(official(PAGES))
    assert read(path, processes=2) == plainly(path)


words = st.text(st.sampled_from("ab [é]|\n"), max_size=30)
pages = st.lists(
    st.builds(DumpPage, st.integers(1, 99), words, words, namespace=st.sampled_from([0, 0, 1]), redirect=st.booleans()),
    max_size=6,
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pages=pages, data=st.data(), compress=st.booleans(), limit=st.sampled_from([50, 1 << 20]))
def test_chunks_may_end_anywhere(
    tmp_path: Path, pages: list[DumpPage], data: st.DataObject, compress: bool, limit: int
) -> None:
    content = dump(pages)
    cuts = sorted(data.draw(st.sets(st.integers(1, len(content) - 1), max_size=8)))
    parts = [content[start:end] for start, end in zip([0, *cuts], [*cuts, len(content)], strict=True)]
    path = tmp_path / ("a.xml.bz2" if compress else "a.xml")
    path.write_bytes(multistream(parts) if compress else content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wikipedia, "_LARGEST_STREAM", limit)
        patch.setattr(wikipedia, "_CHUNK", data.draw(st.integers(20, 400)))
        assert read(path) == plainly(path)


def corpus_of(path: Path, **values: Any) -> Corpus:
    return Corpus.read(CorpusSettings(sources=(SourceSettings(path=str(path)),), **values))


def test_articles_are_documents_with_links(tmp_path: Path) -> None:
    (tmp_path / "wiki.xml.bz2").write_bytes(official(PAGES))
    (tmp_path / "wiki-multistream-index.txt.bz2").write_bytes(bz2.compress(b"1:2:Town"))
    (tmp_path / "other.xml").write_text("<rows/>")
    sources = (SourceSettings(path=str(tmp_path)),)
    corpus = Corpus.aligned(AlignedSettings(sources=sources), CorpusSettings())
    first = next(corpus.documents())
    assert (first.id, first.title, first.source) == ("wiki/1", "Town & 1", "wiki")
    assert [first.text[start:end] for start, end in first.links] == ["a land", "rivers"]
    assert corpus.sources[0].unread == ("other.xml", "wiki-multistream-index.txt.bz2")
    plain = next(corpus_of(tmp_path).documents())
    assert (plain.text, plain.links) == (first.text, ())


def test_the_fingerprint_names_the_parser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wiki.xml").write_bytes(dump(PAGES[:2]))
    before = corpus_of(tmp_path).fingerprint()
    monkeypatch.setattr(wikipedia, "FORMAT", 99)
    assert corpus_of(tmp_path).fingerprint() != before


DAMAGE = {
    "cut off": (official(PAGES)[:-40], "the file is cut off"),
    "cut off between pages": (multistream([HEAD.encode(), PAGES[0].xml().encode()]), "the file is cut off"),
    "plain, cut off": (bz2.compress(dump(PAGES)[:-300]), "the file is cut off"),
    "a broken stream": (
        multistream([HEAD.encode()]) + b"BZh91AY&SY no stream" + multistream([PAGES[0].xml().encode(), FOOT.encode()]),
        r"cannot be decompressed: .* \(the stream at byte \d+\)",
    ),
    "a broken page": (
        bz2.compress(dump(PAGES).replace(b"<id>1</id>", b"<id>1<id>")),
        "a damaged page, near '<title>Town &amp; 1</title>.*: mismatched tag",
    ),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_damage_is_named_and_can_be_skipped(tmp_path: Path, how: str) -> None:
    content, message = DAMAGE[how]
    path = tmp_path / "wiki.xml.bz2"
    path.write_bytes(content)
    with pytest.raises(InputError, match=rf"wiki\.xml\.bz2: {message}") as caught:
        list(corpus_of(path).documents())
    assert "corpus.on_error=skip" in str(caught.value)
    assert "\n" not in str(caught.value)
    corpus = corpus_of(path, on_error="skip")
    numbers = [int(document.id.removeprefix("wiki/")) for document in corpus.documents()]
    assert 1 in numbers or how == "a broken page"
    assert set(numbers) <= {page.number for page in PAGES}
    assert corpus.statistics.total.skipped >= 1


def test_other_xml_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "rows.xml"
    path.write_text("<rows/>")
    with pytest.raises(InputError, match="not a Wikipedia dump"):
        list(corpus_of(path).documents())
