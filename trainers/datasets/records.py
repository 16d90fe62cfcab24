"""A data set in memory."""

import dataclasses
import hashlib

import torch

from trainers.datasets import augmentation


@dataclasses.dataclass(frozen=True, kw_only=True)
class Dataset:
    """A data set with a training and a test part, complete on every rank."""

    #: Name as in `--dataset`.
    name: str
    #: Raw samples: pixels, uint8 [N, C, H, W], or signals, float32 [N, C, L] or [N, F].
    train_samples: torch.Tensor
    #: Class numbers, int64 [N].
    train_labels: torch.Tensor
    #: Raw samples as above, [M, ...].
    test_samples: torch.Tensor
    #: Class numbers, int64 [M].
    test_labels: torch.Tensor
    #: Number of classes.
    num_classes: int
    #: Names of the classes; empty if they have none.
    class_names: tuple[str, ...] = ()
    #: Mean of the raw training samples per channel, float32: [C, 1, 1], [C, 1] or [F].
    mean: torch.Tensor
    #: Standard deviation of the raw training samples, of the same shape.
    std: torch.Tensor
    #: Augmentation of training samples: a key of augmentation.AUGMENTATIONS.
    augmentation: str = "none"

    @property
    def sample_shape(self) -> torch.Size:
        """Shape of one sample, without the batch dimension."""
        return self.train_samples.shape[1:]

    @property
    def sample_name(self) -> str:
        """What the samples are, for the unit of the throughput: `images` or `samples`."""
        return "images" if len(self.sample_shape) == 3 else "samples"

    def to(self, device: torch.device) -> "Dataset":
        """Return the same data on another device."""
        return dataclasses.replace(
            self,
            train_samples=self.train_samples.to(device),
            train_labels=self.train_labels.to(device),
            test_samples=self.test_samples.to(device),
            test_labels=self.test_labels.to(device),
            mean=self.mean.to(device),
            std=self.std.to(device),
        )

    def augmented(self, enabled: bool) -> "Dataset":
        """Return the same data, without augmentation unless `enabled`."""
        return self if enabled else dataclasses.replace(self, augmentation="none")

    def augment(
        self, samples: torch.Tensor, indices: torch.Tensor, *, seed: int, epoch: int
    ) -> torch.Tensor:
        """Augment raw training samples; `indices` [B] are their positions in the data set.

        The augmentation of a sample depends only on seed, epoch and index, so it is the same for
        any world size and batch size, and after a resume.
        """
        keys = augmentation.random_keys(indices, seed=seed, epoch=epoch)
        return augmentation.AUGMENTATIONS[self.augmentation](samples, keys)

    def normalise(self, samples: torch.Tensor) -> torch.Tensor:
        """Convert raw samples to float32 with mean 0 and standard deviation 1 per channel."""
        return (samples.float() - self.mean) / self.std

    def train_batch(
        self, indices: torch.Tensor, *, seed: int, epoch: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return normalised samples and their labels, on the device of the data."""
        samples = self.augment(self.train_samples[indices], indices, seed=seed, epoch=epoch)
        return self.normalise(samples), self.train_labels[indices]

    def fingerprint(self) -> str:
        """Return a hash of all samples and labels, with 16 digits."""
        digest = hashlib.sha256()
        parts = (self.train_samples, self.train_labels, self.test_samples, self.test_labels)
        for part in parts:
            digest.update(f"{part.dtype}{tuple(part.shape)}".encode())
            digest.update(part.cpu().contiguous().numpy().data)
        return digest.hexdigest()[:16]


def make(
    name: str,
    *,
    train: tuple[torch.Tensor, torch.Tensor],
    test: tuple[torch.Tensor, torch.Tensor],
    num_classes: int,
    class_names: tuple[str, ...] = (),
    augmentation: str = "none",
) -> Dataset:
    """Return a data set from (samples, labels), with the statistics of the training part."""
    mean, std = channel_statistics(train[0])
    return Dataset(
        name=name,
        train_samples=train[0],
        train_labels=train[1],
        test_samples=test[0],
        test_labels=test[1],
        num_classes=num_classes,
        class_names=class_names,
        mean=mean,
        std=std,
        augmentation=augmentation,
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
    return (
        torch.stack(means).float().reshape(shape),
        torch.stack(stds).float().reshape(shape),
    )
