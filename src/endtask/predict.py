"""Labels with probabilities from a trained run, for texts one by one or streamed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from endtask.errors import InputError

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
    return Predictor(model)


class Predictor:
    """A classifier ready to use; nothing of endtask's own is needed to load it."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

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
        stream = iter(texts)
        while batch := list(islice(stream, batch_size)):
            yield from self._predict_batch(batch)

    def _predict_batch(self, texts: list[Text]) -> Iterator[Prediction]:
        import torch

        first = [text if isinstance(text, str) else text[0] for text in texts]
        second = None if isinstance(texts[0], str) else [text[1] for text in texts]
        inputs: Any = self._tokenizer(first, second, truncation=True, padding=True, return_tensors="pt")
        with torch.inference_mode():
            probabilities = self._model(**inputs).logits.softmax(-1)  # (texts, labels)
        for row in probabilities.tolist():
            best = max(range(len(row)), key=row.__getitem__)
            yield Prediction(self.labels[best], row[best], dict(zip(self.labels, row, strict=True)))
