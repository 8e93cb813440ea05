"""Predict with the model of a trained run, for a list or a stream of texts: classes, scores, labels or tags."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from endtask.encoders.checkpoint_files import without_progress_bars
from endtask.encoders.config_sizes import size_problem
from endtask.errors import InputError, a_few, did_you_mean_path
from endtask.io.parsing import parse_json, read_json
from endtask.io.run_layout import CALIBRATION, MODEL_FACTS, NETWORK, SETTINGS_FILE, TASKS
from endtask.io.stage_files import MANIFEST, check_stage, checked, read_manifest
from endtask.records import batched
from endtask.registry import task_types
from endtask.serving.linear_model import Texts, is_linear, load_linear
from endtask.serving.onnx_model import OnnxModel, is_onnx, model_class
from endtask.task.spans import split_punctuation
from endtask.task_types.base import Answer, LabelSet, Prediction, Score, Tagged

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor
    from transformers import PreTrainedModel

__all__ = ["Answer", "LabelSet", "Prediction", "Predictor", "Score", "Tagged", "load", "takes_pairs"]

_WINDOW_BATCH = 32
_LOCAL: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
"""A model folder may come from anyone: no code of its own, and no question whether to run it."""
Text = str | tuple[str, str] | list[str]
"""A text, a pair of texts, or the words of a text to tag."""


def load(run: str | Path, *, device: str = "cpu", calibrated: bool = False) -> Predictor:
    """Load the model of a finished run, or a text or token classifier in Hugging Face format.

    Folders that `endtask export --to onnx` and `int8` write are loaded by ONNX Runtime, which runs on the CPU.
    `device` is `cpu`, `cuda`, `mps` or `auto`, the best that this machine has. `calibrated` scales probabilities by the
    temperature that the run fitted on dev; answers stay the same.

    >>> load("runs/absent")
    Traceback (most recent call last):
    ...
    endtask.errors.InputError: runs/absent: no such folder
    """
    folder = Path(run)
    if not folder.is_dir():
        siblings = folder.parent.iterdir() if folder.parent.is_dir() else ()
        hint = did_you_mean_path(folder, (sibling.name for sibling in siblings if sibling.is_dir()))
        raise InputError("no such folder", path=folder, hint=hint)
    model = folder / "model" if (folder / "model").is_dir() else folder
    if not (model / "config.json").exists():
        check_model(model)
        raise InputError("no trained model here", path=folder, hint=f"finish the run first: endtask run {folder}")
    check_model(model)
    task = _task_folder(model)
    temperature = _temperature_of(folder) if calibrated else 1.0
    return Predictor(model, _stored_task_type(task), _has_pairs(task), device, temperature)


def _temperature_of(run: Path) -> float:
    """Return the temperature of the saved seed."""
    path = run / "evaluate" / CALIBRATION
    if not path.exists():
        reason = "no temperature was fitted: only evaluated runs of tasks with labels have one"
        raise InputError(reason, path=run, hint="leave out --calibrated")
    saved = (read_manifest(run / "model") or {}).get("counts", {}).get("seed")
    fitted = {seed["seed"]: float(seed["temperature"]) for seed in read_json(checked(path))["seeds"]}
    if saved not in fitted:
        raise InputError(f"no temperature of the saved seed {saved}", path=path, hint="redo --from evaluate")
    return fitted[saved]


def check_model(model: Path) -> None:
    """Raise `DamagedFile` if the folder is that of a stage and a file is not as the stage wrote it, weights too."""
    if (model / MANIFEST).exists() or (model.parent / SETTINGS_FILE).exists():
        check_stage(model, digests_up_to=math.inf)


def _task_folder(model: Path) -> Path:
    """Return the folder where a model's run stored its task; for `model/tasks/NAME`, the auxiliary task."""
    model = model.parent if model.name == NETWORK else model
    if (model.parent.parent.name, model.parent.name) == ("model", TASKS):
        return model.parents[2] / "read" / TASKS / model.name
    return model.parent / "read"


def _stored_task_type(task: Path) -> str | None:
    """Return the task type that a run stored, or None outside a run."""
    audit = task / "audit.json"
    return str(read_json(checked(audit))["type"]) if audit.exists() else None


def takes_pairs(run: Path) -> bool | None:
    """Return whether a run was trained on text pairs; None if the folder is not a run."""
    return _has_pairs(run / "read")


def _has_pairs(task: Path) -> bool | None:
    rows = task / "train.jsonl"
    if not rows.exists():
        return None
    with open(checked(rows), encoding="utf-8") as file:
        return "text_pair" in parse_json(file.readline())


def _implied_task_type(config: Any) -> str | None:
    """Return the task type that a configuration implies; it does not distinguish pairs from single texts."""
    per_token = any("TokenClassification" in name for name in config.architectures or ())
    for name in task_types.names():
        task_type = task_types.get(name)
        if task_type.per_token if per_token else task_type.problem_type == (config.problem_type or ""):
            return name
    return None


def _check_sizes(folder: Path) -> None:
    """Raise `InputError` for sizes that no model has, before the libraries take memory for them."""
    values = read_json(folder / "config.json")
    if not isinstance(values, dict):
        raise InputError("no JSON object", path=folder / "config.json")
    problem = size_problem(values, [*folder.glob("model*.safetensors"), *folder.glob("*.onnx*")])
    if problem is not None:
        raise InputError(problem, path=folder / "config.json")


@contextmanager
def _load_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except (InputError, MemoryError):
        raise
    except Exception as error:  # the libraries raise errors of any kind
        reason = (str(error).strip().splitlines() or [""])[0] or type(error).__name__
        raise InputError(f"cannot be loaded as a model: {reason}", path=folder) from None


def _best(probabilities: NDArray[np.float32]) -> tuple[list[float], list[int]]:
    """Return the highest probability of each word, and the number of its tag; -1 for a word without any."""
    highest = probabilities.max(-1, initial=0)
    numbers = np.where(highest > 0, probabilities.argmax(-1), -1)
    return highest.tolist(), numbers.tolist()


@dataclass(frozen=True)
class _Facts:
    """Facts of a model that Hugging Face's files do not have.

    The stride of windows, the threshold of labels, and whether a tagger's words have punctuation split off.
    """

    window_stride: int | None = None
    threshold: float = 0.5
    split_punctuation: bool = False

    @classmethod
    def read(cls, model: Path) -> _Facts:
        path = model / MODEL_FACTS
        if not path.exists():
            return cls()
        try:
            facts = dict(read_json(path))
        except (ValueError, TypeError):
            facts = {}
        stride, threshold, split = (facts.get(key) for key in ("window_stride", "threshold", "split_punctuation"))
        threshold = 0.5 if threshold is None else threshold
        if not (isinstance(stride, int) and stride >= 1) and (stride is not None or not facts):
            raise InputError("no valid window_stride", path=path, hint='{"window_stride": 64}')
        if not isinstance(threshold, float) or not 0 < threshold < 1:
            raise InputError("no valid threshold", path=path, hint='{"threshold": 0.5}')
        if split not in (None, True, False):
            raise InputError("no valid split_punctuation", path=path, hint='{"split_punctuation": true}')
        return cls(stride, threshold, bool(split))


class Predictor:
    """A loaded model. Plain transformers can load it too, unless its head pools over entity markers.

    `task_type` is None if unknown. A model that was trained on text pairs (`takes_pairs`) requires pairs. Texts
    longer than the model's maximum are truncated, unless the model was trained on windows of them. A temperature
    other than 1 scales all probabilities.
    """

    def __init__(
        self,
        folder: Path,
        task_type: str | None = None,
        takes_pairs: bool | None = None,
        device: str = "cpu",
        temperature: float = 1.0,
    ) -> None:
        from endtask.encoders.device_context import device_named

        self._facts, on_cpu = _Facts.read(folder), is_onnx(folder) or is_linear(folder)
        self._temperature = temperature
        _check_sizes(folder)
        with without_progress_bars(), _load_errors(folder):
            if is_linear(folder):
                self._load_linear(folder, task_type)
            else:
                self._load(folder, task_type)
        self.device = device_named("cpu" if on_cpu else device)
        self._model.to(self.device)
        requires_pairs = {"always": True, "never": False}.get(self.task_type.second_text) if self.type else None
        self.takes_pairs = takes_pairs if requires_pairs is None else requires_pairs
        self.labels: tuple[str, ...] = tuple(self._model.config.id2label.values())

    def _load(self, folder: Path, task_type: str | None) -> None:
        from transformers import AutoConfig, AutoTokenizer

        import endtask.encoders.saved_model  # noqa: F401 - registers the model type of encoders from plug-ins

        self._tokenizer: Any = AutoTokenizer.from_pretrained(str(folder), **_LOCAL)
        config = AutoConfig.from_pretrained(str(folder), **_LOCAL)
        self._set_type(task_type, config)
        self._model: Any = self._load_model(folder, config)

    def _load_linear(self, folder: Path, task_type: str | None) -> None:
        self._tokenizer, self._model = Texts(), load_linear(folder)
        self._set_type(task_type, self._model.config)

    def _set_type(self, task_type: str | None, config: Any) -> None:
        self.type = task_type or _implied_task_type(config)
        self.task_type = task_types.get(self.type or "text")()

    def _load_model(self, folder: Path, config: Any) -> PreTrainedModel | OnnxModel:
        if is_onnx(folder):
            return OnnxModel(folder, config)
        model: PreTrainedModel
        model, loaded = model_class(config, per_token=self.task_type.per_token).from_pretrained(
            str(folder), output_loading_info=True, **_LOCAL
        )
        if missing := sorted(loaded["missing_keys"]):  # the library makes random ones
            raise InputError(f"the weights lack {a_few(missing, 3)}", path=folder, hint="is it a classifier?")
        return model.eval()

    @property
    def network(self) -> PreTrainedModel | OnnxModel:
        """The loaded network."""
        return self._model

    def predict(self, texts: Iterable[Text], *, batch_size: int = 32) -> list[Any]:
        """Return a `Prediction`, `Score`, `LabelSet` or `Tagged` for each text or (text, second text) pair.

        A tagger also takes lists of words, as in the task's files.
        """
        return list(self.stream(texts, batch_size=batch_size))

    def stream(self, texts: Iterable[Text], *, batch_size: int = 32) -> Iterator[Any]:
        """Yield the predictions of `predict` batch by batch, so that the texts need not fit in memory."""
        if isinstance(texts, str):
            raise TypeError("give a list of texts, not a single string")
        yield from self.stream_batches(batched(texts, batch_size))

    def stream_batches(self, batches: Iterable[Sequence[Text]]) -> Iterator[Any]:
        """Yield the predictions of `predict` for batches of texts."""
        count = 0
        for batch in batches:
            for number, text in enumerate(batch, start=count + 1):
                self.check(number, text)
            count += len(batch)
            # A batch may mix texts and pairs; the tokenizer takes one kind at a time.
            for _, group in groupby(batch, key=lambda text: isinstance(text, str)):
                yield from self._predict_batch(list(group))

    def logits(self, texts: Sequence[Text]) -> list[NDArray[np.float32]]:
        """Return the raw outputs for texts, without windows: a vector for a text, of a tagger a row for each token."""
        words = [" ".join(text) if isinstance(text, list) else text for text in texts]
        first = [text if isinstance(text, str) else text[0] for text in words]
        second = [text[1] for text in words if not isinstance(text, str)]
        inputs: Any = self._tokenizer(first, second or None, truncation=True, padding=True, return_tensors="pt")
        import torch

        with torch.inference_mode():
            outputs = self._logits(inputs)
        if not self.task_type.per_token:
            return list(outputs.numpy())
        return [row[mask.bool()].numpy() for row, mask in zip(outputs, inputs["attention_mask"], strict=True)]

    def check(self, number: int, text: Text) -> None:
        """Raise `InputError` for a text of a form that the model does not take; `number` names it in the message."""
        if isinstance(text, list):
            if not self.task_type.per_token:
                raise InputError(f"text {number} is a list of words", hint="this model does not tag words")
            return
        if self.takes_pairs is True and isinstance(text, str):
            raise InputError(f"text {number} has no second text", hint="this model was trained on text pairs")
        if self.takes_pairs is False and not isinstance(text, str):
            raise InputError(f"text {number} is a pair", hint="this model was trained on single texts")

    def _predict_batch(self, texts: list[Text]) -> Iterator[Answer]:
        import torch

        with torch.inference_mode():
            if self.task_type.per_token:
                yield from self._tag(list(map(self._words_of, texts)))
                return
            outputs = self._scaled(self._outputs(texts).numpy())
        threshold = float(self._scaled(np.array([self._facts.threshold]))[0])
        for row in outputs.tolist():
            yield self.task_type.prediction(row, self.labels, threshold)

    def _scaled(self, probabilities: NDArray[Any]) -> NDArray[Any]:
        """Return probabilities at the model's temperature; the threshold of labels moves with them."""
        if self._temperature == 1.0:
            return probabilities
        from endtask.evaluation.calibration import scaled

        return scaled(probabilities, self._temperature, one_label=self.task_type.one_label)

    def _outputs(self, texts: list[Text]) -> Tensor:
        """Return (texts, labels) for single texts or for pairs, not for both."""
        single = [text for text in texts if isinstance(text, str)]
        pairs = [text for text in texts if not isinstance(text, str)]
        if single and self._facts.window_stride is not None:
            return self._mean_over_windows(single, self._facts.window_stride)
        first, second = single or [pair[0] for pair in pairs], [pair[1] for pair in pairs] or None
        inputs: Any = self._tokenizer(first, second, truncation=True, padding=True, return_tensors="pt")
        outputs: Tensor = self.task_type.activation(self._logits(inputs))
        return outputs

    def _logits(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Return the model's outputs for padded token ids, on the CPU."""
        on_device = {name: values.to(self.device) for name, values in inputs.items()}
        logits: Tensor = self._model(**on_device).logits
        return logits.float().cpu()

    def _mean_over_windows(self, texts: list[str], stride: int) -> Tensor:
        """Return the mean over each text's windows, which are those of training; a text may have hundreds."""
        import torch

        from endtask.tokenization.packed_texts import window_options

        options = window_options(self._tokenizer, self._tokenizer.model_max_length, stride)
        inputs: Any = self._tokenizer(texts, padding=True, return_tensors="pt", **options)
        owners: Tensor = inputs.pop("overflow_to_sample_mapping")  # (windows,)
        parts = []
        for start in range(0, len(owners), _WINDOW_BATCH):
            batch = {name: values[start : start + _WINDOW_BATCH] for name, values in inputs.items()}
            parts.append(self.task_type.activation(self._logits(batch)))
        sums = torch.zeros(len(texts), len(self.labels)).index_add(0, owners, torch.cat(parts))
        return sums / owners.bincount()[:, None]  # (texts, labels)

    def _tag(self, words: list[tuple[str, ...]]) -> Iterator[Tagged]:
        """Tag texts, with their words joined by single spaces as in training."""
        # The tag of a word without a token, because the text is truncated.
        outside = next((label for label in self.labels if label.lower() in ("o", "none")), self.labels[0])
        for text, (certainties, numbers) in zip(words, map(_best, self._word_outputs(words)), strict=True):
            tags = [outside if number < 0 else self.labels[number] for number in numbers]
            yield Tagged(text, tuple(tags), tuple(certainties), self._spans(text, tags))

    def tag_probabilities(self, texts: Iterable[Text], *, batch_size: int = 32) -> Iterator[NDArray[np.float32]]:
        """Yield the probabilities (words, tags) of each text; all 0 for a truncated word."""
        import torch

        for batch in batched(texts, batch_size):
            with torch.inference_mode():
                yield from self._word_outputs(list(map(self._words_of, batch)))

    def _words_of(self, text: Text) -> tuple[str, ...]:
        """Return the words to tag: those of a list, or of a text as in training."""
        if not isinstance(text, str):
            return tuple(text)
        return split_punctuation(text) if self._facts.split_punctuation else tuple(text.split())

    def _word_outputs(self, words: list[tuple[str, ...]]) -> Iterator[NDArray[np.float32]]:
        """Yield probabilities (words, tags), which are those of each word's first token."""
        from endtask.tokenization.packed_texts import NO_TOKEN, first_tokens

        inputs: Any = self._tokenizer(
            [" ".join(text) for text in words],
            truncation=True,
            padding=True,
            return_tensors="pt",
            return_offsets_mapping=True,
        )
        spans = inputs.pop("offset_mapping").numpy()
        probabilities = self._logits(inputs).softmax(-1).numpy()  # (texts, tokens, tags)
        for row, text in enumerate(words):
            tokens = first_tokens(text, spans[row])
            yield self._scaled(np.where((tokens == NO_TOKEN)[:, None], 0, probabilities[row, tokens]))

    def _spans(self, words: Sequence[str], tags: Sequence[str]) -> tuple[dict[str, Any], ...]:
        from endtask.evaluation.metrics.spans import scheme_of, spans_of

        spans = spans_of(tags, scheme_of(self.labels))
        return tuple(
            {"type": kind, "start": start, "end": end, "text": " ".join(words[start:end])} for kind, start, end in spans
        )
