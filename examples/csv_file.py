"""Train on a CSV file, and print scores, mistakes and an explanation.

python -m examples.csv_file labels.csv 'notes/*.txt'
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import pandas as pd

import endtask

MISTAKES = 3


def main(arguments: Sequence[str]) -> None:
    """Train on the columns `text` and `label` of a CSV file, with a corpus if one is given."""
    path, *corpus = arguments
    frame = pd.read_csv(path)
    model = endtask.fit(frame, corpus=corpus or None, budget="10min")
    print(model.evaluate())
    print("\n".join(mistakes(model, frame)))
    print(f"report: {model.report}")


def mistakes(model: endtask.Model, frame: pd.DataFrame) -> list[str]:
    """Return explanations of the first rows that the model gets wrong."""
    predicted = model.predict(frame["text"])
    wrong = frame[frame["label"].astype(str) != pd.Series(predicted, index=frame.index)]
    return [f"\nlabel: {row.label}\n{model.explain(row.text, top=2)}" for row in wrong.head(MISTAKES).itertuples()]


if __name__ == "__main__":
    main(sys.argv[1:])
