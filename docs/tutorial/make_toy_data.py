"""Write a toy task and corpus for the tutorial: three topics, 240 labelled sentences, 60 text files."""

from __future__ import annotations

import csv
import random
import sys
from pathlib import Path

WORDS = {
    "cooking": [
        "oven",
        "pan",
        "flour",
        "butter",
        "recipe",
        "salt",
        "simmer",
        "bake",
        "garlic",
        "onion",
        "broth",
        "taste",
        "slice",
        "whisk",
        "dough",
    ],
    "sailing": [
        "wind",
        "sail",
        "mast",
        "harbour",
        "tide",
        "anchor",
        "deck",
        "rope",
        "keel",
        "compass",
        "wave",
        "buoy",
        "hull",
        "crew",
        "knot",
    ],
    "chess": [
        "pawn",
        "knight",
        "bishop",
        "queen",
        "castle",
        "opening",
        "endgame",
        "check",
        "board",
        "rook",
        "gambit",
        "move",
        "clock",
        "attack",
        "defence",
    ],
}
COMMON = [
    "the",
    "a",
    "with",
    "and",
    "then",
    "before",
    "after",
    "slowly",
    "quickly",
    "always",
    "often",
    "one",
    "two",
    "good",
    "new",
]


def sentence(topic: str, draw: random.Random) -> str:
    """Return a sentence of 8 to 14 words, about half of them from the topic."""
    words = [draw.choice(WORDS[topic] if draw.random() < 0.5 else COMMON) for _ in range(draw.randint(8, 14))]
    return " ".join(words).capitalize() + "."


def main(folder: Path) -> None:
    """Write `labels.csv`, `texts.txt` and `notes/*.txt` into a folder."""
    draw = random.Random(0)
    (folder / "notes").mkdir(parents=True, exist_ok=True)
    with open(folder / "labels.csv", "w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["text", "label"])
        for number in range(240):
            topic = list(WORDS)[number % 3]
            rows.writerow([sentence(topic, draw), topic])
    (folder / "texts.txt").write_text("".join(sentence(topic, draw) + "\n" for topic in WORDS), encoding="utf-8")
    names = ["plan", *(f"note{number:02d}" for number in range(1, 60))]
    for number, name in enumerate(names):
        topic = list(WORDS)[number % 3]
        text = " ".join(sentence(topic, draw) for _ in range(12))
        (folder / "notes" / f"{name}.txt").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
