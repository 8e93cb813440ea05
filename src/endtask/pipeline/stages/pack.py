"""Tokenize and pack all texts that training reads."""

from __future__ import annotations

from endtask.config import Settings
from endtask.corpus import Corpus
from endtask.corpus.corpus import DrawnDocuments
from endtask.io.run_layout import DOMAIN, SELECTION
from endtask.io.stage_folder import StageFolder
from endtask.pipeline.stage import Counts, Finished, RunData, Stage

_SETTINGS = (
    "tokenizer",
    "model.path",
    "seed",
    "pretrain.max_length",
    "pretrain.task_max_length",
    "pretrain.truncate_passages",
    "finetune.max_length",
    "finetune.window_stride",
)
_ALIGNED_SETTINGS = ("aligned", "corpus.passage_characters", "retrieve.contamination_filter")


class Pack(Stage):
    """Writes the tokenizer and the packed tokens."""

    name = "pack"
    reads_files_of = "select"

    def settings_read(self, settings: Settings) -> tuple[str, ...]:
        """Return the section of the tokenizer, and all lengths."""
        return (*_SETTINGS, *(_ALIGNED_SETTINGS if settings.reads_aligned else ()))

    def inputs_read(self, settings: Settings) -> tuple[str, ...]:
        """Return the tokenizer to load, if any, and the texts of aligned objectives."""
        return ("tokenizer", "aligned") if settings.reads_aligned else ("tokenizer",)

    def inputs_opened(self, settings: Settings) -> tuple[str, ...]:
        """Return the texts of aligned objectives."""
        return ("aligned",) if settings.reads_aligned else ()

    def run(self, data: RunData, stage: StageFolder, finished: Finished) -> Counts:
        """Write the tokenizer and the packed tokens."""
        from endtask.tokenization.packing import pack, report_small_vocabulary

        domain = finished["select"] / DOMAIN if data.settings.reads_domain else None
        selection = finished["select"] / SELECTION
        counts = pack(data.task, selection, data.settings, stage.start(), domain=domain, aligned=_aligned(data))
        report_small_vocabulary(counts["vocabulary"], data.settings)
        return counts


def _aligned(data: RunData) -> DrawnDocuments | None:
    """Return the passages of aligned objectives; None if pre-training has no such objective."""
    settings = data.settings
    if not settings.reads_aligned:
        return None
    corpus = Corpus.aligned(settings.aligned, settings.corpus)
    return DrawnDocuments(corpus, is_contaminated=data.contamination_check())
