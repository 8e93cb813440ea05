"""Maps put near what is near, and the share of equal classes is that of a loop."""

from __future__ import annotations

import numpy as np
import pytest

from endtask.analysis.sentence_map import same_class_by_chance, same_class_share, sentence_map


def groups(count: int = 3, rows: int = 12) -> tuple[np.ndarray, list[str]]:
    """Vectors around a few directions, and the names of the directions."""
    random = np.random.default_rng(0)
    centres = 4 * np.eye(count, 8)
    vectors = np.concatenate([centre + 0.3 * random.normal(size=(rows, 8)) for centre in centres])
    return vectors.astype(np.float32), [name for name in "abc"[:count] for _ in range(rows)]


def test_the_map_keeps_groups_apart_and_is_the_same_again() -> None:
    vectors, names = groups()
    placed = sentence_map(vectors)
    assert placed is not None
    assert placed == sentence_map(vectors.copy())
    assert same_class_share(np.asarray(placed) - np.mean(placed, axis=0), names) > 0.9


def test_equal_vectors_and_few_texts_have_no_map() -> None:
    assert sentence_map(np.ones((20, 4), dtype=np.float32)) is None
    assert sentence_map(np.eye(4, dtype=np.float32)) is None


def test_the_share_of_the_same_class_is_that_of_a_loop() -> None:
    random = np.random.default_rng(1)
    vectors, names = random.normal(size=(25, 5)).astype(np.float32), [str(row % 3) for row in range(25)]
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    shares = []
    for row in range(25):
        others = sorted(
            (other for other in range(25) if other != row), key=lambda other: -float(unit[row] @ unit[other])
        )
        shares.append(np.mean([names[other] == names[row] for other in others[:10]]))
    assert same_class_share(vectors, names) == pytest.approx(np.mean(shares))
    pairs = [names[one] == names[two] for one in range(25) for two in range(25) if one != two]
    assert same_class_by_chance(names) == pytest.approx(np.mean(pairs))
