"""The image example at tiny size: images train in the same loop with learned weights."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch

from benchmarks.results_file import read_results, write_results
from endtask.errors import InputError
from endtask.weighting.meta import MetaConfig
from examples.digits.__main__ import compare, main
from examples.digits.images import (
    CONFUSABLE_DIGITS,
    Images,
    ImageTask,
    divide,
    read_digits,
    read_images,
    usual_classes,
)
from examples.digits.methods import METHODS, Outcome, Plan, learn
from examples.digits.results import Row, as_text, digits_table, summary_of

PLAN = Plan(steps=8, finetune_steps=4, score_every=4, batch_size=16, meta=MetaConfig(folds=3, every=2), fold_steps=2)
CPU = torch.device("cpu")


def test_the_task_has_some_classes_and_the_rest_helps() -> None:
    task = divide(read_digits(), CONFUSABLE_DIGITS, per_class=10, seed=0)
    assert [len(part) for part in (task.train, task.dev)] == [30, 30]
    assert len(task.train) + len(task.dev) + len(task.test) + len(task.auxiliary) == 1797
    assert np.bincount(task.train.labels).tolist() == [10, 10, 10]
    assert set(task.auxiliary.labels.tolist()) == set(range(7))
    images = {part.tobytes() for part in task.train.pixels} | {part.tobytes() for part in task.dev.pixels}
    assert not images & {part.tobytes() for part in task.test.pixels}


@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains_to_the_same_predictions_again(method: str) -> None:
    task = divide(read_digits(), CONFUSABLE_DIGITS, per_class=6, seed=0)
    first, again = (learn(method, task, PLAN, seed=1, device=CPU) for _ in range(2))
    assert first.predicted.tolist() == again.predicted.tolist()
    assert first.predicted.shape == task.test.labels.shape
    assert first.task_weights == again.task_weights
    assert len(set(first.task_weights)) > 1 if method == "meta" else not first.task_weights


def made_up_row(method: str, seed: int, right: str, train: int = 6) -> Row:
    weight = 0.5 + seed / 4 if method == "meta" else None
    row = {"method": method, "seed": seed, "train": train, "dev": 6, "test": len(right), "auxiliary": 9, "steps": 12}
    score = right.count("1") / len(right)
    return {**row, "accuracy": score, "dev_accuracy": 1.0, "cpu_seconds": 2.0, "task_weight": weight, "right": right}


ROWS = [
    *(made_up_row("task only", seed, "0000000000") for seed in range(2)),
    *(made_up_row("agnostic", seed, "0000001111") for seed in range(2)),
    *(made_up_row("mt", seed, "0000011111") for seed in range(2)),
    *(made_up_row("meta", seed, right) for seed, right in enumerate(("1111111111", "1111111100"))),
]


def test_a_row_holds_what_its_figures_are_drawn_from() -> None:
    task = divide(read_digits(), CONFUSABLE_DIGITS, per_class=5, seed=0)
    rows = compare([task], PLAN, seeds=1, device=CPU)
    assert [row["method"] for row in rows] == list(METHODS)
    for row in rows:
        right = learn(row["method"], task, PLAN, seed=0, device=CPU).predicted == task.test.labels
        assert [sign == "1" for sign in row["right"]] == right.tolist()
        assert row["accuracy"] == pytest.approx(right.mean(), abs=1e-5)
        assert (row["train"], row["test"], row["auxiliary"], row["steps"]) == (15, len(task.test), 1258, 12)
        assert (row["task_weight"] is not None) == (row["method"] == "meta")


def test_the_figures_of_rows() -> None:
    found = {cell["method"]: cell for cell in summary_of(ROWS)["methods"]}
    assert list(found) == list(METHODS)
    assert {name: cell["mean"] for name, cell in found.items()} == {
        "task only": 0.0,
        "agnostic": 0.4,
        "mt": 0.5,
        "meta": 0.9,
    }
    assert found["meta"]["std"] == pytest.approx(0.2 / 2**0.5, abs=1e-5)
    assert found["meta"]["task_weight"] == [0.625, 0.5, 0.75]
    # By hand: 1, 4 and 8 images differ; of so many swaps all, the two extremes, and 20 lead by as much as observed.
    expected = {"mt": 2 / 2, "task only": 2 / 16, "meta": 20 / 256}
    assert {name: found[name]["p"] for name in expected} == pytest.approx(expected, abs=1e-5)
    assert found["meta"]["p_holm"] == pytest.approx(3 * 20 / 256, abs=1e-5)
    assert "p" not in found["agnostic"]
    assert [found[name]["lead"] for name in ("task only", "mt", "meta")] == pytest.approx([-0.4, 0.1, 0.5])


def test_each_number_of_train_images_is_judged_by_itself() -> None:
    more = [{**row, "train": 60, "right": "1" * 10, "accuracy": 1.0} for row in ROWS]
    alone, both = summary_of(ROWS)["methods"], summary_of([*more, *ROWS])["methods"]
    assert both[:4] == alone
    assert [cell["mean"] for cell in both[4:]] == [1.0] * 4
    assert [cell["p_holm"] for cell in both[4:] if "p_holm" in cell] == [1.0] * 3


def test_the_lines_name_every_method_and_the_test() -> None:
    lines = as_text(summary_of(ROWS)["methods"]).splitlines()
    assert lines[0] == "6 train, 6 dev and 10 test images, 9 others"
    assert [line[:10].strip() for line in lines[1:5]] == list(METHODS)
    assert lines[4].startswith("meta       90.00 +- 14.14     2.0 s  +50.00 against agnostic (+")
    assert "), p = 0.0" in lines[4]
    assert lines[5].endswith("0.62 (0.50 to 0.75)")


def test_the_table_of_a_results_file(tmp_path: Path) -> None:
    sure = [{**row, "right": 4 * row["right"], "train": 60} for row in ROWS]
    write_results("digits", "python -m examples.digits", [*ROWS, *sure], {"methods": []}, tmp_path)
    table = digits_table(read_results("digits", tmp_path))
    assert table.count("| method | accuracy | against `agnostic` | 95% | p | Holm's | CPU seconds |") == 2
    first, second = (line for line in table.splitlines() if line.startswith("| `mt`"))
    assert re.fullmatch(r"\| `mt` \| 50.0 ± 0.0 \| \+10.0 \| \S+ to \S+ \| 1.0000 \| 1.0000 \| 2.0 \|", first)
    assert re.match(r"\| `mt` \| 50.0 ± 0.0 \| \+10.0 \| \S+ to \S+ \| 0.125", second)
    assert table.count("| `agnostic` | 40.0 ± 0.0 |  |  |  |  | 2.0 |") == 2
    assert "+50.0† |" in table.split("60 train")[1]
    assert "Mean ± spread over 2 seeds, each a run of 12 steps" in table
    assert "16 runs on one core of a shared machine" in table
    assert "1 minutes in all" in table


def test_the_summary_that_is_kept_is_that_of_its_rows() -> None:
    kept = read_results("digits")
    assert kept.summary == summary_of(kept.rows)
    for row in kept.rows:
        assert len(row["right"]) == row["test"]
        assert row["right"].count("1") / row["test"] == pytest.approx(row["accuracy"], abs=1e-5)


def made_up_images() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    return random.integers(0, 256, (20, 8, 8, 3), dtype=np.uint8), np.arange(20) % 4


def test_images_of_a_file(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="images in Parquet files need pillow")
    pixels, labels = made_up_images()
    np.savez(tmp_path / "images.npz", images=pixels, labels=labels)
    encoded = []
    for one in pixels:
        image.fromarray(one).save(buffer := io.BytesIO(), format="PNG")
        encoded.append({"bytes": buffer.getvalue(), "path": None})
    table = pa.table({"img": encoded, "fine_label": labels})
    pyarrow.parquet.write_table(table, tmp_path / "images.parquet")
    for name in ("images.npz", "images.parquet"):
        found = read_images(tmp_path / name)
        assert found.pixels.shape == (20, 3, 8, 8)
        assert found.pixels.transpose(0, 2, 3, 1) * 255 == pytest.approx(pixels)
        assert found.labels.tolist() == labels.tolist()


@pytest.mark.parametrize("kind", ["int64", "int32", "uint16", "uint8"])
def test_whole_numbers_of_any_type_are_scaled(tmp_path: Path, kind: str) -> None:
    pixels, labels = made_up_images()
    np.savez(tmp_path / "images.npz", images=pixels.astype(kind), labels=labels)
    found = read_images(tmp_path / "images.npz").pixels
    assert found.transpose(0, 2, 3, 1) == pytest.approx(pixels / 255.0)
    assert found.max() <= 1.0


def test_fractions_stay_as_they_are(tmp_path: Path) -> None:
    pixels, labels = made_up_images()
    np.savez(tmp_path / "images.npz", images=pixels[..., 0] / 255.0, labels=labels)
    assert read_images(tmp_path / "images.npz").pixels[:, 0] == pytest.approx(pixels[..., 0] / 255.0)


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        (256, "int64", "between 0 and 256, not between 0 and 255"),
        (-1, "int16", "between -1 and 255, not between 0 and 255"),
        (255, "float32", "between 0 and 255, not between 0 and 1 "),
        (float("nan"), "float64", "between nan and nan"),
        ("7", "U1", "no numbers"),
    ],
)
def test_pixels_of_no_known_scale_are_refused(tmp_path: Path, value: Any, kind: str, message: str) -> None:
    pixels, labels = made_up_images()
    changed = (pixels * (kind[0] != "f")).astype(kind)
    changed.flat[0], changed.flat[1:3] = value, (0, 0 if kind[0] == "f" else 255)
    if kind == "U1":
        changed[:] = value
    np.savez(tmp_path / "images.npz", images=changed, labels=labels)
    with pytest.raises(InputError, match=message) as caught:
        read_images(tmp_path / "images.npz")
    assert "images.npz, key 'images'" in str(caught.value)


def test_bad_files_are_told_in_one_line(tmp_path: Path) -> None:
    pixels, labels = made_up_images()
    np.savez(tmp_path / "no_labels.npz", images=pixels)
    np.savez(tmp_path / "uneven.npz", images=pixels, labels=labels[:5])
    np.savez(tmp_path / "named.npz", images=pixels, labels=np.array(["cat"] * 20))
    np.savez(tmp_path / "none.npz", images=pixels[:0], labels=labels[:0])
    np.savez(tmp_path / "pickled.npz", images=np.array([{}] * 20, dtype=object), labels=labels)
    (tmp_path / "folder.npz").mkdir()
    (tmp_path / "empty.npz").touch()
    (tmp_path / "words.npz").write_text("no archive", encoding="utf-8")
    (tmp_path / "cut.npz").write_bytes((tmp_path / "uneven.npz").read_bytes()[:900])
    with (tmp_path / "single.npz").open("wb") as file:
        np.save(file, pixels)
    pyarrow.parquet.write_table(pa.table({"text": ["a"]}), tmp_path / "texts.parquet")
    (tmp_path / "words.parquet").write_text("no table", encoding="utf-8")
    for name, message in (
        ("nope.npz", "no such file"),
        ("nope.parquet", "no such file"),
        ("folder.npz", "is a folder, not a file"),
        ("no_labels.npz", "no array 'labels'"),
        ("uneven.npz", "no shape of 5 images"),
        ("named.npz", "labels are a whole number"),
        ("none.npz", "there are no images"),
        *(
            (f"{kind}.npz", "not a whole .npz of plain arrays")
            for kind in ("pickled", "empty", "words", "cut", "single")
        ),
        ("texts.parquet", "no images and labels"),
        ("words.parquet", "not a Parquet file"),
        ("train.pickle", r"\.npz or \.parquet"),
    ):
        with pytest.raises(InputError, match=message) as caught:
            read_images(tmp_path / name)
        assert str(caught.value).startswith(str(tmp_path / name))


def test_a_bad_image_in_a_table_is_told_with_its_row(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="images in Parquet files need pillow")
    image.new("RGB", (8, 8)).save(small := io.BytesIO(), format="PNG")
    image.new("RGB", (9, 9)).save(large := io.BytesIO(), format="PNG")
    for second, message in ((large.getvalue(), "another size"), (b"no image", "not an encoded image")):
        cells = [{"bytes": small.getvalue()}, {"bytes": second}]
        pyarrow.parquet.write_table(pa.table({"image": cells, "label": [0, 1]}), tmp_path / "images.parquet")
        with pytest.raises(InputError, match=f"row 2: .*{message}"):
            read_images(tmp_path / "images.parquet")


def test_a_task_that_cannot_be_cut_out_is_refused() -> None:
    images = Images(np.zeros((9, 1, 4, 4), dtype=np.float32), np.arange(9) % 3)
    with pytest.raises(InputError, match="no class 7"):
        divide(images, (0, 7), per_class=1, seed=0)
    with pytest.raises(InputError, match="leave none for test"):
        divide(images, (0, 1), per_class=2, seed=0)
    for classes in ((1,), (0, 1, 1), (0, 1, 2)):
        with pytest.raises(InputError, match="two classes or more, each named once, and leaves others"):
            divide(images, classes, per_class=1, seed=0)


def test_of_a_hundred_classes_the_medium_mammals_are_the_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = np.repeat(np.arange(100), 3)
    pixels = np.broadcast_to(labels[:, None, None, None], (300, 8, 8, 3))  # of one colour, which tells the class
    np.savez(tmp_path / "cifar.npz", images=pixels, labels=labels)
    tasks: list[ImageTask] = []

    def look(method: str, task: ImageTask, plan: Plan, *, seed: int, device: torch.device) -> Outcome:
        tasks.append(task)
        return Outcome(task.test.labels, 1.0, [0.5] if method == "meta" else [])

    monkeypatch.setattr("examples.digits.__main__.learn", look)
    monkeypatch.setattr(sys, "argv", ["-", "--images", str(tmp_path / "cifar.npz"), "--per-class", "1", "--seeds", "1"])
    main()
    assert len(tasks) == len(METHODS)
    colours = [{round(255 * float(one.max())) for one in part.pixels} for part in (tasks[0].test, tasks[0].auxiliary)]
    assert colours[0] == {34, 63, 64, 66, 75}  # fox, porcupine, possum, raccoon, skunk
    assert colours[1] == set(range(100)) - colours[0]


def test_without_a_hundred_classes_the_digits_that_look_alike_are_the_task() -> None:
    pixels = np.zeros((2, 1, 4, 4), dtype=np.float32)
    assert usual_classes(read_digits()) == usual_classes(Images(pixels, np.array([0, 99]))) == (3, 5, 8)


def test_figures_are_written_where_they_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def guess(method: str, task: ImageTask, plan: Plan, *, seed: int, device: torch.device) -> Outcome:
        return Outcome(np.full(len(task.test), seed), 0.5, [0.25] if method == "meta" else [])

    monkeypatch.setattr("examples.digits.__main__.learn", guess)
    asked = ["--seeds", "2", "--per-class", "5", "20", "--results", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["-", *asked])
    main()
    found = read_results("digits", tmp_path)
    assert found.command == f"python -m examples.digits {' '.join(asked)}"
    assert [(row["train"], row["seed"], row["method"]) for row in found.rows] == [
        (train, seed, method) for train in (15, 60) for seed in range(2) for method in METHODS
    ]
    assert found.summary == summary_of(found.rows)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (["--images", "nowhere.pickle"], "nowhere.pickle: images come as .npz or .parquet"),
        (["--seeds", "0"], "'0' is not a whole number above 0"),
        (["--per-class", "20", "many"], "'many' is not a whole number above 0"),
        (["--classes", "3", "12"], "there is no class 12 among 10 classes"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], asked: list[str], message: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["examples.digits", *asked])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err.splitlines()[-1]


def test_a_missing_file_is_told_in_exactly_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "argv", ["examples.digits", "--images", str(tmp_path / "nope.npz")])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert capsys.readouterr().err == f"python -m examples.digits: {tmp_path / 'nope.npz'}: no such file\n"
