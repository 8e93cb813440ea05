"""Retrieve passages: every train text is a BM25 query against the corpus."""

from __future__ import annotations

from endtask.config import Settings
from endtask.executors.choice import executor_of, scratch_folder
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
        executor, scratch = executor_of(settings), scratch_folder(settings, stage.final.parent / SCRATCH)
        executor.check_folder(scratch)
        paths = RetrievePaths(stage.start(), scratch, executor)
        # The settings may name a corpus only for the domain's text.
        corpus = data.corpus if needs_corpus(settings.select) else None
        return retrieve(data.task, corpus, settings.retrieve, paths)
