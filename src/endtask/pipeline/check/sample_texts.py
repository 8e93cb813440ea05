"""Examples as the model will see them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from endtask.config import Settings
from endtask.records import Example
from endtask.task import Task

if TYPE_CHECKING:
    from endtask.objectives.stream import TextStream
    from endtask.training.phase import Phase


def examples_of(task: Task, packed: Path, phase: Phase, settings: Settings) -> tuple[dict[str, str], ...]:
    """Two train texts as tokens and as pre-training will see them, masked."""
    from endtask.tokenization.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(packed / "tokenizer")
    name = _shown_objective(phase, settings)
    stream: TextStream = phase.objectives[name].stream  # type: ignore[attr-defined]
    of = settings.used_objectives[name].task
    rows = task.train if of is None else task.auxiliary[of].train
    batch, positions = stream.batch(0), stream.positions(0)
    shown = []
    for row in range(min(2, len(positions))):
        example = rows[int(positions[row])]
        start, end = batch.offsets[row : row + 2].tolist()
        masked = tokenizer.convert_ids_to_tokens(batch.input_ids[start:end].tolist())
        pair = f" | {example.text_pair}" if example.text_pair else ""
        ids = tokenizer(example.text, example.text_pair, add_special_tokens=False, verbose=False)["input_ids"]
        shown.append(
            {
                "example": f"{example.id}, {_short(_answer(example))}",
                "text": _short(example.text + pair),
                "tokens": _short(" ".join(tokenizer.convert_ids_to_tokens(ids))),
                "masked": _short(" ".join(masked)),
            }
        )
    return tuple(shown)


def _shown_objective(phase: Phase, settings: Settings) -> str:
    """The first objective that hides tokens, or the first of all; those of the end task go before others."""
    used = settings.used_objectives
    names = sorted(phase.objectives, key=lambda name: used[name].task is not None)
    return next((name for name in names if used[name].part_class.masks), names[0])


def _answer(example: Example) -> str:
    """What a model is to say about an example."""
    if example.tokens is not None and isinstance(example.label, tuple):
        return "tags " + " ".join(f"{word}/{tag}" for word, tag in zip(example.tokens, example.label, strict=True))
    if isinstance(example.label, tuple):
        return f"labels {', '.join(example.label) or 'none'}"
    return f"label {example.label}"


def _short(text: str, limit: int = 300) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else f"{text[:limit]} ..."
