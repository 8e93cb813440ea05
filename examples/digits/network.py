"""A small convolutional network and objectives over images for endtask's training loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from endtask.objectives.base import Loss
from endtask.seeds import generator
from endtask.weighting.folds import Folds
from endtask.weighting.meta import MetaConfig
from endtask.weighting.meta.head import Classes, HeadTask
from examples.digits.images import Images

TASK, AUXILIARY = "task", "auxiliary"


class ImageNetwork(nn.Module):
    """Two convolutions and a dense layer that all objectives share, and a linear head for each objective."""

    def __init__(self, shape: tuple[int, ...], classes: dict[str, int], *, seed: int, width: int = 64) -> None:
        super().__init__()
        torch.manual_seed(seed)
        channels, height, image_width = shape
        flat = 32 * -(-height // 4) * -(-image_width // 4)
        self.encoder = nn.Sequential(
            nn.Conv2d(channels, 16, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(flat, width),
            nn.ReLU(),
        )
        self.heads = nn.ModuleDict({name: nn.Linear(width, count) for name, count in classes.items()})


@dataclass(frozen=True)
class ImageBatch:
    """Images and their classes; an image counts as one token."""

    pixels: Tensor  # (B, channels, height, width)
    labels: Tensor  # (B,)

    @property
    def real_tokens(self) -> int:
        """The number of images."""
        return len(self.labels)

    @property
    def padded_tokens(self) -> int:
        """The number of images, since none is padding."""
        return len(self.labels)

    def to(self, device: torch.device) -> ImageBatch:
        """Return the batch on another device."""
        return ImageBatch(self.pixels.to(device, non_blocking=True), self.labels.to(device, non_blocking=True))

    def pin(self) -> ImageBatch:
        """Return the batch in pinned memory."""
        return ImageBatch(self.pixels.pin_memory(), self.labels.pin_memory())


class ImageClasses:
    """The objective of image classes; `left_out` returns a mask of the images that a step must not read."""

    passes = 1

    def __init__(
        self,
        name: str,
        images: Images,
        *,
        batch_size: int,
        seed: int,
        left_out: Callable[[int], NDArray[np.bool_]] | None = None,
    ) -> None:
        self.name, self._images, self._batch_size, self._seed = name, images, batch_size, seed
        self.heads: tuple[str, ...] = (name,)
        self._left_out = left_out

    def batch(self, step: int) -> ImageBatch:
        """Return images drawn for a step, each at most once."""
        allowed = None if self._left_out is None else ~self._left_out(step)
        return draw(self._images, self._batch_size, allowed, generator(self._seed, self.name, step))

    def loss(self, network: ImageNetwork, batch: ImageBatch) -> Loss:
        """Return the mean cross-entropy."""
        value = functional.cross_entropy(network.heads[self.name](network.encoder(batch.pixels)), batch.labels)
        return Loss(value, {"task": value})

    def flops(self, network: ImageNetwork, batch: ImageBatch) -> float:
        """Return about six FLOPs for each weight and image."""
        return 6.0 * sum(weight.numel() for weight in network.encoder.parameters()) * len(batch.labels)


class HeldOutImages:
    """The held-out images of learned weights: a fold of train, or dev."""

    def __init__(
        self, train: Images, dev: Images, folds: Folds | None, classes: int, *, settings: MetaConfig, seed: int
    ) -> None:
        self.head_task: HeadTask = Classes(classes)
        self._train, self._dev, self._folds = train, dev, folds
        self._settings, self._seed = settings, seed

    def fit_batch(self, step: int) -> ImageBatch:
        """Return images that fit a head."""
        allowed = None if self._folds is None else ~self._folds.held_out(step)
        return draw(self._train, self._settings.fit_batch, allowed, generator(self._seed, "fit", step))

    def gradient_batch(self, step: int) -> ImageBatch:
        """Return held-out images."""
        random = generator(self._seed, "gradient", step)
        if self._folds is None:
            return draw(self._dev, self._settings.gradient_batch, None, random)
        return draw(self._train, self._settings.gradient_batch, self._folds.held_out(step), random)

    def features(self, network: ImageNetwork, batch: ImageBatch) -> Tensor:
        """Return the input of the heads."""
        features: Tensor = network.encoder(batch.pixels)
        return features

    def task_outputs(self, network: ImageNetwork, batch: ImageBatch) -> Tensor:
        """Return the outputs of the task's head."""
        outputs: Tensor = network.heads[TASK](network.encoder(batch.pixels))
        return outputs

    def targets(self, batch: ImageBatch) -> Tensor:
        """Return the classes."""
        return batch.labels


def draw(images: Images, size: int, allowed: NDArray[np.bool_] | None, random: np.random.Generator) -> ImageBatch:
    """Draw `size` of the allowed images, or all of them if they are fewer."""
    indices = np.arange(len(images)) if allowed is None else np.flatnonzero(allowed)
    drawn = images.at(random.choice(indices, min(size, len(indices)), replace=False))
    return ImageBatch(torch.from_numpy(drawn.pixels), torch.from_numpy(drawn.labels))
