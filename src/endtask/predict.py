"""Labels with probabilities from a trained run, for texts one by one or streamed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from endtask.errors import InputError
from endtask.files.run_layout import MODEL_FACTS
from endtask.models.without_bars import without_bars

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

_WINDOWS_AT_ONCE = 32
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


def _window_stride_of(model: Path) -> int | None:
    """How many tokens apart the windows of a long text start, if the model reads it by windows."""
    facts = model / MODEL_FACTS
    if not facts.exists():
        return None
    try:
        stride = json.loads(facts.read_text(encoding="utf-8"))["window_stride"]
    except (ValueError, KeyError, TypeError):
        stride = None
    if not isinstance(stride, int) or stride < 1:
        raise InputError("does not say how windows are read", path=facts, hint='{"window_stride": 64}')
    return stride


def _kind_of(run: Path) -> str | None:
    """The kind of task a run was trained on, if the folder is a run's."""
    audit = run / "read" / "audit.json"
    return str(json.loads(audit.read_text(encoding="utf-8"))["kind"]) if audit.exists() else None


class Predictor:
    """A classifier ready to use; nothing of endtask's own is needed to load it.

    `kind` is `text` or `pair` where the task is known; texts of the other kind are then refused. A single text longer
    than the model reads is cut off, unless it was trained to read such texts by windows.
    """

    def __init__(self, folder: Path, kind: str | None = None) -> None:
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        self.kind = kind
        self._window_stride = _window_stride_of(folder)
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
            for _, group in groupby(batch, key=lambda text: isinstance(text, str)):
                yield from self._predict_batch(list(group))

    def _check(self, number: int, text: Text) -> None:
        if self.kind == "pair" and isinstance(text, str):
            raise InputError(f"text {number} has no second text", hint="this model was trained on text pairs")
        if self.kind == "text" and not isinstance(text, str):
            raise InputError(f"text {number} is a pair", hint="this model was trained on single texts")

    def _predict_batch(self, texts: list[Text]) -> Iterator[Prediction]:
        import torch

        with torch.inference_mode():
            probabilities = self._probabilities(texts)
        for row in probabilities.tolist():
            best = max(range(len(row)), key=row.__getitem__)
            yield Prediction(self.labels[best], row[best], dict(zip(self.labels, row, strict=True)))

    def _probabilities(self, texts: list[Text]) -> Tensor:
        """(texts, labels) of single texts or of pairs, not of both."""
        single = [text for text in texts if isinstance(text, str)]
        pairs = [text for text in texts if not isinstance(text, str)]
        if single and self._window_stride is not None:
            return self._mean_over_windows(single, self._window_stride)
        first, second = single or [pair[0] for pair in pairs], [pair[1] for pair in pairs] or None
        inputs: Any = self._tokenizer(first, second, truncation=True, padding=True, return_tensors="pt")
        probabilities: Tensor = self._model(**inputs).logits.softmax(-1)
        return probabilities

    def _mean_over_windows(self, texts: list[str], stride: int) -> Tensor:
        """The same windows as in training, a few at a time: a single text may have hundreds."""
        import torch

        from endtask.text.packed import window_options

        options = window_options(self._tokenizer, self._tokenizer.model_max_length, stride)
        inputs: Any = self._tokenizer(texts, padding=True, return_tensors="pt", **options)
        owners: Tensor = inputs.pop("overflow_to_sample_mapping")  # (windows,)
        parts = []
        for start in range(0, len(owners), _WINDOWS_AT_ONCE):
            some = {name: values[start : start + _WINDOWS_AT_ONCE] for name, values in inputs.items()}
            parts.append(self._model(**some).logits.softmax(-1))
        sums = torch.zeros(len(texts), len(self.labels)).index_add(0, owners, torch.cat(parts))
        return sums / owners.bincount()[:, None]  # (texts, labels)


def in_batches(texts: Iterable[Text], size: int) -> Iterator[list[Text]]:
    """Lists of `size` texts, the last one shorter.

    >>> list(in_batches(["a", "b", "c"], 2))
    [['a', 'b'], ['c']]
    """
    stream = iter(texts)
    while batch := list(islice(stream, size)):
        yield batch
