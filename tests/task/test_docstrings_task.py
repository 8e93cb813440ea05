"""The docstrings task: balanced, without shared texts, and independent of the order of files."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from endtask.corpus.docstrings import docstring_documents
from endtask.errors import InputError
from endtask.records import Document
from endtask.task import docstrings_task as docstrings_task_module
from endtask.task.docstrings_task import LIBRARIES, OPENING_CHARACTERS, SPLIT_SIZES, docstring_splits, opening
from endtask.task.task import Task
from endtask.task.text_keys import normalize

PER_LIBRARY = sum(SPLIT_SIZES.values())


def made_documents(per_library: int = PER_LIBRARY + 20) -> list[Document]:
    return [
        Document(
            f"{library}/module.py:function_{number}",
            f"Function {number} of {library[::-1]} does a thing that takes enough words to be told at length.",
            "docstrings",
            library,
        )
        for library in (*LIBRARIES, "other")
        for number in range(per_library)
    ]


def docstrings_task(seed: int = 0, documents: list[Document] | None = None) -> Task:
    return Task.from_examples("docstrings", docstring_splits(seed, documents), seed=seed)


def test_splits_are_balanced_and_of_the_stated_size() -> None:
    task = docstrings_task(documents=made_documents())
    assert task.labels == tuple(sorted(LIBRARIES))
    for split, size in SPLIT_SIZES.items():
        assert Counter(example.label for example in task.splits[split]) == dict.fromkeys(LIBRARIES, size)


def test_order_of_documents_does_not_matter() -> None:
    documents = made_documents()
    task = docstrings_task(documents=documents)
    random.Random(1).shuffle(documents)
    assert docstrings_task(documents=documents) == task


def test_seed_changes_the_splits() -> None:
    documents = made_documents()
    assert docstrings_task(1, documents).fingerprint != docstrings_task(0, documents).fingerprint


def test_one_more_document_moves_few_examples() -> None:
    documents = made_documents()
    before = {example.id for example in docstrings_task(documents=documents).test}
    extra = Document(
        "numpy/new.py:new", "A new function that no older release of it had, long enough to count.", "d", "numpy"
    )
    after = {example.id for example in docstrings_task(documents=[*documents, extra]).test}
    assert len(before - after) <= 1


def test_equal_texts_enter_once_and_texts_of_two_libraries_never() -> None:
    repeated = "The very same sentence, written down for more than one function of the library."
    shared = "A sentence that two libraries have in common, so that neither label would be right."
    documents = made_documents(PER_LIBRARY - 1)
    documents += [
        Document(
            f"{library}/last.py:f",
            f"Only {library[::-1]} has this long and lonely last sentence of its own.",
            "d",
            library,
        )
        for library in LIBRARIES[1:]
    ]
    documents += [Document("huggingface_hub/a.py:f", repeated, "d", "huggingface_hub")]
    documents += [Document("huggingface_hub/b.py:f", repeated.upper(), "d", "huggingface_hub")]
    documents += [Document(f"{library}/c.py:f", shared, "d", library) for library in LIBRARIES[:2]]
    texts = [
        normalize(example.text) for part in docstrings_task(documents=documents).splits.values() for example in part
    ]
    assert texts.count(normalize(repeated)) == 1
    assert normalize(shared) not in texts
    assert len(set(texts)) == len(texts) == PER_LIBRARY * len(LIBRARIES)


def test_a_library_with_too_few_texts_is_named() -> None:
    documents = [document for document in made_documents() if document.title != "sympy"]
    with pytest.raises(InputError, match=f"needs {PER_LIBRARY} different texts of sympy, found 0"):
        docstrings_task(documents=documents)


@pytest.mark.parametrize(
    "section",
    [
        "Parameters\n----------\nx : int",
        "Args:\n    x: what",
        "Returns\n    the sum",
        ".. note:: not now",
        ":param x: what",
    ],
)
def test_opening_stops_at_the_first_section(section: str) -> None:
    assert opening(f"Add two\nnumbers.\n\nQuickly.\n\n{section}\n\nMore.") == "Add two numbers. Quickly."


@given(st.text(alphabet=st.sampled_from("ab .\n"), max_size=900))
def test_opening_is_one_line_of_whole_words_within_the_limit(text: str) -> None:
    shown = opening(text)
    assert len(shown) <= OPENING_CHARACTERS
    assert "\n" not in shown
    longest = max((len(word) for word in text.split()), default=0)
    if longest <= OPENING_CHARACTERS:
        assert " ".join(text.split()).startswith(shown)
        assert set(shown.split()) <= set(text.split())


@pytest.mark.long
@pytest.mark.slow
def test_installed_libraries_give_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    libraries = ("networkx", "numpy")
    monkeypatch.setattr(docstrings_task_module, "LIBRARIES", libraries)
    for library in libraries:
        source = Path(str(find_spec(library).origin)).parent
        shutil.copytree(source, tmp_path / library, ignore=shutil.ignore_patterns("tests", "*.so", "*.pyc"))
    documents = {document.id: document for document in docstring_documents([tmp_path])}
    task = docstrings_task(documents=list(documents.values()))
    assert {split: len(part) for split, part in task.splits.items()} == {
        split: size * len(libraries) for split, size in SPLIT_SIZES.items()
    }
    assert all(documents[example.id].title == example.label for example in task.test)
