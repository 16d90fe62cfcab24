"""A data set in memory."""

import dataclasses
import hashlib

import torch

from trainers.datasets import augmentation


@dataclasses.dataclass(frozen=True, kw_only=True)
class Dataset:
    """One data set, in two parts, whole on every rank."""

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
    #: What the classes are called; empty where they have no names.
    class_names: tuple[str, ...] = ()
    #: Mean of the raw training samples, float32, one number a channel: [C, 1, 1], [C, 1] or [F].
    mean: torch.Tensor
    #: Standard deviation of them, of the same shape.
    std: torch.Tensor
    #: What is done to training samples: a key of augmentation.AUGMENTATIONS.
    augmentation: str = "none"

    @property
    def sample_shape(self) -> torch.Size:
        """Shape of one sample, without the batch."""
        return self.train_samples.shape[1:]

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

    def augmented(self, wanted: bool) -> "Dataset":
        """Return the same data, whose training samples stay as they are unless it is wanted."""
        return self if wanted else dataclasses.replace(self, augmentation="none")

    def augment(
        self, samples: torch.Tensor, indices: torch.Tensor, *, seed: int, epoch: int
    ) -> torch.Tensor:
        """Change raw training samples at random; `indices` [B] are their places in the set.

        The change of a sample follows from seed, epoch and index alone, so it is the same for any
        world size, batch size and after a resume.
        """
        keys = augmentation.random_keys(indices, seed=seed, epoch=epoch)
        return augmentation.AUGMENTATIONS[self.augmentation](samples, keys)

    def normalise(self, samples: torch.Tensor) -> torch.Tensor:
        """Turn raw samples into float32 of mean 0 and standard deviation 1 in each channel."""
        return (samples.float() - self.mean) / self.std

    def train_batch(
        self, indices: torch.Tensor, *, seed: int, epoch: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return samples as the model wants them, and their labels; all on the data's device."""
        samples = self.augment(self.train_samples[indices], indices, seed=seed, epoch=epoch)
        return self.normalise(samples), self.train_labels[indices]

    def fingerprint(self) -> str:
        """Return a hash of all samples and labels, 16 digits: another one is another data set."""
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
    """Return a data set of (samples, labels), its statistics taken from the training part."""
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

    A channel without any change gets the standard deviation 1.
    """
    means, stds = [], []
    for channel in range(samples.shape[1]):
        values = samples[:, channel].flatten()
        if values.dtype == torch.uint8:
            # A histogram instead of a float64 copy, which for CIFAR would take 1.2 GB.
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
