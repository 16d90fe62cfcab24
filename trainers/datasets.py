"""Labelled images that stay on the device, and who trains on which of them when."""

import dataclasses
import hashlib
from collections.abc import Callable, Mapping

import torch

from trainers import errors

# Which images are for testing never depends on the run's own seed, or runs could not be compared.
SPLIT_SEED = 0
TEST_SHARE = 0.2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Dataset:
    """One data set, in two parts, whole on every rank."""

    #: Name as in `--dataset`.
    name: str
    #: Raw pixels, uint8 [N, C, H, W].
    train_images: torch.Tensor
    #: Class numbers, int64 [N].
    train_labels: torch.Tensor
    #: Raw pixels, uint8 [M, C, H, W].
    test_images: torch.Tensor
    #: Class numbers, int64 [M].
    test_labels: torch.Tensor
    #: Number of classes.
    num_classes: int
    #: Mean of the raw training pixels.
    mean: float
    #: Standard deviation of the raw training pixels.
    std: float

    def to(self, device: torch.device) -> "Dataset":
        """Return the same data on another device."""
        return dataclasses.replace(
            self,
            train_images=self.train_images.to(device),
            train_labels=self.train_labels.to(device),
            test_images=self.test_images.to(device),
            test_labels=self.test_labels.to(device),
        )

    def normalise(self, images: torch.Tensor) -> torch.Tensor:
        """Turn raw pixels into float32 of mean 0 and standard deviation 1."""
        return (images.float() - self.mean) / self.std


def load_digits() -> Dataset:
    """Load scikit-learn's 1,797 scanned digits, 8 x 8 pixels of 0 to 16; nothing is fetched."""
    try:
        from sklearn import datasets as sklearn_datasets
    except ImportError as error:
        raise errors.UsageError(
            f"--dataset digits needs scikit-learn, which can't be imported ({error}):"
            " install it beside PyTorch."
        ) from error
    digits = sklearn_datasets.load_digits()
    images = torch.from_numpy(digits.images).to(torch.uint8).unsqueeze(1)
    labels = torch.from_numpy(digits.target).to(torch.int64)
    order = permutation(SPLIT_SEED, 0, len(images))
    num_test = round(len(images) * TEST_SHARE)
    test, train = order[:num_test], order[num_test:]
    pixels = images[train].double()
    return Dataset(
        name="digits",
        train_images=images[train],
        train_labels=labels[train],
        test_images=images[test],
        test_labels=labels[test],
        num_classes=10,
        mean=pixels.mean().item(),
        std=pixels.std().item(),
    )


DATASETS: Mapping[str, Callable[[], Dataset]] = {"digits": load_digits}


def permutation(seed: int, epoch: int, size: int) -> torch.Tensor:
    """Return the order of an epoch, int64 [size], the same on every rank and for any world size."""
    digest = hashlib.sha256(f"{seed}:{epoch}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8]) >> 1)
    return torch.randperm(size, generator=generator)


def rank_slice(size: int, rank: int, world_size: int) -> slice:
    """Return a rank's part of a batch; parts are disjoint and differ by one image at most."""
    return slice(size * rank // world_size, size * (rank + 1) // world_size)
