"""Data sets that are held in memory as tensors, and their augmentation."""

import dataclasses
import hashlib
from typing import Any

import torch
from torch.utils import data as torch_data

from trainers.data import augmentation


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TensorData(torch_data.Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Samples and labels in memory; augmented and normalized in batches, on the device."""

    #: Raw samples: pixels, uint8 [N, C, H, W], or values, float32 [N, C, L] or [N, F].
    samples: torch.Tensor
    #: Class numbers, int64 [N].
    labels: torch.Tensor
    #: Mean of the raw training samples per channel, float32: [C, 1, 1], [C, 1] or [F].
    mean: torch.Tensor
    #: Standard deviation of the raw training samples, of the same shape.
    std: torch.Tensor
    #: `none`, or a key of augmentation.AUGMENTATIONS.
    augmentation: str = "none"

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return raw samples and labels; `index` is int64 [B]."""
        return self.samples[index], self.labels[index]

    @property
    def num_bytes(self) -> int:
        """Size of samples and labels."""
        return self.samples.nbytes + self.labels.nbytes

    def to(self, device: torch.device) -> "TensorData":
        """Return the same data on another device."""
        names = ("samples", "labels", "mean", "std")
        return dataclasses.replace(self, **{name: getattr(self, name).to(device) for name in names})

    def prepare(
        self, samples: torch.Tensor, indices: torch.Tensor, *, seed: int, epoch: int
    ) -> torch.Tensor:
        """Augment and normalize raw samples [B, ...]; `indices` [B] are their positions.

        The augmentation of a sample depends only on seed, epoch and index, so it is the same for
        any world size and batch size, and after a resume.
        """
        if self.augmentation != "none":
            keys = augmentation.random_keys(indices, seed=seed, epoch=epoch)
            samples = augmentation.AUGMENTATIONS[self.augmentation](samples, keys)
        return self.normalize(samples)

    def normalize(self, samples: torch.Tensor) -> torch.Tensor:
        """Convert raw samples to float32 with mean 0 and standard deviation 1 per channel."""
        return (samples.float() - self.mean) / self.std


@dataclasses.dataclass(frozen=True, kw_only=True)
class Splits:
    """A data set for classification: training and evaluation part."""

    #: A TensorData, or a map-style data set of torch with samples (input, class number).
    train: torch_data.Dataset[Any]
    #: The same for evaluation, without augmentation.
    eval: torch_data.Dataset[Any]
    #: Shape of one input of the model, without the batch dimension.
    sample_shape: torch.Size
    #: Number of classes.
    num_classes: int
    #: What a sample is, in the plural, for the unit of the throughput.
    unit: str


def make_splits(
    train: tuple[torch.Tensor, torch.Tensor],
    eval: tuple[torch.Tensor, torch.Tensor],
    *,
    num_classes: int,
    unit: str,
    augmentation: str = "none",
) -> Splits:
    """Return the splits of (samples, labels), with the statistics of the training part."""
    mean, std = channel_statistics(train[0])
    samples, labels = train
    eval_samples, eval_labels = eval
    return Splits(
        train=TensorData(
            samples=samples, labels=labels, mean=mean, std=std, augmentation=augmentation
        ),
        eval=TensorData(samples=eval_samples, labels=eval_labels, mean=mean, std=std),
        sample_shape=samples.shape[1:],
        num_classes=num_classes,
        unit=unit,
    )


def channel_statistics(samples: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return mean and standard deviation of each channel, exact to float32.

    A constant channel gets the standard deviation 1.
    """
    means, stds = [], []
    for channel in range(samples.shape[1]):
        values = samples[:, channel].flatten()
        if values.dtype == torch.uint8:
            # A histogram instead of a float64 copy, which would take 1.2 GB for CIFAR.
            counts = torch.bincount(values, minlength=256).double()
            levels = torch.arange(256, dtype=torch.float64)
            mean = (counts * levels).sum() / counts.sum()
            std = ((counts * (levels - mean) ** 2).sum() / counts.sum()).sqrt()
        else:
            mean = values.double().mean()
            std = values.double().std(correction=0)
        means.append(mean)
        stds.append(std if std > 0 else torch.ones((), dtype=torch.float64))
    shape = (-1,) + (1,) * (samples.dim() - 2)
    return torch.stack(means).float().reshape(shape), torch.stack(stds).float().reshape(shape)


# Samples that are hashed in full; of all others only the sum counts.
HASHED_SAMPLES = 256


def fingerprint(dataset: torch_data.Dataset[Any]) -> str:
    """Return 16 digits that differ if the data differs, without hashing all of it.

    Covers the length; of data in memory also types, shapes, the sum of all values and labels, and
    the content of 256 samples at equal distances.
    """
    length = len(dataset) if hasattr(dataset, "__len__") else -1  # type: ignore[arg-type]
    digest = hashlib.sha256(f"{type(dataset).__name__}:{length}".encode())
    if isinstance(dataset, TensorData):
        step = max(1, length // HASHED_SAMPLES)
        for part in (dataset.samples, dataset.labels):
            total = part.sum(dtype=torch.float64 if part.is_floating_point() else torch.int64)
            digest.update(f"{part.dtype}{tuple(part.shape)}{total.item()}".encode())
            digest.update(part[::step].cpu().contiguous().numpy().data)
    return digest.hexdigest()[:16]
