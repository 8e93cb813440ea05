"""The table of a comparison for the terminal, and what it says in a few sentences."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from endtask.compare.outcome import CLEAR, Figures, Lead, Outcome, Row
from endtask.compare.scored import Judged
from endtask.reporting import format as shown

_WIDTH_OF_A_FILE = 200
_NOTHING = ""
_MOST_NAMED = 12
_CLEARLY = ("Clearly better", "Clearly worse")
_ON_THESE_ROWS = tuple(f"{word} on these rows (one seed: another may differ)" for word in ("Better", "Worse"))
_UNCLEAR = "No clear difference"
_VERDICTS = (*_CLEARLY, *_ON_THESE_ROWS, _UNCLEAR)


def verdict(outcome: Outcome) -> str:
    """How the cell that all are tested against did, and which others are better or worse, clearly or on these rows."""
    judged, row = outcome.judged, outcome.row(outcome.against)
    if row.score is None:
        return f"{row.name} has no score yet."
    where = f"{judged.split} ({rows_in_words(judged)}, {shown.plural(row.runs, 'model')})"
    sentence = f"{row.name}: {shown.metric_name(judged.metric)} {score_in_words(row, row.score)} on {where}."
    groups: dict[str, list[str]] = {words: [] for words in _VERDICTS}
    for other in outcome.rows:
        if other.score is not None and (lead := other.score.lead) is not None:
            words = _difference(lead, one_seed=outcome.is_of_one_seed(other.name))
            groups[words].append(_named(other.name, lead))
    return " ".join([sentence, *(f"{words}: {', '.join(names)}." for words, names in groups.items() if names)])


def _difference(lead: Lead, *, one_seed: bool) -> str:
    """Which of the verdicts it is; of one seed neither test nor interval knows what another would have come to.

    >>> _difference(Lead(0.02, 0.01, 0.03, 0.001, 0.004), one_seed=False)
    'Clearly better'
    """
    if not lead.is_clear:
        return _UNCLEAR
    words = _ON_THESE_ROWS if one_seed else _CLEARLY
    return words[0] if lead.mean > 0 else words[1]


def rows_in_words(judged: Judged) -> str:
    """How many rows decide, and how many groups they form where some belong together."""
    rows = shown.plural(len(judged.ids), "row")
    return rows if judged.group_count == len(judged.ids) else f"{rows} in {shown.plural(judged.group_count, 'group')}"


def notes(outcome: Outcome) -> list[str]:
    """What a reader of the table has to know to judge it."""
    judged, found = outcome.judged, []
    if judged.split == "test":
        found.append("Choices belong on dev: whoever picks the best test score of many reads chance into it.")
    else:
        found.append("Scores are those of dev, which also chose the epoch, so they are somewhat too high.")
    found.append(f"± is the spread over all models of a cell{_seeds_in_words(outcome)}.")
    return found + leak_notes(outcome) + tokenizer_notes(outcome) + missing_notes(outcome)


def tokenizer_notes(outcome: Outcome) -> list[str]:
    """Which cells read by another vocabulary, learned from other texts than that of the cell tested against."""
    own = outcome.row(outcome.against).tokenizer
    others = [row.name for row in outcome.rows if own is not None and row.tokenizer not in (None, own)]
    if not others:
        return []
    return [
        f"Read by another tokenizer than {outcome.against}, learned from other texts: {', '.join(others)}; "
        "tokenizer.path gives all cells the same."
    ]


def missing_notes(outcome: Outcome) -> list[str]:
    """What is not finished and therefore not counted, and which differences are for that reason between other seeds."""
    if not outcome.missing:
        return []
    more = len(outcome.missing) - _MOST_NAMED
    names = ", ".join(outcome.missing[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
    found, uneven = [f"Not finished and not counted: {names}."], _with_other_seeds(outcome)
    if outcome.is_tested and uneven:
        found.append(
            f"Other seeds are finished than of {outcome.against}: {', '.join(uneven)}. All finished ones count; the "
            "intervals of these differences draw the seeds of either side on their own."
        )
    return found


def _with_other_seeds(outcome: Outcome) -> list[str]:
    """The trained cells whose seeds are not those of the cell tested against, where runs of either are missing."""
    unfinished = {key.partition("/")[0] for key in outcome.missing}
    seeds = {name: {run.seed for run in runs} for name, runs in outcome.runs.items() if runs}
    against = seeds.pop(outcome.against, None)
    trained = {name: found for name, found in seeds.items() if None not in found}
    return [
        name
        for name, found in trained.items()
        if against is not None and found != against and unfinished & {name, outcome.against}
    ]


def leak_notes(outcome: Outcome) -> list[str]:
    """How many of the rows that decide also stand in train, where some do."""
    judged = outcome.judged
    rows, clean = len(judged.ids), int(judged.clean.sum())
    if not clean:
        return [f"All {rows:,} rows of {judged.split} also stand in train: the scores say nothing about new texts."]
    if clean == rows:
        return []
    leaked = f"{rows - clean:,} of the {rows:,} rows of {judged.split}"
    return [f"{leaked} also stand in train; the leak-free score is that of the others."]


def _seeds_in_words(outcome: Outcome) -> str:
    """How often the cells that were trained were pre-trained."""
    counts = {sum(run.seed is not None for run in runs) for runs in outcome.runs.values()} - {0}
    if not counts:
        return ""
    fewest, most = min(counts), max(counts)
    if most == 1:
        return "; each cell was pre-trained once, so the luck of that is not in it"
    if fewest == most:
        return f"; each cell was pre-trained {most} times"
    luck = ", and where it was once, the luck of that is not in it" if fewest == 1 else ""
    return f"; cells were pre-trained {fewest} to {most} times{luck}"


def score_in_words(row: Row, statistics: Figures | None) -> str:
    """A mean with its spread over the row's models."""
    if statistics is None:
        return ("failed" if row.failures else "not yet") if row.score is None else _NOTHING
    return shown.score_with_spread(statistics.mean, statistics.std, row.runs)


def interval_in_words(ends: Figures | Lead | None) -> str:
    """The ends of an interval in points.

    >>> interval_in_words(Figures(0.5, 0.0, 0.481, 0.52))
    '48.1 to 52.0'
    """
    if ends is None or ends.low is None or ends.high is None:
        return _NOTHING
    sign = "+" if isinstance(ends, Lead) else ""
    return f"{100 * ends.low:{sign}.1f} to {100 * ends.high:{sign}.1f}"


def lead_in_words(statistics: Figures | None) -> str:
    """A difference in points with its sign."""
    return f"{100 * statistics.lead.mean:+.1f}" if statistics is not None and statistics.lead is not None else _NOTHING


def p_in_words(p_value: float) -> str:
    """A p-value; 10,000 permutations tell no more than four places.

    >>> p_in_words(0.00009999), p_in_words(0.0312)
    ('0.0001', '0.0312')
    """
    return f"{p_value:.4f}"


def print_table(outcome: Outcome) -> None:
    """Print scores, costs and what baselines are on standard output, the cell that all are tested against in bold."""
    console = Console(file=sys.stdout, highlight=False)
    if not console.is_terminal:
        console = Console(file=sys.stdout, highlight=False, width=_WIDTH_OF_A_FILE)
    for columns, cells in ((score_columns(outcome), score_cells), (cost_columns(), cost_cells)):
        table = Table(box=box.SIMPLE_HEAD)
        for place, name in enumerate(columns):
            table.add_column(name, justify="left" if place == 0 else "right")
        for row in outcome.rows:
            table.add_row(*cells(outcome, row), style="bold" if row.name == outcome.against else "")
        console.print(table)
    for row in outcome.rows:
        if row.note:
            console.print(f"{row.name}: {row.note}", markup=False, soft_wrap=True)
    if not outcome.judged.clean.any():
        console.print(*leak_notes(outcome), soft_wrap=True)
    for note in (*tokenizer_notes(outcome), *missing_notes(outcome)):
        console.print(note, markup=False, soft_wrap=True)


def score_columns(outcome: Outcome) -> list[str]:
    """The heads of the table of scores."""
    judged, metric = outcome.judged, shown.metric_name(outcome.judged.metric)
    leak_free = ["leak-free", "its p (Holm)"] if judged.has_leaks else []
    dev = ["dev"] if judged.split != "dev" else []
    against = [f"against {outcome.against}", "95%", "p", "p (Holm)"]
    return ["cell", "models", f"{metric} on {judged.split}", "95%", *dev, *against, *leak_free]


def score_cells(outcome: Outcome, row: Row) -> list[str]:
    """A row of the table of scores."""
    judged, score = outcome.judged, row.score
    lead = score.lead if score is not None else None
    cells = [row.name, str(row.runs or _NOTHING), score_in_words(row, score), interval_in_words(score)]
    if judged.split != "dev":
        cells.append(score_in_words(row, row.dev) if row.dev else _NOTHING)
    cells += [lead_in_words(score), interval_in_words(lead), *_p_values(lead)]
    if judged.has_leaks:
        leak_free = row.leak_free.lead if row.leak_free is not None else None
        cells += [score_in_words(row, row.leak_free) if row.leak_free else _NOTHING, _p_values(leak_free)[1]]
    return cells


def cost_columns() -> list[str]:
    """The heads of the table of costs."""
    return ["cell", "parameters", "FLOPs", "FLOPs (6ND)", "training", "all stages", "corpus text"]


def cost_cells(outcome: Outcome, row: Row) -> list[str]:
    """A row of the table of costs: one run alone, as if nothing had been shared."""
    cost = row.cost
    if cost is None:
        return [row.name, *[_NOTHING] * (len(cost_columns()) - 1)]
    trained = cost.parameters is not None
    return [
        row.name,
        shown.count(cost.parameters) if cost.parameters is not None else _NOTHING,
        shown.flops(cost.matmul_flops) if trained else _NOTHING,
        shown.flops(cost.flops) if trained else _NOTHING,
        shown.duration(cost.train_seconds),
        shown.duration(cost.seconds),
        shown.size(cost.text_bytes) if cost.text_bytes else "none",
    ]


def _p_values(lead: Lead | None) -> Sequence[str]:
    return (p_in_words(lead.p_value), p_in_words(lead.p_holm)) if lead is not None else (_NOTHING, _NOTHING)


def _named(name: str, lead: Lead) -> str:
    words = f"{100 * lead.mean:+.1f} points, Holm's p = {p_in_words(lead.p_holm)}"
    undecided = lead.p_holm < CLEAR and not lead.is_clear
    return f"{name} ({words}{f', but {interval_in_words(lead)} over other seeds' if undecided else ''})"
