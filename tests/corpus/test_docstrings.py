"""Docstrings are parsed and never imported; code and the library's name are removed."""

from __future__ import annotations

import gc
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from endtask.corpus import docstrings
from endtask.corpus.docstrings import clean_docstring, docstring_documents, docstring_fingerprint, site_folders
from endtask.errors import InputError
from endtask.records import Document

LONG = "This sentence is long enough to be kept, as it has more than sixty characters."


def write(folder: Path, name: str, source: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source, encoding="utf-8")


def read(folder: Path) -> dict[str, Document]:
    return {document.id: document for document in docstring_documents([folder])}


def test_modules_classes_and_functions_are_found_with_their_names(tmp_path: Path) -> None:
    source = f'''"""Module. {LONG}"""
class Outer:
    """Outer. {LONG}"""
    async def method(self):
        """Method. {LONG}"""
        def inner():
            """Inner. {LONG}"""
try:
    import fast
except ImportError:
    def fallback():
        """Fallback. {LONG}"""
else:
    def direct():
        """Direct. {LONG}"""
short = """Not a docstring. {LONG}"""
def tiny():
    """Too short."""
'''
    write(tmp_path, "lib/part/code.py", source)
    documents = read(tmp_path)
    names = ["<module>", "Outer", "Outer.method", "Outer.method.inner", "fallback", "direct"]
    assert list(documents) == [f"lib/part/code.py:{name}" for name in names]
    document = documents["lib/part/code.py:Outer.method"]
    assert (document.text, document.source, document.title) == (f"Method. {LONG}", "docstrings", "lib")


def test_a_name_defined_twice_keeps_two_ids(tmp_path: Path) -> None:
    write(tmp_path, "lib/a.py", f'def f():\n    """One. {LONG}"""\ndef f():\n    """Two. {LONG}"""\n')
    assert list(read(tmp_path)) == ["lib/a.py:f", "lib/a.py:f#2"]


def test_nothing_is_imported(tmp_path: Path) -> None:
    write(tmp_path, "lib/__init__.py", f'"""{LONG}"""\nraise SystemExit("imported")\n')
    assert len(read(tmp_path)) == 1


def test_order_is_fixed_and_single_modules_count_as_libraries(tmp_path: Path) -> None:
    for name in ("zebra.py", "beta/b.py", "beta/a.py", "alpha/z.py"):
        write(tmp_path, name, f'"""{LONG}"""\n')
    expected = ["zebra/zebra.py:<module>", "alpha/z.py:<module>", "beta/a.py:<module>", "beta/b.py:<module>"]
    assert list(read(tmp_path)) == expected


@pytest.mark.parametrize(
    "name",
    [
        "lib/tests/a.py",
        "lib/test_a.py",
        "lib/a_test.py",
        "lib/conftest.py",
        "lib/_vendor/x/a.py",
        "lib/externals/a.py",
        "endtask/a.py",
    ],
)
def test_tests_vendored_copies_and_endtask_are_left_out(tmp_path: Path, name: str) -> None:
    write(tmp_path, name, f'"""{LONG}"""\n')
    assert read(tmp_path) == {}


@pytest.mark.parametrize("source", [b'print "python 2"\n"""x"""', b'"""\x00"""', b'"""\xff\xfe"""', b'"""unclosed'])
def test_files_that_do_not_parse_are_skipped(tmp_path: Path, source: bytes) -> None:
    write(tmp_path, "lib/good.py", f'"""{LONG}"""\n')
    (tmp_path / "lib" / "bad.py").write_bytes(source)
    assert list(read(tmp_path)) == ["lib/good.py:<module>"]
    assert gc.isenabled()


def test_other_peoples_invalid_escapes_give_no_warning(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    write(tmp_path, "lib/a.py", f'"""{LONG} \\d"""\n')
    assert len(read(tmp_path)) == 1
    assert not recwarn.list


def test_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="absent: no such folder"):
        list(docstring_documents([tmp_path / "absent"]))


@pytest.mark.parametrize(
    ("docstring", "prose"),
    [
        ("Before.\n\n>>> f(1)\n1\n... more\n\nAfter.", "Before.\n\nAfter."),
        ("Before.\n\n    >>> f(1)\n    1\n\nAfter.", "Before.\n\nAfter."),
        ("Before.\n\n```python\nf(1)\n\ng(2)\n```\nAfter.", "Before.\n\nAfter."),
        ("Use it so::\n\n    f(1)\n\n    g(2)\n\nAfter.", "Use it so:\nAfter."),
        ("Before.\n\n.. code-block:: python\n\n    f(1)\n\nAfter.", "Before.\n\nAfter."),
        ("Before.\n\n```\nnever closed", "Before."),
        ("Parameters\n----------\nx : int\n    The number.", "Parameters\n----------\nx : int\n    The number."),
    ],
)
def test_code_examples_are_removed(docstring: str, prose: str) -> None:
    assert clean_docstring(docstring, "lib") == prose


@pytest.mark.parametrize(
    ("library", "docstring", "prose"),
    [
        ("numpy", "NumPy arrays and np.ndarray of numpy.", " arrays and ndarray of."),
        ("numpy", "The `numpy.linalg.norm` input, snp unit.", "The `linalg.norm` input, snp unit."),
        ("torch", "A PyTorch tensor with __torch_function__.", "A tensor with ___function__."),
        ("sklearn", "Part of scikit-learn (sklearn), an SK tool", "Part of (), an tool"),
        ("huggingface_hub", "The Hugging Face Hub and huggingface-hub do", "The and do"),
        ("scipy", "Uses numpy.array and NumPy", "Uses numpy.array and NumPy"),
    ],
)
def test_the_librarys_own_name_is_removed(library: str, docstring: str, prose: str) -> None:
    assert clean_docstring(docstring, library) == prose.strip()


@given(
    st.lists(
        st.sampled_from(["numpy", "np", "NumPy.fft", "array", "np_x", ">>> np", "the", "\n", "  ", "."]), max_size=30
    )
)
def test_no_own_name_or_prompt_survives(parts: list[str]) -> None:
    text = clean_docstring(" ".join(parts), "numpy")
    assert not re.search(r"(?<![^\W_])(numpy|np)(?![^\W_])", text, re.IGNORECASE)
    assert not any(line.lstrip().startswith(">>>") for line in text.splitlines())


def test_licence_comes_from_the_distribution(tmp_path: Path) -> None:
    write(tmp_path, "lib/a.py", f'"""{LONG}"""\n')
    write(tmp_path, "lib-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: lib\nVersion: 1.0\nLicense: MIT\n")
    write(tmp_path, "lib-1.0.dist-info/RECORD", "lib/a.py,,\n")
    assert [document.license for document in docstring_documents([tmp_path])] == ["MIT"]


def test_fingerprint_follows_versions_and_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(folder.is_dir() for folder in site_folders())
    monkeypatch.setattr(docstrings, "site_folders", lambda: [tmp_path])
    prints = []
    for name, version, form in (("lib", "1.0", 1), ("lib", "1.1", 1), ("endtask", "9.9", 1), ("endtask", "9.9", 2)):
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        write(tmp_path, f"{name}-{version}.dist-info/METADATA", metadata)
        monkeypatch.setattr(docstrings, "FORMAT_VERSION", form)
        prints.append(docstring_fingerprint())
    assert prints[1] == prints[2]  # endtask's own version does not count
    assert len({prints[0], prints[1], prints[3]}) == 3
