"""Compare endtask's Unigram trainer with that of `tokenizers`: characters per token of held-out text, and CPU time.

python -m benchmarks.unigram --data ../shared/data
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

from tokenizers import Tokenizer, models, trainers

from benchmarks.results_file import write_results
from endtask.config import CorpusSettings, SourceSettings, TokenizerSettings
from endtask.corpus import Corpus
from endtask.tokenization.special_tokens import SPECIAL_TOKENS
from endtask.tokenization.tokenizer import train_tokenizer

SIZES = (2_000, 8_000)
SAMPLES, TEXTS_PER_SAMPLE, HELD_OUT_EVERY = 3, 3_000, 8


def samples(data: Path) -> Iterator[list[str]]:
    """Yield disjoint samples of real text, each from all parts of the corpus."""
    corpus = Corpus.read(CorpusSettings(sources=(SourceSettings(path=str(data / "corpus" / "*.jsonl.zst")),)))
    texts = [document.text for document in islice(corpus.documents(), 0, None, 20)]
    for number in range(SAMPLES):
        yield texts[number::SAMPLES][:TEXTS_PER_SAMPLE]


def compare(texts: list[str], size: int, sample: int) -> list[dict[str, Any]]:
    """Return a row for each trainer on the same text with the same words."""
    held_out, train = texts[::HELD_OUT_EVERY], [text for n, text in enumerate(texts) if n % HELD_OUT_EVERY]
    started = time.process_time()
    trained = train_tokenizer(train, TokenizerSettings(kind="unigram", vocab_size=size), 128).backend_tokenizer
    seconds = {"endtask": time.process_time() - started}
    library = Tokenizer(models.Unigram())
    library.normalizer, library.pre_tokenizer = trained.normalizer, trained.pre_tokenizer
    trainer = trainers.UnigramTrainer(
        vocab_size=size, unk_token="[UNK]", special_tokens=SPECIAL_TOKENS, show_progress=False
    )
    started = time.process_time()
    library.train_from_iterator(train, trainer)
    seconds["tokenizers"] = time.process_time() - started
    characters = sum(map(len, held_out))
    return [
        {
            "learner": name,
            "vocabulary": size,
            "sample": sample,
            "characters_per_token": round(characters / _tokens(tokenizer, held_out), 4),
            "cpu_seconds": round(seconds[name], 2),
        }
        for name, tokenizer in (("endtask", trained), ("tokenizers", library))
    ]


def _tokens(tokenizer: Tokenizer, texts: list[str]) -> int:
    return sum(len(encoding.ids) for encoding in tokenizer.encode_batch(texts, add_special_tokens=False))


def main() -> None:
    """Compare on every sample and size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    rows = [
        row
        for number, texts in enumerate(samples(parser.parse_args().data))
        for size in SIZES
        for row in compare(texts, size, number)
    ]
    summary: dict[str, Any] = {}
    for size in SIZES:
        for key in ("characters_per_token", "cpu_seconds"):
            mean = {
                name: fmean(row[key] for row in rows if (row["learner"], row["vocabulary"]) == (name, size))
                for name in ("endtask", "tokenizers")
            }
            summary[f"{key}_over_library_{size}"] = round(mean["endtask"] / mean["tokenizers"], 3)
    write_results("unigram", "python -m benchmarks.unigram", rows, summary)
    print(summary)


if __name__ == "__main__":
    main()
