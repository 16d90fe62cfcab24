"""Data sets that are held in memory as tensors, and their augmentation."""

import dataclasses
import hashlib
from typing import Any

import torch
from torch.utils import data as torch_data

from trainers.data import batches

# Pixels added on each side before the crop, as usual for CIFAR.
PADDING = 4
HASHED_SAMPLES = 256
Pair = tuple[torch.Tensor, torch.Tensor]
OTHER_FOLDER = "set another folder with --data-dir FOLDER (or DATA_DIR in the environment)"


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TensorData(torch_data.Dataset[Pair]):
    """Samples and labels in memory; augmented and normalized in batches."""

    #: Raw samples: pixels, uint8 [N, C, H, W], or values, float32 [N, C, L] or [N, F].
    samples: torch.Tensor
    #: Class numbers, int64 [N].
    labels: torch.Tensor
    #: Mean of the raw training samples per channel, float32: [C, 1, 1], [C, 1] or [F].
    mean: torch.Tensor
    #: Standard deviation of the raw training samples, of the same shape.
    std: torch.Tensor
    #: Whether images are cropped and flipped at random.
    augment: bool = False

    def __len__(self) -> int:
        return len(self.labels)

    def to(self, device: torch.device) -> "TensorData":
        names = ("samples", "labels", "mean", "std")
        return dataclasses.replace(self, **{name: getattr(self, name).to(device) for name in names})

    def draws(self, seed: int, epoch: int) -> torch.Tensor | None:
        """Return the random numbers of the samples for an epoch, int64 [N], if there are any."""
        if not self.augment:
            return None
        generator = torch.Generator().manual_seed(batches.seed_of("augmentation", seed, epoch))
        draws = torch.randint(2 * (2 * PADDING + 1) ** 2, (len(self),), generator=generator)
        return draws.to(self.labels.device)

    def batch(self, indices: torch.Tensor | slice, draws: torch.Tensor | None = None) -> Pair:
        """Return augmented samples, float32 with mean 0 and variance 1 per channel, and labels."""
        samples = self.samples[indices]
        if draws is not None:
            samples = crop_and_flip(samples, draws[indices])
        return (samples.float() - self.mean) / self.std, self.labels[indices]


def crop_and_flip(images: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
    """Pad images [B, C, H, W] with zeros, crop H x W at `draws` [B], and flip half of them."""
    height, width = images.shape[-2:]
    padded = torch.nn.functional.pad(images, (PADDING,) * 4).permute(0, 2, 3, 1)
    draws, offsets = draws[:, None], 2 * PADDING + 1
    rows = torch.arange(height, device=images.device) + draws // 2 // offsets
    columns = torch.arange(width, device=images.device)
    columns = torch.where(draws % 2 == 1, columns.flip(0), columns) + draws // 2 % offsets
    batch = torch.arange(len(images), device=images.device)[:, None, None]
    return padded[batch, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Splits:
    """A data set for classification: training and evaluation part."""

    #: A TensorData, or a map-style data set of torch with samples (input, class number).
    train: torch_data.Dataset[Any]
    eval: torch_data.Dataset[Any]
    #: Shape of one input of the model, without the batch dimension.
    sample_shape: torch.Size
    num_classes: int
    #: What a sample is, in the plural, for the unit of the throughput.
    unit: str


def make_splits(train: Pair, evaluation: Pair, *, augment: bool = False, **kind: Any) -> Splits:
    """Return the splits of (samples, labels), with the statistics of the training part."""
    samples, labels = train
    # In float64, a channel at a time, which limits the memory. A constant channel gets 1.
    pairs = [torch.std_mean(part.double(), correction=0) for part in samples.unbind(1)]
    shape = (-1,) + (1,) * (samples.dim() - 2)
    std, mean = (torch.stack(values).float().reshape(shape) for values in zip(*pairs, strict=True))
    statistics = {"mean": mean, "std": torch.where(std > 0, std, 1.0)}
    return Splits(
        train=TensorData(samples=samples, labels=labels, augment=augment, **statistics),
        eval=TensorData(samples=evaluation[0], labels=evaluation[1], **statistics),
        sample_shape=samples.shape[1:],
        **kind,
    )


def fingerprint(dataset: torch_data.Dataset[Any]) -> str:
    """Return 16 digits of the length, and in memory of types, sums and some 256 samples."""
    length = len(dataset) if hasattr(dataset, "__len__") else -1  # type: ignore[arg-type]
    digest = hashlib.sha256(f"{type(dataset).__name__}:{length}".encode())
    if isinstance(dataset, TensorData):
        for part in (dataset.samples, dataset.labels):
            total = part.sum(dtype=torch.float64).item()
            digest.update(f"{part.dtype}{tuple(part.shape)}{total}".encode())
            digest.update(part[:: max(1, length // HASHED_SAMPLES)].contiguous().numpy().data)
    return digest.hexdigest()[:16]
