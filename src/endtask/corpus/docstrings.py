"""The docstrings of the installed Python libraries, read by parsing and never by importing."""

from __future__ import annotations

import ast
import functools
import gc
import hashlib
import os
import re
import sysconfig
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path

from endtask.errors import InputError
from endtask.io.machine import usable_cores
from endtask.records import Document

SOURCE = "docstrings"
# Part of the fingerprint: increase it when the same libraries give other texts.
FORMAT_VERSION = 1
MINIMUM_CHARACTERS = 60

# Other names that a library uses for itself in its docstrings, besides its import name.
ALIASES: Mapping[str, tuple[str, ...]] = {
    "datasets": ("hf", "hugging face", "huggingface"),
    "huggingface_hub": ("hf", "hugging face", "huggingface", "hub"),
    "jinja2": ("jinja",),
    "markdown_it": ("markdown-it", "markdown-it-py"),
    "matplotlib": ("mpl", "plt"),
    "networkx": ("nx",),
    "numpy": ("np",),
    "pandas": ("pd",),
    "pyarrow": ("arrow", "pa"),
    "pytest": ("py.test",),
    "scipy": ("sp",),
    "sklearn": ("sk", "scikit-learn", "scikit learn", "scikits.learn"),
    "sympy": ("sm",),
    "tokenizers": ("hf", "hugging face", "huggingface"),
    "torch": ("pytorch",),
    "transformers": ("hf", "hugging face", "huggingface"),
    "yaml": ("pyyaml",),
}

OWN_PACKAGE = "endtask"
TEST_FOLDERS = frozenset({"test", "tests", "testing"})
VENDORED_FOLDERS = frozenset({"_vendor", "vendor", "_vendored", "vendored", "externals", "_external", "extern"})
SKIPPED_FOLDERS = TEST_FOLDERS | VENDORED_FOLDERS | {"__pycache__"}
TEST_FILE = re.compile(r"(test_.*|.*_test|conftest)\.py")

PROMPT = re.compile(r"\s*(>>>|In \[\d*\]:)")
FENCE = re.compile(r"\s*(```|~~~)")
CODE_DIRECTIVE = re.compile(r"\s*\.\.\s+(code|code-block|sourcecode|doctest|testcode|testoutput|plot|ipython)::")
BLANK_LINES = re.compile(r"\n{3,}")


def docstring_documents(folders: Sequence[Path] | None = None) -> Iterator[Document]:
    """Yield every module, class and function docstring below site-packages `folders`, sorted by path.

    The default is the site-packages of the running interpreter, read once per process: the demo needs them twice
    (as task and as corpus), and parsing takes half a minute.
    """
    if folders is None:
        yield from _installed_documents()
    else:
        yield from _read_folders(folders)


def docstring_fingerprint() -> str:
    """Return a hash that changes when a library is added, removed or upgraded, or with FORMAT_VERSION."""
    versions = sorted(
        (distribution.metadata["Name"].lower(), distribution.version)
        for distribution in metadata.distributions(path=[str(folder) for folder in site_folders()])
    )
    others = [pair for pair in versions if pair[0] != OWN_PACKAGE]
    return hashlib.sha256(repr((FORMAT_VERSION, others)).encode()).hexdigest()


def site_folders() -> list[Path]:
    """Return the site-packages folders of the running interpreter."""
    paths = sysconfig.get_paths()
    return [Path(folder) for folder in sorted({paths["purelib"], paths["platlib"]})]


@functools.cache
def _installed_documents() -> tuple[Document, ...]:
    return tuple(_read_folders(site_folders()))


def _read_folders(folders: Sequence[Path]) -> Iterator[Document]:
    for folder in folders:
        if not folder.is_dir():
            raise InputError("no such folder of Python libraries", path=folder)
    licences = _licences(folders)
    seen: Counter[str] = Counter()
    for folder in folders:
        paths = list(_python_files(folder))
        for path, docstrings in zip(paths, docstrings_of_files(paths), strict=True):
            relative = path.relative_to(folder)
            library = relative.parts[0].removesuffix(".py")
            module = relative if len(relative.parts) > 1 else Path(library) / relative
            for name, docstring in docstrings:
                text = clean_docstring(docstring, library)
                if len(text) >= MINIMUM_CHARACTERS:
                    identifier = f"{module.as_posix()}:{name}"
                    seen[identifier] += 1
                    # Overloads, property setters and if/else branches define one name several times.
                    unique = identifier if seen[identifier] == 1 else f"{identifier}#{seen[identifier]}"
                    yield Document(unique, text, SOURCE, library, licences.get(library))


def _python_files(folder: Path) -> Iterator[Path]:
    """Yield the Python files below `folder` in a fixed order, except tests, vendored copies and endtask itself."""
    for parent, below, names in os.walk(folder):
        below[:] = sorted(name for name in below if name not in SKIPPED_FOLDERS)
        if Path(parent) == folder and OWN_PACKAGE in below:
            below.remove(OWN_PACKAGE)
        for name in sorted(names):
            if name.endswith(".py") and not TEST_FILE.fullmatch(name):
                yield Path(parent) / name


def clean_docstring(docstring: str, library: str) -> str:
    """Return the prose of a docstring, without code examples and without the name of its library.

    >>> clean_docstring("Sort with numpy.\\n\\n>>> np.sort([2, 1])\\narray([1, 2])\\n\\nSee `np.argsort`.", "numpy")
    'Sort with.\\n\\nSee `argsort`.'
    """
    text = "\n".join(_prose_lines(_own_name(library).sub("", docstring).splitlines()))
    return BLANK_LINES.sub("\n\n", text).strip()


@functools.cache
def _own_name(library: str) -> re.Pattern[str]:
    """Return a pattern of the library's names, as words (with the blank before) or as first part of dotted names."""
    names = sorted({library, library.replace("_", "-"), *ALIASES.get(library, ())}, key=len, reverse=True)
    words = "|".join(re.escape(name) for name in names)
    name = rf"(?<![^\W_])(?:{words})(?![^\W_])"
    return re.compile(rf"[ \t]+{name}(?=\s|[.,;:)]\s|[.,;:)]?$)|{name}(?:\.(?=\w))?", re.IGNORECASE)


def _prose_lines(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines outside prompts with their output, fences, `::` blocks and code directives."""
    index = 0
    while index < len(lines):
        line = lines[index]
        if PROMPT.match(line):
            index = _end_of_paragraph(lines, index)
        elif FENCE.match(line):
            index = _end_of_fence(lines, index)
        elif CODE_DIRECTIVE.match(line):
            index = _end_of_indented(lines, index)
        elif line.rstrip().endswith("::") and not line.lstrip().startswith(".."):
            yield line.rstrip()[:-1]
            index = _end_of_indented(lines, index)
        else:
            yield line
            index += 1


def _end_of_paragraph(lines: Sequence[str], start: int) -> int:
    return next((index for index in range(start, len(lines)) if not lines[index].strip()), len(lines))


def _end_of_fence(lines: Sequence[str], start: int) -> int:
    closing = (index + 1 for index in range(start + 1, len(lines)) if FENCE.match(lines[index]))
    return next(closing, len(lines))


def _end_of_indented(lines: Sequence[str], start: int) -> int:
    """Return the first line after `start` that is not indented more than it."""
    depth = _indentation(lines[start])
    for index in range(start + 1, len(lines)):
        if lines[index].strip() and _indentation(lines[index]) <= depth:
            return index
    return len(lines)


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


def _licences(folders: Sequence[Path]) -> dict[str, str]:
    """Return the license of each top-level import name whose distribution states a short one."""
    found: dict[str, str] = {}
    for distribution in metadata.distributions(path=[str(folder) for folder in folders]):
        license = _stated_license(distribution.metadata)
        if license:
            for file in distribution.files or ():
                found.setdefault(file.parts[0].removesuffix(".py"), license)
    return found


def _stated_license(stated: metadata.PackageMetadata) -> str | None:
    classifiers = [line for line in stated.get_all("Classifier") or () if line.startswith("License :: ")]
    fields = [*(stated.get_all("License-Expression") or ()), *(stated.get_all("License") or ())]
    short = [license for license in fields if len(license) <= 60 and "\n" not in license]
    return next(iter([*short, *(line.rpartition(" :: ")[2] for line in classifiers)]), None)


Block = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
Named = tuple[str, str]


def docstrings_of_file(path: Path) -> list[Named]:
    """Return (qualified name, docstring) pairs of one file; none if the file is not Python of this version."""
    source = path.read_bytes()
    if b'"""' not in source and b"'''" not in source:
        return []
    try:
        tree = _parse(source)
    except (SyntaxError, ValueError, RecursionError):  # templates, Python 2, null bytes, endless expressions
        return []
    return list(_docstrings(tree, ""))


def _parse(source: bytes) -> ast.Module:
    # Parsing makes millions of objects without cycles; garbage collection would take a quarter of the time.
    collecting = gc.isenabled()
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # other people's invalid escape sequences
            return ast.parse(source)
    finally:
        if collecting:
            gc.enable()


def _docstrings(block: Block, qualified_name: str) -> Iterator[Named]:
    docstring = ast.get_docstring(block)
    if docstring:
        yield qualified_name or "<module>", docstring
    for inner in _definitions(block.body):
        yield from _docstrings(inner, f"{qualified_name}.{inner.name}" if qualified_name else inner.name)


def _definitions(
    statements: Sequence[ast.stmt],
) -> Iterator[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the classes and functions defined by these statements, or inside `if`, `try` and `with`."""
    for statement in statements:
        if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield statement
        elif isinstance(statement, ast.If | ast.Try | ast.With):
            for handler in getattr(statement, "handlers", ()):
                yield from _definitions(handler.body)
            for part in ("body", "orelse", "finalbody"):
                yield from _definitions(getattr(statement, part, ()))


_FEWEST_FILES_PER_WORKER = 200


def docstrings_of_files(paths: Sequence[Path]) -> list[list[Named]]:
    """Return the docstrings of each file, in the order of the files, parsed on all cores."""
    workers = min(usable_cores(), len(paths) // _FEWEST_FILES_PER_WORKER)
    if workers < 2:
        return [docstrings_of_file(path) for path in paths]
    from joblib import Parallel, delayed

    found: list[list[Named]] = Parallel(workers, batch_size=50)(delayed(docstrings_of_file)(path) for path in paths)
    return found
