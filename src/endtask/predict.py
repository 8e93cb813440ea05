"""Labels with probabilities from a trained run, for texts one by one or streamed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from endtask.errors import InputError
from endtask.models.without_bars import without_bars

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

Text = str | tuple[str, str]


@dataclass(frozen=True)
class Prediction:
    """The most probable label, and the probability of every label."""

    label: str
    probability: float
    probabilities: dict[str, float]


def load(run: str | Path) -> Predictor:
    """Load the model of a finished run, or any folder with a sequence classifier in Hugging Face format.

    >>> load("runs/absent")
    Traceback (most recent call last):
    ...
    endtask.errors.InputError: runs/absent: no trained model here (finish the run first: endtask run runs/absent)
    """
    folder = Path(run)
    model = folder / "model" if (folder / "model").is_dir() else folder
    if not (model / "config.json").exists():
        raise InputError("no trained model here", path=folder, hint=f"finish the run first: endtask run {folder}")
    return Predictor(model, kind=_kind_of(model.parent))


def _kind_of(run: Path) -> str | None:
    """The kind of task a run was trained on, if the folder is a run's."""
    audit = run / "read" / "audit.json"
    return str(json.loads(audit.read_text(encoding="utf-8"))["kind"]) if audit.exists() else None


class Predictor:
    """A classifier ready to use; nothing of endtask's own is needed to load it.

    `kind` is `text` or `pair` where the task is known; texts of the other kind are then refused.
    """

    def __init__(self, folder: Path, kind: str | None = None) -> None:
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        self.kind = kind
        with without_bars():
            self._tokenizer: PreTrainedTokenizerFast = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
            self._model: PreTrainedModel = AutoModelForSequenceClassification.from_pretrained(
                str(folder), local_files_only=True
            ).eval()
        self.labels: tuple[str, ...] = tuple(self._model.config.id2label.values())

    def predict(self, texts: Iterable[Text], *, batch_size: int = 32) -> list[Prediction]:
        """Predictions for texts, or for (text, second text) pairs."""
        return list(self.stream(texts, batch_size=batch_size))

    def stream(self, texts: Iterable[Text], *, batch_size: int = 32) -> Iterator[Prediction]:
        """The same, batch by batch, so that the texts need not fit in memory."""
        if isinstance(texts, str):
            raise TypeError("give a list of texts, not a single string")
        yield from self.stream_batches(in_batches(texts, batch_size))

    def stream_batches(self, batches: Iterable[Sequence[Text]]) -> Iterator[Prediction]:
        """The same for texts that the caller has put into batches, such as those that have come so far."""
        before = 0
        for batch in batches:
            for number, text in enumerate(batch, start=before + 1):
                self._check(number, text)
            before += len(batch)
            # Texts and pairs may come mixed; the tokenizer takes one kind at a time.
            for is_pair, group in groupby(batch, key=lambda text: not isinstance(text, str)):
                yield from self._predict_batch(list(group), is_pair)

    def _check(self, number: int, text: Text) -> None:
        if self.kind == "pair" and isinstance(text, str):
            raise InputError(f"text {number} has no second text", hint="this model was trained on text pairs")
        if self.kind == "text" and not isinstance(text, str):
            raise InputError(f"text {number} is a pair", hint="this model was trained on single texts")

    def _predict_batch(self, texts: list[Text], is_pair: bool) -> Iterator[Prediction]:
        import torch

        first = [text[0] for text in texts] if is_pair else texts
        second = [text[1] for text in texts] if is_pair else None
        inputs: Any = self._tokenizer(first, second, truncation=True, padding=True, return_tensors="pt")
        with torch.inference_mode():
            probabilities = self._model(**inputs).logits.softmax(-1)  # (texts, labels)
        for row in probabilities.tolist():
            best = max(range(len(row)), key=row.__getitem__)
            yield Prediction(self.labels[best], row[best], dict(zip(self.labels, row, strict=True)))


def in_batches(texts: Iterable[Text], size: int) -> Iterator[list[Text]]:
    """Lists of `size` texts, the last one shorter.

    >>> list(in_batches(["a", "b", "c"], 2))
    [['a', 'b'], ['c']]
    """
    stream = iter(texts)
    while batch := list(islice(stream, size)):
        yield batch
