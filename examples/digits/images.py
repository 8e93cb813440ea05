"""Images and their classes, divided into a task of few classes and an auxiliary task of all others."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

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

    Of a Parquet file the columns are those of the hub's image sets: encoded images in `img` or `image`, and their
    classes in `fine_label` or `label`. Pickled files are refused, for reading them would run what they hold.
    """
    if path.suffix == ".npz":
        return _from_arrays(path)
    if path.suffix == ".parquet":
        return _from_parquet(path)
    raise InputError("images come as .npz or .parquet", path=path, hint="pickled files are not read: they run code")


def divide(images: Images, classes: Collection[int], *, per_class: int, seed: int) -> ImageTask:
    """Cut out the task: `per_class` images of each class for train and as many for dev, the rest is for test."""
    known = {int(label) for label in images.labels}
    if missing := sorted(set(classes) - known):
        raise InputError(f"there is no class {missing[0]} among {len(known)} classes")
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
    with np.load(path, allow_pickle=False) as arrays:
        if missing := {"images", "labels"} - set(arrays):
            raise InputError(f"there is no array {min(missing)!r}", path=path, hint=f"there are: {sorted(arrays)}")
        pixels, labels = arrays["images"], arrays["labels"]
    return _checked(pixels, labels, path)


def _from_parquet(path: Path) -> Images:
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(path)
    columns = [[name for name in names if name in table.column_names] for names in _COLUMNS]
    if not all(columns):
        raise InputError("there are no images and labels", path=path, hint=f"columns: {', '.join(table.column_names)}")
    try:
        from PIL import Image
    except ImportError:
        raise InputError(
            "images in Parquet files need the package pillow", path=path, hint="pip install pillow"
        ) from None
    encoded = [row["bytes"] for row in table.column(columns[0][0]).to_pylist()]
    pixels = np.stack([np.asarray(Image.open(BytesIO(one)).convert("RGB")) for one in encoded])
    return _checked(pixels, np.asarray(table.column(columns[1][0]).to_pylist()), path)


_COLUMNS = (("img", "image"), ("fine_label", "label"))


def _checked(pixels: NDArray[np.uint8], labels: NDArray[np.int64], path: Path) -> Images:
    if pixels.ndim not in (3, 4) or len(pixels) != len(labels):
        raise InputError(f"{pixels.shape} is no shape of {len(labels)} images", path=path, key="images")
    shaped = pixels[..., None] if pixels.ndim == 3 else pixels  # (N, height, width, channels)
    scale = 255.0 if shaped.dtype == np.uint8 else 1.0
    return Images((shaped.transpose(0, 3, 1, 2) / scale).astype(np.float32), labels.astype(np.int64))
