"""The check that keeps dev and test texts out of what is trained on."""

from __future__ import annotations

from collections.abc import Callable

from endtask.pipeline.stage import RunData


def contamination_check(data: RunData) -> Callable[[str], bool] | None:
    """Return the function that tells which texts contain a dev or test text; None where the filter is off."""
    if not data.settings.retrieve.contamination_filter:
        return None
    from endtask.retrieval.contamination import ContaminationFilter
    from endtask.retrieval.retrieve import evaluation_texts

    return ContaminationFilter.of(evaluation_texts(data.task)).confirm
