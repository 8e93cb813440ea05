"""Retrieve passages: every train text is a BM25 query against the corpus."""

from __future__ import annotations

from endtask.config import Settings
from endtask.io.machine import usable_cores
from endtask.io.run_layout import SCRATCH
from endtask.io.stage_folder import StageFolder
from endtask.pipeline.inputs import needs_corpus
from endtask.pipeline.stage import Counts, Finished, RunData, Stage


class Retrieve(Stage):
    """Writes the passages that the task's texts retrieve."""

    name = "retrieve"

    def settings_read(self, settings: Settings) -> tuple[str, ...]:
        """Return the sections of the corpus and of retrieval."""
        return ("corpus", "retrieve")

    def inputs_read(self, settings: Settings) -> tuple[str, ...]:
        """Return the corpus."""
        return ("corpus",)

    def inputs_opened(self, settings: Settings) -> tuple[str, ...]:
        """Return the corpus."""
        return self.inputs_read(settings)

    def run(self, data: RunData, stage: StageFolder, finished: Finished) -> Counts:
        """Search the corpus."""
        from endtask.retrieval.retrieve import RetrievePaths, retrieve

        settings = data.settings
        workers = settings.threads or usable_cores()
        paths = RetrievePaths(stage.start(), stage.final.parent / SCRATCH, workers)
        # The settings may name a corpus only for the domain's text.
        corpus = data.corpus if needs_corpus(settings.select) else None
        return retrieve(data.task, corpus, settings.retrieve, paths)
