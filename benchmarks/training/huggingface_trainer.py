"""The usual way: Hugging Face's Trainer on BERT, as its documentation sets it up for speed.

bf16 on a GPU, SDPA, fused AdamW, the library's collator padding to the longest text of a batch, worker processes.
Everything else is left at its default. Nothing is logged, saved or scored.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import DataCollatorForLanguageModeling, Trainer, TrainerCallback, TrainingArguments

from benchmarks.training.bert import bert_masked_lm, parameters_of
from benchmarks.training.cases import Case, Row
from benchmarks.training.clock import StepClock
from benchmarks.training.inputs import LEARNING_RATE, MASKED_SHARE, SEED, Bench


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
