"""How does the score grow with the number of labels? Train on 50, 100, 200, ... rows of a CSV file.

python -m examples.few_labels labels.csv 'notes/*.txt'

The test rows are the same for all models. For many draws and seeds on one pre-trained encoder: `endtask few-shot`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

import pandas as pd

import endtask

NUMBERS = (50, 100, 200, 400, 800)
TEST_ROWS = 200


def main(arguments: Sequence[str]) -> None:
    """Print the test score for each number of labels."""
    path, *corpus = arguments
    frame = pd.read_csv(path).sample(frac=1, random_state=0)
    test, rest = frame[:TEST_ROWS], frame[TEST_ROWS:]
    for labels, train in subsets(rest):
        model = endtask.fit({"train": train, "test": test}, corpus=corpus or None, budget="3min")
        print(f"{labels:>5} labels: {model.evaluate()}")


def subsets(frame: pd.DataFrame) -> Iterator[tuple[int, pd.DataFrame]]:
    """Yield growing parts of a table; each contains the one before."""
    for labels in NUMBERS:
        if labels <= len(frame):
            yield labels, frame[:labels]


if __name__ == "__main__":
    main(sys.argv[1:])
