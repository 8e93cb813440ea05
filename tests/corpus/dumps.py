"""MediaWiki dumps for tests, written page by page, and read again in the slowest and most obvious order."""

from __future__ import annotations

import bz2
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from endtask.corpus.formats.wikitext import plain_text

HEAD = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" xml:lang="de">
  <siteinfo><sitename>Wikipedia</sitename><namespaces>
    <namespace key="-2" case="first-letter">Medium</namespace>
    <namespace key="0" case="first-letter" />
    <namespace key="6" case="first-letter">Datei</namespace>
    <namespace key="14" case="first-letter">Kategorie</namespace>
  </namespaces></siteinfo>
"""
FOOT = "</mediawiki>\n"
HIDDEN = ("medium", "datei", "kategorie")


@dataclass(frozen=True)
class DumpPage:
    """A page of a dump."""

    number: int
    title: str
    text: str
    namespace: int = 0
    redirect: bool = False

    def xml(self) -> str:
        """The page as dumps write it."""
        redirect = '    <redirect title="x" />\n' if self.redirect else ""
        return (
            f"  <page>\n    <title>{escape(self.title)}</title>\n    <ns>{self.namespace}</ns>\n"
            f"    <id>{self.number}</id>\n{redirect}    <revision>\n      <id>7</id>\n      <model>wikitext</model>\n"
            f'      <text bytes="5" xml:space="preserve">{escape(self.text)}</text>\n    </revision>\n  </page>\n'
        )


def dump(pages: Sequence[DumpPage]) -> bytes:
    """A whole dump."""
    return (HEAD + "".join(page.xml() for page in pages) + FOOT).encode()


def multistream(parts: Sequence[bytes]) -> bytes:
    """Each part as a bzip2 stream of its own."""
    return b"".join(bz2.compress(part) for part in parts)


def official(pages: Sequence[DumpPage], *, pages_per_stream: int = 3) -> bytes:
    """A multistream dump as Wikipedia writes it: the head, pages in groups, and the foot, each a stream."""
    groups = [pages[start : start + pages_per_stream] for start in range(0, len(pages), pages_per_stream)]
    parts = ["".join(page.xml() for page in group).encode() for group in groups]
    return multistream([HEAD.encode(), *parts, FOOT.encode()])


def plainly(path: Path) -> list[tuple[str, str, str, tuple[tuple[int, int], ...]]]:
    """Id, title, text and links of the articles of a dump: parsed as one tree, in one process."""
    content = path.read_bytes()
    root = ElementTree.fromstring(bz2.decompress(content) if path.suffix == ".bz2" else content)
    space = "{http://www.mediawiki.org/xml/export-0.11/}"
    articles = []
    for page in root.iter(f"{space}page"):
        if page.findtext(f"{space}ns") == "0" and page.find(f"{space}redirect") is None:
            text, links = plain_text(page.findtext(f"{space}revision/{space}text") or "", HIDDEN)
            articles.append((page.findtext(f"{space}id") or "", page.findtext(f"{space}title") or "", text, links))
    return articles
