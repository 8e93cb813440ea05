"""Write the values of benchmarks/results into the pages that show them, so that no number is copied by hand.

A page marks the place with `<!-- results: NAME -->` and `<!-- end -->`; the text between them is written here.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.demo import demo_picture, demo_table  # noqa: E402
from benchmarks.few_labels.page import few_labels_table  # noqa: E402
from benchmarks.few_shot import few_shot_table  # noqa: E402
from benchmarks.friendly.page import friendly_table  # noqa: E402
from benchmarks.results_file import RESULTS, Results, read_results  # noqa: E402
from benchmarks.retrieval.page import retrieval_picture, retrieval_table  # noqa: E402
from benchmarks.robustness.page import robustness_table  # noqa: E402
from benchmarks.scale.page import limits_table, scale_table, simulated_table  # noqa: E402
from benchmarks.selection.page import selection_table  # noqa: E402
from benchmarks.serve.page import serve_section  # noqa: E402
from benchmarks.training.page import replay_table, training_picture, training_table  # noqa: E402
from benchmarks.weighting.page import weighting_table  # noqa: E402
from examples.digits.results import digits_table  # noqa: E402
from studies.pages.alignment import alignment_summary, alignment_tables  # noqa: E402
from studies.pages.attention import attention_table  # noqa: E402
from studies.pages.claims import claims_table  # noqa: E402
from studies.pages.endtask_mini import endtask_mini_facts, tasks_finetune_summary, tasks_finetune_table  # noqa: E402
from studies.pages.influence import influence_tables  # noqa: E402
from studies.pages.laptop import laptop_section  # noqa: E402
from studies.pages.meta_gap import meta_gap_section  # noqa: E402
from studies.pages.mix import mix_tables  # noqa: E402
from studies.pages.probe import probe_section  # noqa: E402
from studies.pages.question import QUESTIONS, question_section  # noqa: E402
from studies.pages.recipe import optimizers_table, recipe_summary, recipe_tables, screens_tables  # noqa: E402
from studies.pages.tartan import tartan_picture, tartan_tables  # noqa: E402
from studies.pages.twelve_tasks import tasks_picture, twelve_tasks_section  # noqa: E402

SECTIONS: dict[str, tuple[str, Callable[[Results], str]]] = {
    "demo": ("demo", demo_table),
    "retrieval": ("retrieval", retrieval_table),
    "training": ("training", training_table),
    "replay": ("replay", replay_table),
    "robustness": ("robustness", robustness_table),
    "selection": ("selection", selection_table),
    "serve": ("serve", serve_section),
    "weighting": ("weighting", weighting_table),
    "scale": ("scale", scale_table),
    "scale_simulated": ("scale", simulated_table),
    "scale_limits": ("scale", limits_table),
    "few_labels": ("few_labels", few_labels_table),
    "few_examples": ("few_examples", few_shot_table),
    "friendly": ("friendly", friendly_table),
    "digits": ("digits", digits_table),
    "endtask_mini": ("endtask_mini", endtask_mini_facts),
    "influence": ("influence", influence_tables),
    "tartan": ("tartan", tartan_tables),
    "mix": ("mix", mix_tables),
    "recipe": ("recipe", recipe_tables),
    "recipe_summary": ("recipe", recipe_summary),
    "recipe_screens": ("recipe_screens", screens_tables),
    "optimizers": ("optimizers", optimizers_table),
    "probe": ("probe", probe_section),
    "meta_gap": ("meta_gap", meta_gap_section),
    "claims": ("claims", claims_table),
    "attention": ("attention", attention_table),
    "alignment": ("alignment", alignment_tables),
    "alignment_summary": ("alignment", alignment_summary),
    **{name: (name, question_section(name)) for name in QUESTIONS},
    "laptop": ("laptop", laptop_section),
    "tasks": ("tasks", twelve_tasks_section),
    "tasks_finetune": ("tasks_finetune", tasks_finetune_table),
    "endtask_mini_summary": ("tasks_finetune", tasks_finetune_summary),
}
"""By the name that pages use: the results file, and the function that makes Markdown of it."""
PICTURES: dict[str, Callable[[Results], str]] = {
    "demo": demo_picture,
    "retrieval": retrieval_picture,
    "training": training_picture,
    "tartan": tartan_picture,
    "tasks": tasks_picture,
}
NOT_MEASURED = "Not measured yet.\n\n"
_SECTION = re.compile(r"(<!-- results: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def pages() -> list[Path]:
    """Return the pages that show results."""
    others = ("README.md", "examples/digits/README.md", "src/endtask/pretrained/endtask_mini/README.md")
    known = [*(ROOT / name for name in others), *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in known if _SECTION.search(page.read_text(encoding="utf-8"))]


def filled(text: str) -> str:
    """Return a page with every marked section written anew."""

    def fill(match: re.Match[str]) -> str:
        file, table = SECTIONS[match[2]]
        measured = (RESULTS / f"{file}.json").exists()
        return match[1] + (table(read_results(file)) if measured else NOT_MEASURED) + match[3]

    return _SECTION.sub(fill, text)


def pictures() -> dict[Path, str]:
    """Return every picture by the file it belongs in."""
    return {ROOT / "docs" / "results" / f"{name}.svg": draw(read_results(name)) for name, draw in PICTURES.items()}


def main() -> None:
    """Rewrite the pages and the pictures."""
    for page in pages():
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")
    for path, content in pictures().items():
        path.write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main()
