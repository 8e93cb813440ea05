"""The plan of a run: what each stage takes on the user's machines, for the corpus as it is or at another size."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from endtask.config import Settings
from endtask.corpus import Corpus
from endtask.errors import InputError
from endtask.io.machine import available_memory, gpu_names, usable_cores
from endtask.pipeline.check import check
from endtask.pipeline.estimate import Estimate
from endtask.planning.calibration import calibrate
from endtask.planning.limits import advice
from endtask.planning.measured import Retrieval
from endtask.planning.prices import Prices
from endtask.planning.simulator import Machines, PassCost, simulate
from endtask.reporting.format import duration, size
from endtask.retrieval.queries import build_queries, papers_top_k
from endtask.task.task import read_all

_ON_ONE_MACHINE = ("select", "pack", "train")


@dataclass(frozen=True)
class Request:
    """What a plan is for: bytes of text and queries in place of the user's own, and the number of machines."""

    text_bytes: float | None = None
    queries: int | None = None
    machines: int = 1
    cores: int | None = None


@dataclass(frozen=True)
class Plan:
    """The stages with their costs and prices, and sentences about what limits them."""

    retrieval: Retrieval | None
    machines: Machines
    stages: tuple[PassCost, ...]
    money: tuple[float, ...]
    disk_money: float
    prices: Prices
    advice: tuple[str, ...]

    @property
    def seconds(self) -> float:
        """The seconds of all stages."""
        return sum(stage.seconds for stage in self.stages)

    @property
    def disk_bytes(self) -> float:
        """The disk that all stages need together."""
        return sum(stage.disk_bytes for stage in self.stages)

    @property
    def total_money(self) -> float:
        """The price of machines, network and disk."""
        return sum(self.money) + self.disk_money

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        stages = [{**asdict(stage), "money": money} for stage, money in zip(self.stages, self.money, strict=True)]
        return {
            "corpus": None if self.retrieval is None else asdict(self.retrieval),
            "machines": {"count": self.machines.count, "cores": self.machines.cores},
            "stages": stages,
            "total": {
                "seconds": self.seconds,
                "memory_bytes": max(stage.memory_bytes for stage in self.stages),
                "disk_bytes": self.disk_bytes,
                "transferred": sum(stage.transferred for stage in self.stages),
                "money": self.total_money,
            },
            "prices": self.prices.model_dump(mode="json"),
            "advice": list(self.advice),
        }

    def lines(self) -> Iterator[str]:
        """Yield the plan as a table."""
        if self.retrieval is not None:
            corpus = f"{size(self.retrieval.text_bytes)} of text, {self.retrieval.passages:,.0f} passages"
            yield f"corpus {corpus}; {self.retrieval.queries:,.0f} queries, K = {self.retrieval.top_k:,}"
        heads = " ".join(f"{name:>9}" for name in ("memory", "disk", "network", self.prices.currency))
        yield f"{'stage':10} {'time':>12} {'machines':>8} {heads}"
        for stage, money in zip(self.stages, self.money, strict=True):
            yield _row(stage, money)
        yield _row(self._total(), self.total_money)
        yield f"prices of {self.prices.date}: {self.prices.source}"
        yield from self.advice

    def _total(self) -> PassCost:
        largest = max(stage.memory_bytes for stage in self.stages)
        moved = sum(stage.transferred for stage in self.stages)
        machines = max(stage.machines for stage in self.stages)
        return PassCost("total", self.seconds, "", machines, largest, self.disk_bytes, moved)


def _row(stage: PassCost, money: float) -> str:
    sizes = " ".join(f"{size(value):>9}" for value in (stage.memory_bytes, stage.disk_bytes, stage.transferred))
    return f"{stage.name:10} {duration(stage.seconds):>12} {stage.machines:>8} {sizes} {money:>9,.2f}"


def plan(settings: Settings, request: Request, prices: Prices) -> Plan:
    """Measure this machine, and return the plan; machines are like this one, with `request.cores` cores each."""
    task = read_all(settings)
    corpus = Corpus.read(settings.corpus) if settings.corpus.sources else None
    searches = corpus is not None and settings.select.part_class.selects
    if not searches and (request.text_bytes or request.queries):
        raise InputError("the run retrieves nothing, so that it has no corpus to scale", key="--size")
    estimate = check(settings, text_bytes=request.text_bytes).estimate
    assert estimate is not None
    gpus = len(gpu_names())
    machines = Machines(request.machines, request.cores or usable_cores(), bytes_per_second=prices.bytes_per_second)
    retrieval, stages = None, []
    if corpus is not None and searches:
        queries = request.queries or len(build_queries(task.train, mode=settings.retrieve.query))
        top_k = papers_top_k(request.queries or len(task.train), settings.retrieve.top_k)
        rates, stored_share = calibrate(task, corpus, settings)
        text_bytes, passages = estimate.corpus_bytes, estimate.corpus_passages
        retrieval = Retrieval(text_bytes, passages, queries, top_k, stored_share * text_bytes)
        stages += simulate(retrieval, rates, machines)
    stages += _after_retrieval(estimate)
    money = [prices.cost(stage, machines.cores, gpus if stage.name in ("select", "train") else 0) for stage in stages]
    total = sum(stage.seconds for stage in stages)
    disk = prices.disk(sum(stage.disk_bytes for stage in stages), total)
    sentences = advice(retrieval, stages, machines, available_memory()) if retrieval else ()
    return Plan(retrieval, machines, tuple(stages), tuple(money), disk, prices, tuple(sentences))


def _after_retrieval(estimate: Estimate) -> Iterator[PassCost]:
    """Yield the stages on one machine; disk is that of the run's folder."""
    for name in _ON_ONE_MACHINE:
        seconds = estimate.seconds.get(name, 0.0)
        is_training = name == "train"
        if seconds or is_training:
            memory = estimate.training_memory_bytes if is_training else 0.0
            disk = estimate.weights_bytes if is_training else estimate.packed_bytes if name == "pack" else 0.0
            yield PassCost(name, seconds if math.isfinite(seconds) else 0.0, memory_bytes=memory, disk_bytes=disk)
