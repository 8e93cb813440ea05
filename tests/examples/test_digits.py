"""The image example, tiny: what is no text trains in the same loop with learned weights."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch

from endtask.errors import InputError
from endtask.settings.meta import MetaSettings
from examples.digits.__main__ import compare, main
from examples.digits.images import CONFUSABLE_DIGITS, Images, divide, read_digits, read_images
from examples.digits.methods import METHODS, Plan, learn

PLAN = Plan(steps=8, finetune_steps=4, score_every=4, batch_size=16, meta=MetaSettings(folds=3, fold_steps=2, every=2))
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


def test_the_table_names_every_method_and_the_test() -> None:
    page = compare(read_digits(), CONFUSABLE_DIGITS, 5, PLAN, seeds=1, device="cpu")
    assert [line.split("  ")[0].strip() for line in page.splitlines()[1:5]] == list(METHODS)
    assert page.count("against agnostic p = ") == 3
    assert "weight of the task after the last step of meta" in page


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


def test_bad_files_are_told_in_one_line(tmp_path: Path) -> None:
    pixels, labels = made_up_images()
    np.savez(tmp_path / "no_labels.npz", images=pixels)
    np.savez(tmp_path / "uneven.npz", images=pixels, labels=labels[:5])
    pyarrow.parquet.write_table(pa.table({"text": ["a"]}), tmp_path / "texts.parquet")
    for name, message in (
        ("no_labels.npz", "no array 'labels'"),
        ("uneven.npz", "no shape of 5 images"),
        ("texts.parquet", "no images and labels"),
        ("train.pickle", r"\.npz or \.parquet"),
    ):
        with pytest.raises(InputError, match=message):
            read_images(tmp_path / name)


def test_a_task_that_cannot_be_cut_out_is_refused() -> None:
    images = Images(np.zeros((9, 1, 4, 4), dtype=np.float32), np.arange(9) % 3)
    with pytest.raises(InputError, match="no class 7"):
        divide(images, (0, 7), per_class=1, seed=0)
    with pytest.raises(InputError, match="leave none for test"):
        divide(images, (0, 1), per_class=2, seed=0)


def test_a_mistake_on_the_command_line_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["examples.digits", "--images", "nowhere.pickle"])
    with pytest.raises(SystemExit):
        main()
    assert "images come as .npz or .parquet" in capsys.readouterr().err
