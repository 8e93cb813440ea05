"""What re-selection costs beside training: planned before the first step, counted at each round."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from endtask.models.flops import training_flops
from endtask.models.network import Network
from endtask.settings import Settings
from endtask.settings.reselect import ReselectSettings
from endtask.text.packed import PackedTexts
from endtask.train.phase_run import Memory
from endtask.train.plan import StepCost

PART = "re-selection"


def reading_share(network: Network) -> float:
    """What scoring costs of training on as much: a pass forward, and one backward through the last layer."""
    return (1 + 2 / int(network.config.num_hidden_layers)) / 3


@dataclass(frozen=True)
class Texts:
    """How many there are, and the tokens of one."""

    count: float
    tokens: float


def with_reselection(cost: StepCost, network: Network, read: float, parameters: int, settings: Settings) -> StepCost:
    """The cost of a step with its part of a round, in which so many tokens are read."""
    every = settings.train.reselect.every
    if every is None:
        return cost
    tokens = read / every
    trained = reading_share(network) * tokens
    seconds = None if cost.seconds is None else cost.seconds * (1 + trained / cost.tokens)
    flops = cost.flops + training_flops(parameters, trained)
    return replace(cost, tokens=cost.tokens + tokens, flops=flops, seconds=seconds)


def count_round(memory: Memory, tokens: int, matmul_flops: float, seconds: float) -> None:
    """Remember what a round took; the totals of the stage get it at the end."""
    usual = {"steps": 0, "tokens": 0, "matmul_flops": 0.0, "seconds": 0.0}
    counts = memory.setdefault("objectives", {}).setdefault(PART, usual)
    for name, value in (("steps", 1), ("tokens", tokens), ("matmul_flops", matmul_flops), ("seconds", seconds)):
        counts[name] += value


def count_reselection(memory: Memory, network: Network) -> float:
    """Add all rounds to the counts of the stage; returns the tokens of training that would have cost as much."""
    counts = memory.get("objectives", {}).get(PART)
    if counts is None:
        return 0.0
    memory["tokens"] += counts["tokens"]
    memory["padded_tokens"] += counts["tokens"]
    memory["matmul_flops"] += counts["matmul_flops"]
    return float(reading_share(network) * counts["tokens"])


def packed_round(packed: Path, asked: ReselectSettings) -> float:
    """Tokens that a round reads of what is packed, from texts of mean length."""
    if asked.every is None or not len(candidates := PackedTexts(packed / "external")):
        return 0.0
    judging = PackedTexts(packed / ("dev" if asked.targets == "dev" else "internal"))
    return read_in_a_round(asked, *(Texts(len(one), float(one.lengths.mean())) for one in (candidates, judging)))


def read_in_a_round(asked: ReselectSettings, candidates: Texts, judging: Texts) -> float:
    """Tokens of the candidates that are drawn, once for each mask, and of the rows that judge them.

    >>> read_in_a_round(ReselectSettings(reservoir=100, folds=5), Texts(1000, tokens=30.0), Texts(50, tokens=10.0))
    6100.0
    """
    reservoir = candidates.count if asked.reservoir is None else min(asked.reservoir, candidates.count)
    rows = judging.count if asked.targets == "dev" else judging.count / asked.folds
    return asked.masks * reservoir * candidates.tokens + min(rows, asked.most_targets) * judging.tokens
