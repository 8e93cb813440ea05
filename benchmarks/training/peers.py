"""What ours is measured against: Hugging Face's Trainer, the TLM authors' loop, and matrix products alone."""

from __future__ import annotations

from statistics import median
from typing import Any, Literal

import torch
from torch.utils.data import DataLoader
from transformers import DataCollatorForLanguageModeling, Trainer, TrainerCallback, TrainingArguments

from benchmarks.training.cases import LENGTH, SIZES, Case, Row
from benchmarks.training.inputs import LEARNING_RATE, MASKED_SHARE, SEED, Bench, StepClock


def bert_masked_lm(case: Case, attention: Literal["sdpa", "eager"]) -> Any:
    """The model of a case, with BERT's own settings but for its size."""
    from transformers import BertConfig, BertForMaskedLM, set_seed

    size = SIZES[case.size]
    set_seed(0)
    config = BertConfig(
        vocab_size=case.vocabulary,
        hidden_size=size.hidden,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        intermediate_size=4 * size.hidden,
        attn_implementation=attention,
    )
    model = BertForMaskedLM(config)
    if model.config._attn_implementation != attention:
        raise RuntimeError(f"asked for {attention} attention, got {model.config._attn_implementation}")
    return model


def parameters_of(model: Any) -> int:
    """Weights, shared ones once."""
    return sum(parameter.numel() for parameter in model.parameters())


def trainer(case: Case, bench: Bench) -> Row:
    """Uncompiled, as it comes."""
    return _train(case, bench, compiled=False)


def compiled_trainer(case: Case, bench: Bench) -> Row:
    """With `torch_compile=True`."""
    return _train(case, bench, compiled=True)


class _Ticking(TrainerCallback):  # type: ignore[misc]
    """Tells the clock of every step."""

    def __init__(self, clock: StepClock) -> None:
        self._clock = clock

    def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        self._clock.tick()


class _Counting(Trainer):  # type: ignore[misc]
    """Counts the tokens of the timed steps on the device, where counting holds nothing up."""

    def __init__(self, clock: StepClock, **rest: Any) -> None:
        super().__init__(**rest)
        self._clock = clock
        self.tokens: torch.Tensor | int = 0
        self.padded_tokens = 0
        self.last_loss = torch.tensor(float("nan"))

    def training_step(self, model: Any, inputs: Any, *rest: Any, **named: Any) -> torch.Tensor:
        if self._clock.is_timing:
            self.tokens = self.tokens + inputs["attention_mask"].sum()
            self.padded_tokens += inputs["input_ids"].numel()
        self.last_loss = super().training_step(model, inputs, *rest, **named)
        return self.last_loss


def _train(case: Case, bench: Bench, compiled: bool) -> Row:
    clock = bench.clock(case)
    rows = bench.rows(case)
    model = bert_masked_lm(case, "sdpa")
    run = _Counting(
        clock,
        model=model,
        args=_arguments(case, bench, clock.total, rows.batch_size, compiled),
        train_dataset=rows,
        data_collator=DataCollatorForLanguageModeling(bench.tokenizer(case), mlm_probability=MASKED_SHARE),
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


def _arguments(case: Case, bench: Bench, steps: int, batch_size: int, compiled: bool) -> TrainingArguments:
    return TrainingArguments(
        output_dir=str(bench.scratch / "trainer"),
        max_steps=steps,
        per_device_train_batch_size=batch_size,
        learning_rate=LEARNING_RATE,
        optim="adamw_torch_fused",
        bf16=case.device == "cuda",
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


def reference(case: Case, bench: Bench) -> Row:
    """Train and count."""
    device = torch.device(case.device)
    clock = bench.clock(case)
    model = bert_masked_lm(case, "eager").to(device).train()
    optimizer = torch.optim.AdamW(_groups(model), lr=LEARNING_RATE, eps=1e-6, fused=False)
    scaler = torch.amp.GradScaler(case.device)
    loader, batch_size = _batches(case, bench)
    tokens = padded = 0
    loss = float("nan")
    for batch in loader:
        if clock.is_timing:
            tokens += int(batch["attention_mask"].sum())  # on the host, before it travels
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


def _batches(case: Case, bench: Bench) -> tuple[DataLoader[Any], int]:
    rows = bench.rows(case)
    # No text is longer than 128, so that the next multiple of 128 is 128 for all.
    collator = DataCollatorForLanguageModeling(
        bench.tokenizer(case), mlm_probability=MASKED_SHARE, pad_to_multiple_of=LENGTH
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
    plain = [name for name, _ in model.named_parameters() if name.endswith("bias") or "LayerNorm" in name]
    return [
        {"params": [part for name, part in model.named_parameters() if name not in plain], "weight_decay": 0.01},
        {"params": [part for name, part in model.named_parameters() if name in plain], "weight_decay": 0.0},
    ]


_SQUARE = 8192
_REPEATS = 11
_LAUNCHES = 10


def matmul(case: Case, bench: Bench) -> Row:
    """TFLOP/s of a large square product and of the products in our model, each the median of several on random data."""
    device = torch.device(case.device)
    rates = {
        f"{rows}x{inner}x{columns}": round(median(_rates(rows, inner, columns, device)), 1)
        for rows, inner, columns in shapes(case)
    }
    return {"tflops": rates, "best_tflops": max(rates.values())}


def shapes(case: Case) -> list[tuple[int, int, int]]:
    """Rows, inner size and columns of the products to try."""
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
    """TFLOP/s of each repetition; several launches in one keep the gaps between them small."""
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
    return [operations / taken / 1e9 for taken in milliseconds[1:]]  # the first warms up
