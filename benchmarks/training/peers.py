"""The peers of endtask: Hugging Face's Trainer, the TLM authors' loop, and matrix products alone."""

from __future__ import annotations

from statistics import median
from typing import Any, Literal

import torch
from torch.utils.data import DataLoader
from transformers import DataCollatorForLanguageModeling, Trainer, TrainerCallback, TrainingArguments

from benchmarks.training.cases import LENGTH, SIZES, Case, Row
from benchmarks.training.inputs import LEARNING_RATE, MASKED_SHARE, SEED, Setup, StepClock


def bert_masked_lm(case: Case, attention: Literal["sdpa", "eager"]) -> Any:
    """Return BERT in the size of a case."""
    from transformers import BertConfig, BertForMaskedLM, set_seed

    set_seed(0)
    dimensions = SIZES[case.size].dimensions(gated=False)
    model = BertForMaskedLM(BertConfig(vocab_size=case.vocabulary, attn_implementation=attention, **dimensions))
    if model.config._attn_implementation != attention:
        raise RuntimeError(f"requested {attention} attention, got {model.config._attn_implementation}")
    return model


def parameters_of(model: Any) -> int:
    """Return the number of weights; shared weights count once."""
    return sum(parameter.numel() for parameter in model.parameters())


def trainer(case: Case, setup: Setup) -> Row:
    """Train by Hugging Face's Trainer, not compiled."""
    return _train(case, setup, compiled=False)


def compiled_trainer(case: Case, setup: Setup) -> Row:
    """Train by Hugging Face's Trainer with `torch_compile=True`."""
    return _train(case, setup, compiled=True)


class _Ticking(TrainerCallback):  # type: ignore[misc]
    """Calls the clock at the end of every step."""

    def __init__(self, clock: StepClock) -> None:
        self._clock = clock

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._clock.tick()


class _Counting(Trainer):  # type: ignore[misc]
    """Counts the tokens of the timed steps on the device, so that counting does not wait for it."""

    def __init__(self, clock: StepClock, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._clock = clock
        self.tokens: torch.Tensor | int = 0
        self.padded_tokens = 0
        self.last_loss = torch.tensor(float("nan"))

    def training_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        if self._clock.is_timing:
            self.tokens = self.tokens + inputs["attention_mask"].sum()
            self.padded_tokens += inputs["input_ids"].numel()
        self.last_loss = super().training_step(model, inputs, *args, **kwargs)
        return self.last_loss


def _train(case: Case, setup: Setup, compiled: bool) -> Row:
    clock = setup.clock(case)
    rows = setup.rows(case)
    model = bert_masked_lm(case, "sdpa")
    run = _Counting(
        clock,
        model=model,
        args=_arguments(case, setup, clock.total, rows.batch_size, compiled),
        train_dataset=rows,
        data_collator=DataCollatorForLanguageModeling(setup.tokenizer(case), mlm_probability=MASKED_SHARE),
        callbacks=[_Ticking(clock)],
    )
    run.train()
    return {
        **clock.statistics(),
        "tokens": int(run.tokens),
        "padded_tokens": run.padded_tokens,
        "texts_per_batch": rows.batch_size,
        "parameters": parameters_of(model),
        "loss": round(run.last_loss.item(), 4),
    }


def _arguments(case: Case, setup: Setup, steps: int, batch_size: int, compiled: bool) -> TrainingArguments:
    return TrainingArguments(
        output_dir=str(setup.scratch / "trainer"),
        max_steps=steps,
        per_device_train_batch_size=batch_size,
        learning_rate=LEARNING_RATE,
        optim="adamw_torch_fused",
        bf16=case.precision == "bfloat16",
        use_cpu=case.device == "cpu",
        torch_compile=compiled,
        dataloader_num_workers=case.workers,
        dataloader_pin_memory=case.device == "cuda",
        dataloader_drop_last=True,
        remove_unused_columns=False,
        seed=SEED,
        eval_strategy="no",
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )


def reference(case: Case, setup: Setup) -> Row:
    """Train like the TLM authors and return times and counts."""
    device = torch.device(case.device)
    clock = setup.clock(case)
    model = bert_masked_lm(case, "eager").to(device).train()
    optimizer = torch.optim.AdamW(_groups(model), lr=LEARNING_RATE, eps=1e-6, fused=False)
    scaler = torch.amp.GradScaler(case.device)
    loader, batch_size = _batches(case, setup)
    tokens = padded = 0
    loss = float("nan")
    for batch in loader:
        if clock.is_timing:
            tokens += int(batch["attention_mask"].sum())  # on the host
            padded += batch["input_ids"].numel()
        loss = _step(model, optimizer, scaler, {name: part.to(device) for name, part in batch.items()})
        clock.tick()
    return {
        **clock.statistics(),
        "tokens": tokens,
        "padded_tokens": padded,
        "texts_per_batch": batch_size,
        "parameters": parameters_of(model),
        "loss": round(loss, 4),
    }


def _step(model: Any, optimizer: torch.optim.Optimizer, scaler: Any, batch: dict[str, torch.Tensor]) -> float:
    with torch.autocast(batch["input_ids"].device.type, dtype=torch.float16):
        loss = model(**batch).loss
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    return float(loss.item())


def _batches(case: Case, setup: Setup) -> tuple[DataLoader[Any], int]:
    rows = setup.rows(case)
    # No text has more than 128 tokens, so all are padded to 128.
    collator = DataCollatorForLanguageModeling(
        setup.tokenizer(case), mlm_probability=MASKED_SHARE, pad_to_multiple_of=LENGTH
    )
    loader = DataLoader(
        rows,
        batch_size=rows.batch_size,
        collate_fn=collator,
        num_workers=case.workers,
        pin_memory=case.device == "cuda",
        drop_last=True,
    )
    return loader, rows.batch_size


def _groups(model: Any) -> list[dict[str, Any]]:
    decay: list[torch.nn.Parameter] = []
    no_decay: list[torch.nn.Parameter] = []
    for name, parameter in model.named_parameters():
        (no_decay if name.endswith("bias") or "LayerNorm" in name else decay).append(parameter)
    return [{"params": decay, "weight_decay": 0.01}, {"params": no_decay, "weight_decay": 0.0}]


_SQUARE = 8192
_REPEATS = 11
_LAUNCHES = 10


def matmul(case: Case, setup: Setup) -> Row:
    """Return the TFLOP/s of a large square product and of the model's products, each a median on random data."""
    device = torch.device(case.device)
    rates = {
        f"{rows}x{inner}x{columns}": round(median(_rates(rows, inner, columns, device)), 1)
        for rows, inner, columns in shapes(case)
    }
    return {"tflops": rates, "best_tflops": max(rates.values())}


def shapes(case: Case) -> list[tuple[int, int, int]]:
    """Return the rows, inner size and columns of the products."""
    size, tokens = SIZES[case.size], case.rows * LENGTH
    return [
        (_SQUARE, _SQUARE, _SQUARE),
        (tokens, size.hidden, 3 * size.hidden),
        (tokens, size.hidden, size.hidden),
        (tokens, size.hidden, 2 * size.gated_width),
        (tokens, size.gated_width, size.hidden),
        (round(tokens * MASKED_SHARE), size.hidden, case.vocabulary),
    ]


def _rates(rows: int, inner: int, columns: int, device: torch.device) -> list[float]:
    """Return the TFLOP/s of each repetition; several launches in each keep the gaps between them small."""
    left = torch.randn(rows, inner, device=device, dtype=torch.bfloat16)
    right = torch.randn(inner, columns, device=device, dtype=torch.bfloat16)
    operations = 2.0 * rows * inner * columns * _LAUNCHES
    milliseconds = []
    for _ in range(_REPEATS + 1):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        for _ in range(_LAUNCHES):
            left @ right
        end.record()
        end.synchronize()
        milliseconds.append(start.elapsed_time(end))
    return [operations / elapsed / 1e9 for elapsed in milliseconds[1:]]  # the first is a warm-up
