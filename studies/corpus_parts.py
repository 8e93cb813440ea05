"""Write a quarter and a half of a corpus for studies/tlm-corpus.yaml, by document; the quarter is inside the half.

python -m studies.corpus_parts ../shared/data/corpus runs/corpus-parts
"""

from __future__ import annotations

import argparse
import json
from contextlib import ExitStack
from pathlib import Path

from endtask.errors import InputError
from endtask.io.atomic import atomic_file
from endtask.io.compression import open_bytes
from endtask.seeds import derive

PARTS = {"quarter": 0.25, "half": 0.5}


def position(document: str) -> float:
    """Return a number from 0 to 1 that depends on the id of a document alone; passages are numbered after `#`.

    >>> position("wiki/Autism#1") == position("wiki/Autism#2") != position("wiki/Autism2#1")
    True
    """
    return derive(0, "corpus parts", document.partition("#")[0]) / 2**63


def write_parts(corpus: Path, folder: Path) -> dict[str, int]:
    """Write the parts of all files in a folder of JSON lines, and return the rows of each."""
    files = sorted(corpus.glob("*.jsonl*"))
    if not files:
        raise InputError("no JSON lines there", path=corpus)
    folder.mkdir(parents=True, exist_ok=True)
    rows = dict.fromkeys(PARTS, 0)
    with ExitStack() as stack:
        paths = {name: stack.enter_context(atomic_file(folder / f"{name}.jsonl")) for name in PARTS}
        parts = {name: stack.enter_context(open(path, "wb")) for name, path in paths.items()}
        for file in files:
            with open_bytes(file) as lines:
                for line in lines:
                    place = position(json.loads(line)["id"])
                    for name, share in PARTS.items():
                        if place < share:
                            parts[name].write(line)
                            rows[name] += 1
    return rows


def main() -> None:
    """Write the parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path, help="a folder of JSON lines with ids")
    parser.add_argument("folder", type=Path, help="where the parts go")
    args = parser.parse_args()
    try:
        print(json.dumps(write_parts(args.corpus, args.folder)))
    except InputError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
