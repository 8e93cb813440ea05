"""The report: its contents at each stage of a run, and the escaping of the user's texts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path

import pytest

from endtask.errors import InputError
from endtask.io.atomic import write_json
from endtask.io.run_layout import STAGES
from endtask.io.stage_files import MANIFEST
from endtask.reporting import run_folder
from endtask.reporting.format import size
from endtask.reporting.page import summary, verdict, verdict_lines, write_report
from endtask.reporting.render import content_security_policy, static_text

MakeRun = Callable[..., Path]
SCRIPT = '<script>alert("x")</script>'


class Tags(HTMLParser):
    """Every tag with its attributes, and whether all that were opened are closed in order."""

    VOID = frozenset({"meta", "line", "path", "circle", "rect", "br", "input"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attributes)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attributes)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def page_of(folder: Path) -> str:
    """The page as written."""
    return write_report(folder).read_text(encoding="utf-8")


def text_of(page: str) -> str:
    """The page's text on one line, without tags."""
    return " ".join(re.sub(r"<[^>]*>", " ", page.split("</style>")[1].split("<script>")[0]).split())


def test_stages_and_settings_file_are_those_of_the_run() -> None:
    run = import_module("endtask.pipeline.run")
    assert run.STAGES == STAGES
    assert run.SETTINGS_FILE == run_folder.SETTINGS_FILE


def test_the_page_lies_in_the_run_and_says_the_verdict(make_run: MakeRun) -> None:
    folder = make_run()
    assert write_report(folder) == folder / "report.html"
    said = verdict(folder)
    assert said == (
        "pets: accuracy 62.5 ± 12.5 on test (4 rows, 2 seeds, 95% interval 25.0 to 100.0); 52.5 ± 2.5 on the 3 rows whose text is not in train."
    )
    text = text_of(page_of(folder))
    assert "accuracy 95% interval 25.0 to 100.0, ± 12.5 over 2 seeds on 4 rows of test" in text
    assert "Not clearly different from majority class (&#39;cat&#39;): +12.5 points [-12.5, +37.5], p = 0.5." in text
    assert "1 of the 4 rows of test are also in train" in text
    assert "majority class (&#39;cat&#39;) scores 50.0; the model is 12.5 points above it [-12.5, 37.5]" in text


def test_files_that_were_not_read_are_named(make_run: MakeRun) -> None:
    folder = make_run()
    path = folder / "retrieve" / MANIFEST
    manifest = json.loads(path.read_text(encoding="utf-8"))
    manifest["counts"]["corpus"]["notes"] = [f"1 file not read: {SCRIPT}"]
    write_json(path, manifest)
    page = page_of(folder)
    assert "note 1 file not read: &lt;script&gt;" in text_of(page)
    assert SCRIPT not in page


def test_every_section_has_its_figures(make_run: MakeRun) -> None:
    text = text_of(page_of(make_run()))
    assert "2 steps, 1.5 M parameters, on cpu" in text
    assert "1 M 9.0e12" in text  # tokens and FLOPs of pre-training
    assert "The contamination filter dropped 7 passages" in text
    assert "of the selected text" in text
    assert "(train-0)" in text
    assert "Pre-training: masked-LM loss" in text
    assert "Pre-training: task loss" in text
    assert "Fine-tuning: accuracy on dev" in text
    assert "1 (the saved model) 60.0 10 75.0 65.0" in text
    assert "all 2 seeds pooled, so that every row counts 2 times" in text
    assert "mark-of-pretrain" in text
    assert "endtask predict" in text
    assert "Not available" not in text


def test_commands_to_paste_fit_the_kind_of_task_and_quote_the_folder(make_run: MakeRun) -> None:
    one = text_of(page_of(make_run(name="my run")))
    assert re.search(r"endtask predict &#39;[^;]*/my run&#39; &#34;a text to classify&#34;", one)
    pair = text_of(page_of(make_run(name="pairs", text_pair="and another")))
    assert "pairs --file pairs.csv" in pair
    assert "&#34;text_pair&#34;: &#34;second text&#34;" in pair


@pytest.mark.parametrize("until", STAGES)
def test_what_is_missing_is_said(make_run: MakeRun, until: str) -> None:
    folder = make_run(until)
    page = page_of(folder)
    missing = STAGES[STAGES.index(until) + 1 :]
    Tags(page)
    assert ("Not finished yet: " + ", ".join(missing) in page) == bool(missing)
    assert ("the stage <code>evaluate</code> has not run" in page) == ("evaluate" in missing)
    assert ("not evaluated yet" in verdict(folder)) == ("evaluate" in missing)


def test_a_stage_begun_and_not_finished_is_told_apart(make_run: MakeRun) -> None:
    folder = make_run("pack")
    (folder / "pretrain.partial").mkdir()
    assert "the stage <code>pretrain</code> has started but not finished" in page_of(folder)


def test_only_settings_make_a_page_too(make_run: MakeRun, tmp_path: Path) -> None:
    settings = (make_run("read") / "settings.yaml").read_text(encoding="utf-8")
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "settings.yaml").write_text(settings, encoding="utf-8")
    assert "<h1>pets</h1>" in page_of(tmp_path / "new")
    assert verdict(tmp_path / "new") == "pets: not evaluated yet; finished stages: none."


def test_without_a_corpus_the_page_says_so(make_run: MakeRun) -> None:
    text = text_of(page_of(make_run(corpus=False)))
    assert "trained without a corpus" in text
    assert "No passage was selected" in text


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ({"leak_free_rows": 4}, "No text of test is in train"),
        ({"leak_free_rows": 0}, "All 4 rows of test are also in train"),
        ({"split": "dev"}, "There is no test split"),
        ({"seeds": (0,)}, "A single seed says nothing"),
    ],
)
def test_notes_say_how_to_take_the_score(make_run: MakeRun, shape: dict[str, object], expected: str) -> None:
    assert expected in text_of(page_of(make_run(**shape)))


def with_counts(folder: Path, stage: str, **counts: object) -> Path:
    """The run with further counts in a stage's manifest."""
    manifest = folder / stage / MANIFEST
    found = json.loads(manifest.read_text(encoding="utf-8"))
    write_json(manifest, {**found, "counts": {**found["counts"], **counts}})
    return folder


@pytest.mark.parametrize("split", ["dev", "train, 1/10 of it held out in turn"])
def test_weights_that_dev_chose_are_told(make_run: MakeRun, split: str) -> None:
    use = {"part": "learned weights", "learns": "which help", "reads": "texts", "split": split, "labels": True}
    text = text_of(page_of(with_counts(make_run(), "pretrain", uses=[use])))
    assert ("Labels of dev choose the weights of objectives, so dev scores" in text) == (split == "dev")


def test_whether_fine_tuning_helped_is_told_where_that_decided(make_run: MakeRun) -> None:
    folder = make_run()
    assert "on dev: the model has" not in text_of(page_of(folder))
    text = text_of(page_of(with_counts(folder, "finetune", from_pretraining=1)))
    told = "ine-tuning did not help on dev: the model has the weights before it (1 of 2 seeds)"
    assert f"F{told}." in text
    assert f"2 seeds of 10 steps; f{told}" in text, "in the table of stages"


def test_each_of_several_test_sets_has_a_line(make_run: MakeRun) -> None:
    folder = make_run()
    baseline = "  majority class ('cat') scores 50.0; the model is 12.5 points above it [-12.5, 37.5], p = 0.5: not clearly different."
    assert verdict_lines(folder) == [verdict(folder), baseline]
    file = folder / "evaluate" / "results.json"
    sets = {"near": {"rows": 3, "mean": 0.75, "std": 0.125}, "far": {"rows": 1, "mean": 0.25, "std": 0.0}}
    write_json(file, json.loads(file.read_text()) | {"test_sets": sets, "mean_of_test_sets": 0.5})
    assert verdict_lines(folder) == [
        verdict(folder),
        baseline,
        "  near: accuracy 75.0 ± 12.5 (3 rows)",
        "  far: accuracy 25.0 ± 0.0 (1 row)",
        "  mean of the sets: accuracy 50.0 (4 rows)",
    ]


def test_the_verdict_leaves_out_a_leak_free_score_of_the_same_rows(make_run: MakeRun) -> None:
    assert (
        verdict(make_run(leak_free_rows=4))
        == "pets: accuracy 62.5 ± 12.5 on test (4 rows, 2 seeds, 95% interval 25.0 to 100.0)."
    )
    assert verdict(make_run(name="b", leak_free_rows=0)).endswith("; all of these rows are also in train.")
    assert "(4 rows, 1 seed, 95% interval" in verdict(make_run(name="c", seeds=(0,)))


def test_nothing_of_the_users_becomes_markup(make_run: MakeRun) -> None:
    folder = make_run(name="run<img src=x>'\"", labels=(SCRIPT, "dog"), text=SCRIPT, source=f"{SCRIPT}.jsonl")
    page = page_of(folder)
    tags = {tag for tag, _ in Tags(page).found}
    assert not tags & {"img", "iframe", "object", "link"}
    assert page.split("<script>")[1:] == [f"{static_text('page.js')}</script>\n</body>\n</html>"], "our script alone"
    assert content_security_policy(static_text("page.js")).replace("'", "&#39;") in page
    assert page.count("&lt;script&gt;") > 10
    assert not [name for _, attributes in Tags(page).found for name in attributes if name.startswith("on")]


def test_the_page_loads_nothing(make_run: MakeRun) -> None:
    page = page_of(make_run(text="see https://example.org/x.png"))
    attributes = [entry for _, attributes in Tags(page).found for entry in attributes.items()]
    assert not [name for name, _ in attributes if name in ("src", "srcset", "data", "action", "xlink:href")]
    links = [value for name, value in attributes if name == "href"]
    anchors = {f"#{value}" for name, value in attributes if name == "id"}
    assert links
    assert set(links) <= anchors
    style = page.split("<style>")[1].split("</style>")[0]
    assert "url(" not in style
    assert "@import" not in style


def test_tables_and_charts_are_accessible(make_run: MakeRun) -> None:
    found = Tags(page_of(make_run())).found
    assert all(attributes.get("scope") in ("col", "row") for tag, attributes in found if tag == "th")
    charts = [attributes for tag, attributes in found if tag == "svg"]
    assert len(charts) == 6
    assert all(attributes["role"] == "img" and attributes["aria-label"] for attributes in charts)


def test_the_same_run_gives_the_same_page(make_run: MakeRun) -> None:
    folder = make_run()
    assert page_of(folder) == page_of(folder)


def test_many_labels_get_a_list_of_mistakes_instead_of_a_matrix(make_run: MakeRun) -> None:
    folder = make_run()
    rows = [{"id": str(n), "label": f"label {n}", "predicted": {"0": f"label {n + 1}"}} for n in range(30)]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "evaluate" / "predictions.jsonl").write_text(lines, encoding="utf-8")
    page = page_of(folder)
    assert "The most frequent mistakes" in page
    assert 'class="matrix"' not in page


def test_versions_that_differ_between_stages_are_told_apart(make_run: MakeRun) -> None:
    folder = make_run("retrieve")
    path = folder / "read" / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    manifest["versions"]["numpy"] = "0.1"
    path.write_text(json.dumps(manifest), encoding="utf-8")
    assert re.search(r"0\.1 \(read\); [\d.]+ \(retrieve\)", text_of(page_of(folder)))


def test_memory_of_a_gpu_is_shown_where_one_was_used(make_run: MakeRun) -> None:
    folder = make_run()
    assert "GPU memory" not in page_of(folder)
    path = folder / "pretrain" / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**manifest, "gpu_bytes": 6_000_000_000}), encoding="utf-8")
    page = page_of(folder)
    assert '<th scope="col" class="number">GPU memory</th>' in page
    assert page.count(f'<td class="number">{size(6_000_000_000)}</td>') == 2  # of the stage, and the most of all


def test_the_summary_is_plain_and_complete(make_run: MakeRun) -> None:
    statistics = json.loads(json.dumps(summary(make_run()), allow_nan=False))
    assert statistics["verdict"].startswith("pets: accuracy 62.5")
    assert statistics["results"]["summary"]["mean"] == 0.625
    assert [row["score"] for row in statistics["seeds"]] == [0.5, 0.75]
    assert statistics["cost"]["total"]["tokens"] == 1_001_000
    assert [(row["name"], row["score"], row["is_clear"]) for row in statistics["baselines"]] == [
        ("majority", 0.5, False)
    ]
    assert [row["label"] for row in statistics["classes"]] == ["cat", "dog"]
    assert statistics["missing"] == []


def test_the_summary_of_an_unfinished_run_has_no_scores(make_run: MakeRun) -> None:
    statistics = summary(make_run("select"))
    assert (statistics["results"], statistics["seeds"], statistics["baselines"]) == (None, [], [])
    assert statistics["missing"] == ["pack", "pretrain", "finetune", "evaluate", "model"]


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no run here"):
        write_report(tmp_path)
    with pytest.raises(InputError, match="no such folder"):
        verdict(tmp_path / "nowhere")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("read/manifest.json", "{", "not a manifest"),
        ("read/manifest.json", "{}", "not a manifest"),
        ("evaluate/results.json", "[1", "not valid JSON"),
        ("evaluate/predictions.jsonl", "oops\n", "row 1: not valid JSON"),
        ("settings.yaml", "a: [", "not valid YAML"),
    ],
)
def test_a_broken_file_is_named(make_run: MakeRun, file: str, content: str, message: str) -> None:
    folder = make_run()
    before = page_of(folder)
    (folder / file).write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        write_report(folder)
    assert file in str(caught.value)
    assert "\n" not in str(caught.value)
    assert (folder / "report.html").read_text(encoding="utf-8") == before
