"""The reference way: BERT trained as the TLM authors' loop does it.

Eager attention, fp16 with a scaled loss, vocabulary logits at every position, every text padded to 128 tokens, AdamW
that is not fused, no clipping, and the loss read after every step. Where their code is slower than it need be without
saying so in the paper (no data workers, AdamW weight by weight), the faster way is taken.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import DataLoader
from transformers import DataCollatorForLanguageModeling

from benchmarks.training.bert import bert_masked_lm, parameters_of
from benchmarks.training.cases import LENGTH, Case, Row
from benchmarks.training.inputs import LEARNING_RATE, MASKED_SHARE, Bench


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
