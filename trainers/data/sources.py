"""Data sets by name, and their staging once per node."""

import argparse
import pathlib

import numpy
import torch
from torch.utils import data as torch_data

from trainers import distributed, errors
from trainers.data import files, har, memory, vision

NAMES = ("arrays", "digits", "har", "synthetic", *vision.IN_MEMORY)
# Synthetic data does not depend on --seed, so that runs can be compared.
SYNTHETIC_SEED = 0
CHUNK = 1000


def check_name(name: str) -> str:
    """Return the name of a data set; raise UsageError if it is unknown."""
    if name.startswith(vision.TORCHVISION):
        return name  # its class is looked up when the data is loaded
    return errors.check_name("--dataset ", name, [*NAMES, f"{vision.TORCHVISION}NAME"])


def stage(args: argparse.Namespace) -> None:
    """Unpack or download the files of `--dataset` if necessary.

    Any number of processes may call it at once. Raises DataError if it fails.
    """
    if args.dataset == "har":
        har.stage(args.data_dir)
    elif args.dataset in vision.IN_MEMORY or args.dataset.startswith(vision.TORCHVISION):
        vision.stage(args)


def load(args: argparse.Namespace) -> memory.Splits:
    """Read a staged data set.

    Raises DataError if it is missing or damaged, and UsageError if it cannot be used.
    """
    try:
        match args.dataset:
            case "arrays":
                return load_arrays(args.data_dir)
            case "digits":
                return load_digits()
            case "har":
                return har.load(args.data_dir)
            case "synthetic":
                return load_synthetic(args)
        return vision.load(args)
    except OSError as error:
        raise errors.DataError(f"cannot read the data set {args.dataset}: {error}.") from error


def load_on_all_ranks(args: argparse.Namespace, dist: distributed.DistInfo) -> memory.Splits:
    """Stage a data set once per node, and read it on every rank; all ranks must call it.

    If one rank fails, all ranks raise DataError.
    """
    for step in (stage, load) if dist.local_rank == 0 else (None, load):
        failure: errors.TrainerError | None = None
        try:
            splits = step(args) if step else None
        except errors.TrainerError as error:
            failure = error
        num_failed = distributed.all_reduce(torch.tensor(int(failure is not None)))
        if failure is not None:
            raise failure
        if num_failed:
            raise errors.DataError(f"{args.dataset} cannot be read on another rank: see its error.")
    return splits


def load_digits() -> memory.Splits:
    """Return scikit-learn's 1,797 scanned digits, 8 x 8 pixels of 0 to 16; needs no files."""
    module = errors.import_package("sklearn.datasets", "scikit-learn", "--dataset digits")
    digits = module.load_digits()
    images = torch.from_numpy(digits.images).to(torch.uint8).unsqueeze(1)
    labels = torch.from_numpy(digits.target).to(torch.int64)
    parts = [(images[part], labels[part]) for part in vision.holdout(len(images))]
    return memory.make_splits(*parts, num_classes=10, unit="images")


def load_synthetic(args: argparse.Namespace) -> memory.Splits:
    """Return one random pattern per class with noise; shape (C, H, W) gives uint8 images."""
    generator = torch.Generator().manual_seed(SYNTHETIC_SEED)
    shape, num_classes = args.synthetic_shape, args.synthetic_classes
    patterns = torch.randn(num_classes, *shape, generator=generator)
    are_images = len(shape) == 3

    def draw(size: int) -> tuple[torch.Tensor, torch.Tensor]:
        labels = torch.randint(num_classes, (size,), generator=generator)
        parts = []
        for chunk in labels.split(CHUNK):
            samples = patterns[chunk] + torch.randn(len(chunk), *shape, generator=generator)
            if are_images:
                samples = (128 + 32 * samples).clamp(0, 255).to(torch.uint8)
            parts.append(samples)
        return torch.cat(parts), labels

    return memory.make_splits(
        draw(args.synthetic_samples),
        draw(max(args.synthetic_samples // 5, 1)),
        num_classes=num_classes,
        unit="images" if are_images else "samples",
        augmentation="crop-flip" if are_images and not args.no_augmentation else "none",
    )


class Arrays(torch_data.Dataset[tuple[torch.Tensor, int]]):
    """Samples and labels in memory-mapped .npy files; only the requested sample is read.

    Samples become float32; those of type uint8 are divided by 255.
    """

    def __init__(self, folder: pathlib.Path, part: str) -> None:
        self._arguments = (folder, part)
        self.samples = _map_array(folder / f"{part}_samples.npy")
        self.labels = _map_array(folder / f"{part}_labels.npy")
        samples, labels = self.samples, self.labels
        if (
            samples.dtype.kind not in "biuf"
            or samples.ndim < 2
            or labels.dtype.kind not in "iu"
            or labels.shape != samples.shape[:1]
            or labels.size == 0
            or labels.min() < 0
        ):
            raise errors.DataError(
                f"{folder / part}_samples.npy contains {samples.dtype} {samples.shape}, and"
                f" {part}_labels.npy contains {labels.dtype} {labels.shape}: save numbers of shape"
                " (N, ...), and for each a class number 0, 1, ... as integers of shape (N,)."
            )

    def __reduce__(self) -> tuple[object, ...]:
        # Each worker process maps the files; pickle would copy them.
        return Arrays, self._arguments

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        sample = torch.from_numpy(numpy.array(self.samples[index], dtype=numpy.float32))
        return sample / 255 if self.samples.dtype == "uint8" else sample, int(self.labels[index])


def load_arrays(folder: pathlib.Path) -> memory.Splits:
    """Map train_samples.npy, train_labels.npy, eval_samples.npy and eval_labels.npy."""
    train, evaluation = Arrays(folder, "train"), Arrays(folder, "eval")
    shape, eval_shape = train.samples.shape[1:], evaluation.samples.shape[1:]
    if shape != eval_shape:
        raise errors.DataError(
            f"The samples in {folder} have the shape {shape} for training and {eval_shape} for"
            " evaluation: save samples of one shape."
        )
    return memory.Splits(
        train=train,
        eval=evaluation,
        sample_shape=torch.Size(shape),
        num_classes=int(max(train.labels.max(), evaluation.labels.max())) + 1,
        unit="images" if len(shape) == 3 else "samples",
    )


def _map_array(path: pathlib.Path) -> numpy.ndarray:
    try:
        return numpy.lib.format.open_memmap(path, mode="r")
    except FileNotFoundError as error:
        raise errors.DataError(
            f"{path} does not exist: --dataset arrays reads train_samples.npy, train_labels.npy,"
            f" eval_samples.npy and eval_labels.npy. Put them there, or {files.OTHER_FOLDER}."
        ) from error
    except ValueError as error:
        raise errors.DataError(
            f"{path} is not an array of numbers ({error}): replace it."
        ) from error
