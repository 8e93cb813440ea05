"""The contract of a document format: its suffixes, and how it yields the documents of a file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from endtask.corpus.links import Links
from endtask.io.compression import bare_suffix
from endtask.io.input_files import InputFile, ReadOptions
from endtask.registry import document_formats

__all__ = ["DocumentFormat", "DocumentOptions", "FileDocument", "document_formats"]


class FileDocument(NamedTuple):
    """A document of a file; the text is the concatenation of `parts`.

    `key` is appended to the file's label: "" for the whole file, `#3` for a row or record, `/name` for a member.
    """

    key: str
    parts: Iterable[str]
    id: str | None = None
    title: str | None = None
    license: str | None = None
    links: Links = ()


@dataclass(frozen=True)
class DocumentOptions(ReadOptions):
    """How a file of a corpus is read: the column of the text, whether links are needed, and on how many processes."""

    text: str | None = None
    with_links: bool = False
    processes: int = 1


class DocumentFormat(ABC):
    """Base class of all document formats. Objects have no state; modules import optional libraries in methods."""

    name: ClassVar[str]
    """Set by the registry."""
    suffixes: ClassVar[tuple[str, ...]]
    """In lower case, without compression."""
    precedence: ClassVar[int] = 1
    """Of several formats that match a name, the one with the lowest number reads the file."""
    is_one_document: ClassVar[bool] = True
    """Whether a file is one document; such files of a folder are one source."""

    def matches(self, path: InputFile) -> bool:
        """Return whether the name of a file is one of this format."""
        return bare_suffix(path) in self.suffixes

    def recognizes(self, path: InputFile) -> bool:
        """Return whether the content of a file that matches is of this format."""
        return True

    def version(self, path: InputFile) -> str | None:
        """Return what the texts depend on in addition to the file, such as a library with its version.

        It is part of the corpus's fingerprint. Raises `InputError` where the library is missing.
        """
        return None

    def unread_members(self, path: InputFile) -> Sequence[str]:
        """Return the names of the members of an archive that are not read."""
        return ()

    @abstractmethod
    def documents(self, path: InputFile, options: DocumentOptions) -> Iterator[FileDocument]:
        """Yield the documents of a file; calls `options.on_error` for what cannot be read."""
