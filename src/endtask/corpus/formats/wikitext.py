"""Turn wikitext into plain text with the character spans of its links, by mwparserfromhell."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from endtask.corpus.links import Links

FORMAT = 1
"""Part of the fingerprint: increase it when the same wikitext gives another text."""

HIDDEN_NAMESPACES = frozenset({"file", "image", "media", "category"})
"""Links to these are no text; a dump names them in its own language too."""

_START, _END, _HEADING = "\ue000", "\ue001", "\ue002"  # marks inside the text while it is made
_MARKS = re.compile(f"[{_START}{_END}{_HEADING}]")
_DROPPED_TAGS = frozenset(
    [
        "ref",
        "references",
        "gallery",
        "math",
        "chem",
        "table",
        "timeline",
        "score",
        "syntaxhighlight",
        "source",
        "pre",
        "imagemap",
        "hiero",
        "graph",
        "mapframe",
        "templatestyles",
        "indicator",
    ]
)
_TEXT_TEMPLATES = frozenset({"lang", "nowrap", "transl", "transliteration", "linktext", "small"})
"""Templates whose last argument is text of the article."""
_UNREAD = re.compile(
    r"<!--.*?-->|<ref\b[^<>]*/>|<ref\b[^<>]*>.*?</ref\s*>|"
    rf"\{{\{{(?!\s*(?:{'|'.join(sorted(_TEXT_TEMPLATES))})\s*\|)[^{{}}]*\}}\}}",
    re.DOTALL | re.IGNORECASE,
)
"""Comments, references and templates without templates inside; the parser would need most of its time for them."""
_OTHER_LANGUAGE = re.compile(r"[a-z]{2,3}(-[a-z]+)*:")

_SUBSTITUTIONS = [
    (re.compile(r"'{2,5}|__[A-Z]{3,}__|\u200e"), ""),
    (re.compile(f"{_START}(\\s*){_END}"), r"\1"),
    (re.compile(r"^[ \t]*(\{\||\|\}|[|!]).*$", re.MULTILINE), ""),  # the rest of broken tables
    (re.compile(f"{_END}([a-z]+)"), rf"\1{_END}"),  # [[bus]]es links "buses"
    (re.compile(r"[^\S\n]+"), " "),
    (re.compile(f"{_HEADING} +"), _HEADING),
    (re.compile(r"([(\[（])[ ,;:]+"), r"\1"),
    (re.compile(r" ?(\(\)|\[\]|（）)"), ""),
    (re.compile(r" +([,.;:)])(?=\s|$)"), r"\1"),
    (re.compile(r"^ +| +$", re.MULTILINE), ""),
    (re.compile(f"^{_HEADING}.*\n+(?={_HEADING}|\\Z)", re.MULTILINE), ""),  # headings of empty sections
    (re.compile(_HEADING), ""),
    (re.compile(r"\n{3,}"), "\n\n"),
]


def plain_text(wikitext: str, hidden: Collection[str] = HIDDEN_NAMESPACES) -> tuple[str, Links]:
    """Return the text of an article and the spans of the links to other articles.

    Templates, tables, references, formulas and files are left out. `hidden` are the namespaces of files and
    categories, in lower case.

    >>> plain_text("'''Bern''' is a [[city|town]] in [[Switzerland]].{{Citation needed}}")
    ('Bern is a town in Switzerland.', ((10, 14), (18, 29)))
    """
    import mwparserfromhell

    code = mwparserfromhell.parse(_without_unread(_MARKS.sub("", wikitext)), skip_style_tags=True)
    writer = _Writer(frozenset(hidden) | HIDDEN_NAMESPACES)
    writer.write(code)
    text = "".join(writer.parts)
    for pattern, replacement in _SUBSTITUTIONS:
        text = pattern.sub(replacement, text)
    text, links = _without_markup(text)
    before = len(text) - len(text.lstrip())
    return text.strip(), tuple((start - before, end - before) for start, end in links)


def _without_unread(wikitext: str) -> str:
    """Return wikitext without comments, references and templates, from the innermost on.

    >>> _without_unread("a{{b|{{c}}}} {{lang|de|d}}<ref name='e'>f</ref>")
    'a {{lang|de|d}}'
    """
    count = 1
    while count:
        wikitext, count = _UNREAD.subn("", wikitext)
    return wikitext


class _Writer:
    """Collects the text of nodes, with marks around links and before headings."""

    def __init__(self, hidden: frozenset[str]) -> None:
        self.parts: list[str] = []
        self._hidden = hidden
        self._is_in_link = False

    def write(self, code: Any) -> None:
        """Append the text of wikicode."""
        for node in code.nodes if code is not None else ():
            writer = getattr(self, f"_{type(node).__name__.lower()}", None)
            if writer is not None:  # comments and arguments of templates are no text
                writer(node)

    def _text(self, node: Any) -> None:
        self.parts.append(node.value)

    def _htmlentity(self, node: Any) -> None:
        try:
            self.parts.append(_MARKS.sub("", node.normalize()))
        except (ValueError, OverflowError):  # a number that is no character
            self.parts.append(str(node))

    def _heading(self, node: Any) -> None:
        self.parts.append(f"\n{_HEADING}")
        self.write(node.title)
        self.parts.append("\n")

    def _externallink(self, node: Any) -> None:
        self.write(node.title)

    def _template(self, node: Any) -> None:
        if str(node.name).strip().lower() in _TEXT_TEMPLATES and node.params:
            self.write(node.params[-1].value)

    def _tag(self, node: Any) -> None:
        name = str(node.tag).strip().lower()
        if name == "br":
            self.parts.append(" ")
        elif name not in _DROPPED_TAGS:
            self.write(node.contents)

    def _wikilink(self, node: Any) -> None:
        title = str(node.title).strip()
        namespace = title.partition(":")[0].strip().lower() if ":" in title else ""
        if namespace in self._hidden or (node.text is None and _OTHER_LANGUAGE.match(title)):
            return
        is_marked = not self._is_in_link
        self.parts.append(_START if is_marked else "")
        self._is_in_link = True
        if node.text is None:
            self.parts.append(title.removeprefix(":"))
        else:
            self.write(node.text)
        self._is_in_link = not is_marked
        self.parts.append(_END if is_marked else "")


def _without_markup(text: str) -> tuple[str, Links]:
    """Return the text without the marks of links, and the spans that they enclosed, without white space at their ends.

    >>> _without_markup(f"a {_START}link {_END}, {_START}{_END}b")
    ('a link , b', ((2, 6),))
    """
    parts: list[str] = []
    links: list[tuple[int, int]] = []
    length = start = 0
    first: int | None = None  # the number of parts before the link
    for part in re.split(f"([{_START}{_END}])", text):
        if part == _START:
            start, first = length, len(parts)
        elif part == _END and first is not None:
            inside = "".join(parts[first:])
            if inside.strip():
                links.append((start + len(inside) - len(inside.lstrip()), start + len(inside.rstrip())))
            first = None
        elif part != _END:
            parts.append(part)
            length += len(part)
    return "".join(parts), tuple(links)
