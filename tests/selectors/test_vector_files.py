"""Files of vectors: all formats give the same vectors, and each error is one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as arrow
import pyarrow.parquet as parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from endtask.errors import InputError
from endtask.selectors.nearest_neighbors import check_embedding_exists, embedding_fingerprint, vectors_for

IDS = [f"d{number}" for number in range(9)]
VECTORS = np.arange(27, dtype=np.float32).reshape(9, 3)


def write_vectors(path: Path, ids: list[str], vectors: Any) -> Path:
    """A file of the kind that its name tells."""
    if path.suffix == ".parquet":
        parquet.write_table(arrow.table({"id": ids, "vector": [list(row) for row in np.asarray(vectors)]}), path)
        return path
    np.savez(path, ids=np.asarray(ids), vectors=vectors)
    return path


@pytest.mark.parametrize("suffix", [".parquet", ".npz"])
def test_every_kind_of_file_in_the_order_wanted(tmp_path: Path, suffix: str) -> None:
    path = write_vectors(tmp_path / f"v{suffix}", IDS, VECTORS)
    assert vectors_for(path, ["d7", "d0", "d3"], "texts").tolist() == VECTORS[[7, 0, 3]].tolist()


@given(st.permutations(range(9)), st.lists(st.sampled_from(IDS), min_size=1, unique=True))
@settings(max_examples=10)
def test_the_order_in_the_file_does_not_matter(
    tmp_path_factory: pytest.TempPathFactory, order: list[int], wanted: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("vectors")
    path = write_vectors(folder / "v.npz", [IDS[place] for place in order], VECTORS[order])
    assert vectors_for(path, wanted, "texts").tolist() == [VECTORS[IDS.index(name)].tolist() for name in wanted]


def bad_file(folder: Path, case: str) -> Path:
    """A file with one fault."""
    if case == "missing ids":
        return write_vectors(folder / "v.npz", IDS[:-2], VECTORS[:-2])
    if case == "fewer ids than vectors":
        return write_vectors(folder / "v.npz", IDS[:-2], VECTORS)
    if case == "a flat array":
        return write_vectors(folder / "v.npz", IDS, VECTORS[:, 0])
    if case == "words for numbers":
        return write_vectors(folder / "v.npz", IDS, VECTORS.astype(str))
    if case == "an id twice":
        return write_vectors(folder / "v.npz", [*IDS, "d3"], np.vstack([VECTORS, VECTORS[:1]]))
    if case == "not a number":
        return write_vectors(folder / "v.npz", IDS, np.where(VECTORS == 7, np.nan, VECTORS))
    if case == "rows of other lengths":
        parquet.write_table(arrow.table({"id": ["d0", "d1"], "vector": [[1.0], [1.0, 2.0]]}), folder / "v.parquet")
    elif case == "no list":
        parquet.write_table(arrow.table({"id": IDS, "vector": IDS}), folder / "v.parquet")
    elif case == "lists of words":
        parquet.write_table(arrow.table({"id": IDS, "vector": [["a"]] * 9}), folder / "v.parquet")
    elif case == "damaged pages":
        table = arrow.table({"id": IDS, "vector": [list(row) for row in VECTORS]})
        parquet.write_table(table, folder / "v.parquet", compression="zstd", use_dictionary=False)
        whole = (folder / "v.parquet").read_bytes()
        (folder / "v.parquet").write_bytes(whole[:4] + b"\xff" * 150 + whole[154:])
    elif case == "ids that are no text":
        table = arrow.table({"id": [b"\xff"] * 9, "vector": [list(row) for row in VECTORS]})
        parquet.write_table(table, folder / "v.parquet")
    elif case == "other columns":
        parquet.write_table(arrow.table({"id": IDS, "vectors": [[1.0]] * 9}), folder / "v.parquet")
    elif case == "no parquet":
        (folder / "v.parquet").write_text("nonsense")
    elif case == "other names":
        np.savez(folder / "v.npz", id=np.asarray(IDS), vectors=VECTORS)
        return folder / "v.npz"
    elif case == "pickled":
        np.savez(folder / "v.npz", ids=np.asarray(["d0"]), vectors=np.asarray([{}], dtype=object))
        return folder / "v.npz"
    return folder / "v.parquet"


REFUSED = {
    "missing ids": "no vector for 2 of 9 texts, such as 'd7'",
    "fewer ids than vectors": "7 ids for vectors of shape (9, 3) (one row of numbers for each id)",
    "a flat array": "9 ids for vectors of shape (9,)",
    "words for numbers": "vectors of <U",
    "an id twice": "two vectors for 'd3'",
    "not a number": "the vector of 'd2' holds a number that is not finite",
    "rows of other lengths": "the column vector holds other things (a list of numbers",
    "no list": "the column vector holds other things",
    "lists of words": "the column vector holds other things (a list of numbers",
    "damaged pages": "cannot be read: ",
    "ids that are no text": "cannot be read: 'utf-8' codec can't decode",
    "other columns": "holds no 'vector' (did you mean 'vectors'?)",
    "no parquet": "cannot be read: ",
    "other names": "holds no 'ids' (did you mean 'id'?)",
    "pickled": "cannot be read: Object arrays cannot be loaded",
}


@pytest.mark.parametrize("case", REFUSED)
def test_faults_are_one_line(tmp_path: Path, case: str) -> None:
    path = bad_file(tmp_path, case)
    with pytest.raises(InputError) as caught:
        vectors_for(path, IDS, "texts")
    assert str(caught.value).startswith(f"{path}, key 'select.embedding': {REFUSED[case]}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", [arrow.list_(arrow.float64(), 3), arrow.large_list(arrow.float32())])
@pytest.mark.parametrize("names", [arrow.string(), arrow.large_string(), arrow.binary()])
def test_every_kind_of_column(tmp_path: Path, kind: Any, names: Any) -> None:
    columns = [arrow.array(VECTORS.tolist(), kind), arrow.array(IDS, names)]
    parquet.write_table(arrow.table(columns, ["vector", "id"]), tmp_path / "v.parquet")
    assert vectors_for(tmp_path / "v.parquet", IDS, "texts").tolist() == VECTORS.tolist()


def test_ids_as_bytes_are_text(tmp_path: Path) -> None:
    np.savez(tmp_path / "v.npz", ids=np.asarray([name.encode() for name in IDS]), vectors=VECTORS)
    assert vectors_for(tmp_path / "v.npz", IDS, "texts").tolist() == VECTORS.tolist()


def test_blocks_of_other_dimensions_are_refused(tmp_path: Path) -> None:
    ids = [f"d{number}" for number in range(5000)]
    vectors = [[1.0]] * 4096 + [[1.0, 2.0]] * 904
    parquet.write_table(arrow.table({"id": ids, "vector": vectors}), tmp_path / "v.parquet")
    with pytest.raises(InputError, match="vectors of 1 and of 2 numbers"):
        vectors_for(tmp_path / "v.parquet", ids, "texts")


@pytest.mark.parametrize(
    ("embedding", "line"),
    [
        (None, "key 'select.embedding': nearest_neighbors needs an embedding (a model's folder"),
        ("absent.npz", "absent.npz, key 'select.embedding': no such file"),
        ("absent", "absent, key 'select.embedding': no such checkpoint folder (on the hub it would be hf:absent)"),
        ("package:no_such_xyz", "package:no_such_xyz, key 'select.embedding': no such package is installed"),
    ],
)
def test_an_absent_embedding_is_refused(embedding: str | None, line: str) -> None:
    with pytest.raises(InputError) as caught:
        check_embedding_exists(embedding)
    assert str(caught.value).startswith(line)


def test_the_fingerprint_is_that_of_ids_and_vectors(tmp_path: Path) -> None:
    path = write_vectors(tmp_path / "v.npz", IDS, VECTORS)
    first = embedding_fingerprint(str(path))
    write_vectors(path, IDS[::-1], VECTORS)
    assert embedding_fingerprint(str(path)) != first
    write_vectors(path, IDS, VECTORS)
    assert embedding_fingerprint(str(path)) == first
