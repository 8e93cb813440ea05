"""The cost of each stage and a summary of its counts, from the manifests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from endtask.io.run_layout import TASKS
from endtask.reporting import format as shown
from endtask.reporting.run_folder import RunFolder

Counts = dict[str, Any]


@dataclass(frozen=True)
class StageCost:
    """The cost of a finished stage: `bytes` of text read or selected; tokens and FLOPs of training.

    `flops` are 6 x parameters x tokens as in the papers; `matmul_flops` is the sum over all matrix products. `joules`
    are those of the machine, or None if they cannot be measured; `gpu_bytes` is the peak GPU memory.
    """

    stage: str
    what: str
    seconds: float
    tokens: int | None
    padded_tokens: int | None
    flops: float | None
    matmul_flops: float | None
    joules: float | None
    gpu_bytes: int | None
    bytes: int | None


def stage_costs(run: RunFolder) -> list[StageCost]:
    """Return the costs of the finished stages in order."""
    return [_cost(stage, manifest) for stage, manifest in run.manifests.items()]


def total_cost(costs: list[StageCost]) -> dict[str, float]:
    """Return the sums over the stages and the peak GPU memory, without bytes, because stages read the same text."""
    return {
        "seconds": round(sum(cost.seconds for cost in costs), 3),
        "tokens": sum(cost.tokens or 0 for cost in costs),
        "padded_tokens": sum(cost.padded_tokens or 0 for cost in costs),
        "flops": sum(cost.flops or 0.0 for cost in costs),
        "matmul_flops": sum(cost.matmul_flops or 0.0 for cost in costs),
        "joules": round(sum(cost.joules or 0.0 for cost in costs), 1),
        "gpu_bytes": max((cost.gpu_bytes or 0 for cost in costs), default=0),
    }


def corpus_text(counts: Counts) -> int:
    """Return the bytes of corpus text that training reads, from the counts of `select`: the selection and the domain.

    >>> corpus_text({"bytes": 0, "domain": {"bytes": 7}})
    7
    """
    return int(counts["bytes"]) + int(counts.get("domain", {}).get("bytes", 0))


def less_of_domain(drawn: Counts) -> str:
    """Return why the domain has fewer passages than requested; empty if it has not.

    >>> less_of_domain({"passages": 8, "less_than_requested": "10x of train would be 3,000"})
    ', all there are; 10x of train would be 3,000'
    """
    return f", all there are; {drawn['less_than_requested']}" if "less_than_requested" in drawn else ""


def better_weights(counts: Counts) -> str:
    """Return whether `finetune.keep_better` chose the weights before or after fine-tuning; empty if it was off.

    >>> better_weights({"from_pretraining": 1, "seeds": [{}, {}, {}]})
    'fine-tuning did not help on dev: the model has the weights before it (1 of 3 seeds)'
    >>> better_weights({"from_pretraining": 0, "seeds": [{}, {}]})
    'fine-tuning helped on dev: the model has the weights after it (2 of 2 seeds)'
    """
    if "from_pretraining" not in counts:
        return ""
    before, seeds = counts["from_pretraining"], len(counts["seeds"])
    if before:
        return f"fine-tuning did not help on dev: the model has the weights before it ({before:,} of {seeds:,} seeds)"
    return f"fine-tuning helped on dev: the model has the weights after it ({seeds:,} of {seeds:,} seeds)"


def stage_summary(stage: str, counts: Counts) -> str:
    """Return the counts of a stage in a few words."""
    return _SUMMARIES[stage](counts)


def _cost(stage: str, manifest: dict[str, Any]) -> StageCost:
    counts = manifest["counts"]
    trained = stage in ("pretrain", "finetune")
    texts: dict[str, Callable[[], int]] = {
        "retrieve": lambda: int(counts["corpus"]["bytes"]),
        "select": lambda: corpus_text(counts),
    }
    return StageCost(
        stage,
        stage_summary(stage, counts),
        float(manifest["seconds"]),
        tokens=int(counts["tokens"]) if trained else None,
        padded_tokens=counts.get("padded_tokens"),
        flops=float(counts["flops"]) if trained else _selection_flops(counts),
        matmul_flops=counts.get("matmul_flops"),
        joules=sum(manifest["joules"].values()) if manifest.get("joules") else None,
        gpu_bytes=manifest.get("gpu_bytes"),
        bytes=texts[stage]() if stage in texts else None,
    )


def _selection_flops(counts: Counts) -> float | None:
    """Return the FLOPs of the scoring model of an influence selection."""
    influence = counts.get("influence")
    return None if influence is None else float(influence["fitting_flops"] + influence["scoring_flops"])


def _read(counts: Counts) -> str:
    tasks = {"": counts, **{f"{name}: ": splits for name, splits in counts.get(TASKS, {}).items()}}
    return "; ".join(
        prefix + ", ".join(f"{rows:,} {split}" for split, rows in splits.items() if split != TASKS) + " rows"
        for prefix, splits in tasks.items()
    )


def _retrieved(counts: Counts) -> str:
    if "queries" not in counts:
        return "nothing to retrieve"
    queries = f"{counts['queries']:,} {'query' if counts['queries'] == 1 else 'queries'}"
    passages = f"{counts['passages']:,} of {shown.plural(counts['corpus']['passages'], 'passage')}"
    dropped = f"{counts['dropped_by_contamination_filter']:,} dropped by the contamination filter"
    return f"{queries}, best {counts['top_k']:,} each: {passages}; {dropped}"


def _selected(counts: Counts) -> str:
    drawn = counts.get("domain")
    domain = f"{shown.plural(drawn['passages'], 'passage')} of the domain{less_of_domain(drawn)}" if drawn else ""
    if not counts["passages"]:
        return domain or "no text selected"
    selected = f"{shown.plural(counts['passages'], 'passage')} selected"
    # A run with an imported selection may have no corpus.
    share = f"{shown.share(counts['share_of_corpus'])} of the bytes" if counts["share_of_corpus"] else ""
    return ", ".join(part for part in (selected, share, domain) if part)


def _packed(counts: Counts) -> str:
    tasks = [{name: part for name, part in counts.items() if name != TASKS}, *counts.get(TASKS, {}).values()]
    tokens = sum(part["tokens"] for task in tasks for part in task.values() if isinstance(part, dict))
    return f"{shown.count(tokens)} tokens written, vocabulary of {counts['vocabulary']:,}"


def _pretrained(counts: Counts) -> str:
    """Return steps, size and device, and whether the dev score stopped training early.

    >>> _pretrained({"steps": 10, "planned_steps": 80, "best_step": 5, "parameters": 1000, "device": "cpu"})
    'stopped after 10 steps of 80 (no better dev score since step 5), 1,000 parameters, on cpu'
    """
    if not counts["steps"]:
        return f"no pre-training, {shown.count(counts['parameters'])} parameters"
    steps, planned = shown.plural(counts["steps"], "step"), counts.get("planned_steps", counts["steps"])
    if counts["steps"] < planned:
        steps = f"stopped after {steps} of {planned:,} (no better dev score since step {counts['best_step']:,})"
    passes = counts.get("selection_passes")
    read = f", the selection read {passes:.1f} times" if passes is not None else ""
    return f"{steps}{read}, {shown.count(counts['parameters'])} parameters, on {counts['device']}"


def _finetuned(counts: Counts) -> str:
    if not counts["steps_per_seed"]:
        return "no fine-tuning"
    runs = f"{shown.plural(len(counts['seeds']), 'seed')} of {shown.plural(counts['steps_per_seed'], 'step')}"
    rates = counts.get("rates", [])
    best = f"{runs}, best of {len(rates)} learning rates" if len(rates) > 1 else runs
    return "; ".join(part for part in (best, better_weights(counts)) if part)


def _saved(counts: Counts) -> str:
    return str(counts.get("fallback") or f"seed {counts['seed']}")


_SUMMARIES: dict[str, Callable[[Counts], str]] = {
    "read": _read,
    "retrieve": _retrieved,
    "select": _selected,
    "pack": _packed,
    "pretrain": _pretrained,
    "finetune": _finetuned,
    "evaluate": lambda counts: f"{shown.plural(counts['rows'], 'row')} of {counts['split']} scored for every seed",
    "model": lambda counts: f"{_saved(counts)}, the best on dev, saved",
}
