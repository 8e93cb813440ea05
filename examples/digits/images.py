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
    """Images (N, channels, height, width) with pixels between 0 and 1, and their classes from 0."""

    pixels: NDArray[np.float32]
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)

    def at(self, indices: NDArray[np.int64]) -> Images:
        """Return the images at some indices."""
        return Images(self.pixels[indices], self.labels[indices])

    def of_classes(self, classes: Sequence[int]) -> Images:
        """Return the images of some classes, numbered in the given order."""
        selected = self.at(np.flatnonzero(np.isin(self.labels, classes)))
        numbers = {label: number for number, label in enumerate(classes)}
        return Images(selected.pixels, np.array([numbers[int(label)] for label in selected.labels], dtype=np.int64))


@dataclass(frozen=True)
class ImageTask:
    """The train, dev and test images of a task, and the images of all other classes."""

    train: Images
    dev: Images
    test: Images
    auxiliary: Images


def read_digits() -> Images:
    """Return the 1,797 digits of 8 x 8 pixels that scikit-learn contains."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    return Images((digits.images[:, None] / 16.0).astype(np.float32), digits.target.astype(np.int64))


def read_images(path: Path) -> Images:
    """Read a `.npz` with `images` (N, height, width[, channels]) and `labels`, or a `.parquet`.

    Pixels are whole numbers from 0 to 255, of any integer type, or fractions from 0 to 1; labels are whole numbers. A
    Parquet file has the columns of the hub's image data sets: encoded images in `img` or `image`, and their classes in
    `fine_label` or `label`. Pickled files raise `InputError`, since reading them can run code.
    """
    if path.suffix not in (".npz", ".parquet"):
        raise InputError("images come as .npz or .parquet", path=path, hint="pickled files are not read: they run code")
    if not path.is_file():
        raise InputError("is a folder, not a file" if path.is_dir() else "no such file", path=path)
    return _from_arrays(path) if path.suffix == ".npz" else _from_parquet(path)


def usual_classes(images: Images) -> tuple[int, ...]:
    """Return the default classes of the task: the paper's of 100 classes (CIFAR-100), else digits that look alike."""
    return MEDIUM_MAMMALS if set(images.labels.tolist()) == set(range(100)) else CONFUSABLE_DIGITS


def divide(images: Images, classes: Collection[int], *, per_class: int, seed: int) -> ImageTask:
    """Divide the images of the task: `per_class` of each class for train, as many for dev, the rest for test."""
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
        train=task.at(np.concatenate([indices[:per_class] for indices in by_class])),
        dev=task.at(np.concatenate([indices[per_class : 2 * per_class] for indices in by_class])),
        test=task.at(np.concatenate([indices[2 * per_class :] for indices in by_class])),
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
    """Decode the images of a column, which must all have the same size."""
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
    """Return the images with pixels scaled to 0 to 1; raise `InputError` for wrong shapes and types."""
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
    """Return the value of white: 255 for whole numbers, else 1; raise `InputError` for pixels beyond it."""
    hint = "whole numbers from 0 to 255, or fractions from 0 to 1"
    if pixels.dtype.kind not in "iuf":
        raise InputError(f"pixels of type {pixels.dtype} are no numbers", path=path, key="images", hint=hint)
    largest = 1.0 if pixels.dtype.kind == "f" else 255.0
    least, most = pixels.min(), pixels.max()
    if not (least >= 0 and most <= largest):  # also true for NaN
        message = f"pixels lie between {least:g} and {most:g}, not between 0 and {largest:g}"
        raise InputError(message, path=path, key="images", hint=hint)
    return largest
