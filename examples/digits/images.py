"""Images and their classes, divided into a task of few classes and an auxiliary task of all others."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from endtask.errors import InputError
from endtask.seeds import generator

CONFUSABLE_DIGITS = (3, 5, 8)
MEDIUM_MAMMALS = (34, 63, 64, 66, 75)
"""Fox, porcupine, possum, raccoon and skunk among CIFAR-100's classes in alphabetical order."""


@dataclass(frozen=True)
class Images:
    """Images (N, channels, height, width) between 0 and 1, and the class of each, counted from 0."""

    pixels: NDArray[np.float32]
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)

    def at(self, places: NDArray[np.int64]) -> Images:
        """Some of them."""
        return Images(self.pixels[places], self.labels[places])

    def of_classes(self, classes: Sequence[int]) -> Images:
        """Those of some classes, which are counted anew in the given order."""
        chosen = self.at(np.flatnonzero(np.isin(self.labels, classes)))
        number = {label: place for place, label in enumerate(classes)}
        return Images(chosen.pixels, np.array([number[int(label)] for label in chosen.labels], dtype=np.int64))


@dataclass(frozen=True)
class ImageTask:
    """What is to be learned: train, dev and test images of the task, and images of the other classes."""

    train: Images
    dev: Images
    test: Images
    auxiliary: Images


def read_digits() -> Images:
    """Scikit-learn's 1,797 digits of 8 x 8 pixels, which come with the library."""
    from sklearn.datasets import load_digits

    found = load_digits()
    return Images((found.images[:, None] / 16.0).astype(np.float32), found.target.astype(np.int64))


def read_images(path: Path) -> Images:
    """Images of a file: `.npz` with `images` (N, height, width[, channels]) and `labels`, or `.parquet`.

    Pixels are whole numbers from 0 to 255, of any integer type, or fractions from 0 to 1; labels are whole numbers.
    Of a Parquet file the columns are those of the hub's image sets: encoded images in `img` or `image`, and their
    classes in `fine_label` or `label`. Pickled files are refused, for reading them would run what they hold.
    """
    if path.suffix not in (".npz", ".parquet"):
        raise InputError("images come as .npz or .parquet", path=path, hint="pickled files are not read: they run code")
    if not path.is_file():
        raise InputError("is a folder, not a file" if path.is_dir() else "no such file", path=path)
    return _from_arrays(path) if path.suffix == ".npz" else _from_parquet(path)


def usual_classes(images: Images) -> tuple[int, ...]:
    """The task where no classes are named: the paper's of 100 classes (CIFAR-100), else digits that look alike."""
    return MEDIUM_MAMMALS if set(images.labels.tolist()) == set(range(100)) else CONFUSABLE_DIGITS


def divide(images: Images, classes: Collection[int], *, per_class: int, seed: int) -> ImageTask:
    """Cut out the task: `per_class` images of each class for train and as many for dev, the rest is for test."""
    known = {int(label) for label in images.labels}
    if missing := sorted(set(classes) - known):
        raise InputError(f"there is no class {missing[0]} among {len(known)} classes")
    if len(set(classes)) < max(2, len(classes)) or not known - set(classes):
        raise InputError("a task has two classes or more, each named once, and leaves others to help")
    task = images.of_classes(sorted(classes))
    order = generator(seed, "digits", "split").permutation(len(task))
    by_class = [order[task.labels[order] == number] for number in range(len(classes))]
    if min(map(len, by_class)) <= 2 * per_class:
        raise InputError(f"{per_class} images per class for train and dev leave none for test")
    return ImageTask(
        train=task.at(np.concatenate([places[:per_class] for places in by_class])),
        dev=task.at(np.concatenate([places[per_class : 2 * per_class] for places in by_class])),
        test=task.at(np.concatenate([places[2 * per_class :] for places in by_class])),
        auxiliary=images.of_classes(sorted(known - set(classes))),
    )


def _from_arrays(path: Path) -> Images:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            if missing := {"images", "labels"} - set(arrays):
                raise InputError(f"there is no array {min(missing)!r}", path=path, hint=f"there are: {sorted(arrays)}")
            pixels, labels = np.asarray(arrays["images"]), np.asarray(arrays["labels"])
    except (OSError, ValueError, TypeError, EOFError, BadZipFile, zlib.error):  # TypeError: a single array, no archive
        raise InputError("not a whole .npz of plain arrays", path=path, hint="as numpy.savez writes them") from None
    return _checked(pixels, labels, path)


def _from_parquet(path: Path) -> Images:
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(path)
    except (OSError, pyarrow.ArrowException):
        raise InputError("not a Parquet file that can be read", path=path) from None
    columns = [[name for name in names if name in table.column_names] for names in _COLUMNS]
    if not all(columns):
        raise InputError("there are no images and labels", path=path, hint=f"columns: {', '.join(table.column_names)}")
    pixels = _decoded(table.column(columns[0][0]).to_pylist(), path)
    return _checked(pixels, np.asarray(table.column(columns[1][0]).to_pylist()), path)


def _decoded(cells: Sequence[Any], path: Path) -> NDArray[np.uint8]:
    """Images as they stand in a column of the hub's: encoded, all of one size."""
    try:
        from PIL import Image
    except ImportError:
        raise InputError(
            "images in Parquet files need the package pillow", path=path, hint="pip install pillow"
        ) from None
    decoded: list[NDArray[np.uint8]] = []
    for row, cell in enumerate(cells, start=1):
        try:
            decoded.append(np.asarray(Image.open(BytesIO(cell["bytes"])).convert("RGB")))
        except (OSError, ValueError, TypeError, KeyError):
            raise InputError("not an encoded image", path=path, row=row) from None
        if decoded[-1].shape != decoded[0].shape:
            raise InputError("the image has another size than the first", path=path, row=row)
    return np.stack(decoded) if decoded else np.zeros((0, 1, 1, 3), dtype=np.uint8)


_COLUMNS = (("img", "image"), ("fine_label", "label"))


def _checked(pixels: NDArray[Any], labels: NDArray[Any], path: Path) -> Images:
    """The images with pixels between 0 and 1, whatever type of number they come in."""
    if labels.ndim != 1 or (len(labels) and labels.dtype.kind not in "iu"):
        raise InputError("labels are a whole number for each image", path=path, key="labels")
    if pixels.ndim not in (3, 4) or len(pixels) != len(labels):
        raise InputError(f"{pixels.shape} is no shape of {len(labels)} images", path=path, key="images")
    if pixels.size == 0:
        raise InputError("there are no images", path=path, key="images")
    shaped = pixels[..., None] if pixels.ndim == 3 else pixels  # (N, height, width, channels)
    scaled = shaped.transpose(0, 3, 1, 2) / _largest(pixels, path)
    return Images(scaled.astype(np.float32), labels.astype(np.int64))


def _largest(pixels: NDArray[Any], path: Path) -> float:
    """What is white: 255 of whole numbers, else 1; pixels that lie beyond are refused, for their scale is unknown."""
    hint = "whole numbers from 0 to 255, or fractions from 0 to 1"
    if pixels.dtype.kind not in "iuf":
        raise InputError(f"pixels of type {pixels.dtype} are no numbers", path=path, key="images", hint=hint)
    largest = 1.0 if pixels.dtype.kind == "f" else 255.0
    least, most = pixels.min(), pixels.max()
    if not (least >= 0 and most <= largest):  # so that what is no number is refused too
        told = f"pixels lie between {least:g} and {most:g}, not between 0 and {largest:g}"
        raise InputError(told, path=path, key="images", hint=hint)
    return largest
