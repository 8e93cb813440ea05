"""TLM's stage 1 as objectives: masked LM on the selection, and the task with masked LM on its text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from endtask.errors import InputError
from endtask.models.network import TASK, TLM_TASK, Network
from endtask.objectives.base import Objective
from endtask.objectives.masked_lm import MaskedLM
from endtask.objectives.masking import Masking, rare_token_weights
from endtask.objectives.stream import TextStream
from endtask.objectives.task import JointClassification
from endtask.seeds import derive
from endtask.settings import Settings
from endtask.task import Task
from endtask.text.packed import PackedTexts
from endtask.text.tokenizer import load_tokenizer
from endtask.text.word_starts import WordStarts
from endtask.train.tlm_rules import automatic_rho1, scale_of

EXTERNAL, INTERNAL = "external", "internal"
_FEWEST_TASK_BATCHES = 100  # of an automatic rho1; the paper's least is 150


def joint_objectives(task: Task, packed: Path, network: Network, settings: Settings) -> dict[str, Objective]:
    """TLM's external and internal objectives; only one of them where there is no text, or no turn, for the other."""
    masking, seed = masking_of(packed, settings), derive(settings.pretrain_seed, "pretrain", "data")
    external_texts = PackedTexts(packed / EXTERNAL)
    if settings.train.rho1 == "inf" and len(external_texts) == 0:
        raise InputError("inf leaves nothing to train on: there is no external text", key="train.rho1")
    objectives: dict[str, Objective] = {}
    if len(external_texts):
        stream = TextStream(
            EXTERNAL,
            external_texts,
            network,
            batch_size=settings.train.batch_size,
            seed=seed,
            masking=masking,
            order=_order(external_texts, settings.train.order),
        )
        objectives[EXTERNAL] = MaskedLM(EXTERNAL, stream)
    if settings.train.rho1 != "inf":
        objectives[INTERNAL] = _internal(task, packed, network, settings, masking, seed)
    return objectives


def _internal(
    task: Task, packed: Path, network: Network, settings: Settings, masking: Masking, seed: int
) -> JointClassification:
    train = settings.train
    stream = TextStream(
        INTERNAL,
        PackedTexts(packed / INTERNAL),
        network,
        batch_size=train.internal_batch_size or train.batch_size,
        seed=seed,
        masking=masking if train.mask_task else None,
    )
    return JointClassification(
        INTERNAL,
        stream,
        np.asarray(task.label_numbers("train")),
        rho2=train.rho2,
        normalize=train.normalize_internal_loss,
        head=stage_1_head(settings),
    )


def _order(texts: PackedTexts, order: str) -> NDArray[np.int64] | None:
    """The order in which external texts are read, if there is one; the pieces of a passage stay together."""
    if order == "shuffled":
        return None
    if texts.ranks is None:
        raise InputError(
            f"{order} needs ranks, which these packed texts lack", key="train.order", hint="redo with --from pack"
        )
    best_first = np.argsort(texts.ranks, kind="stable")
    return best_first if order == "best_first" else best_first[::-1]


def stage_1_head(settings: Settings) -> str:
    """The head through which stage 1 learns the task."""
    return TLM_TASK if settings.train.task_head == "tlm" else TASK


def rho1_of(examples: int, settings: Settings, steps: int | None) -> int:
    """External batches per internal one: as given, or by the task's size, with enough task batches in all steps."""
    if settings.train.rho1 != "auto":
        return int(settings.train.rho1)
    by_size = automatic_rho1(examples, scale_of(settings))
    return by_size if steps is None else max(1, min(by_size, steps // _FEWEST_TASK_BATCHES - 1))


def masking_of(packed: Path, settings: Settings) -> Masking:
    """How stage 1 hides tokens, and fine-tuning with masked LM beside the task."""
    tokenizer, train = load_tokenizer(packed / "tokenizer"), settings.train
    weights = None
    if train.mask_rare_exponent > 0:
        parts = [PackedTexts(packed / name) for name in (EXTERNAL, INTERNAL)]
        counts = sum((part.token_counts(len(tokenizer)) for part in parts), np.zeros(len(tokenizer), dtype=np.int64))
        weights = rare_token_weights(counts, train.mask_rare_exponent)
    return Masking(
        train.mask_probability,
        tokenizer.mask_token_id,
        len(tokenizer),
        tuple(tokenizer.all_special_ids),
        token_share=train.mask_token_share,
        random_share=train.mask_random_share,
        weights=weights,
        word_starts=WordStarts.of(tokenizer) if train.mask_words else None,
    )
