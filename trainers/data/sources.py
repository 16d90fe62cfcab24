"""Data sets by name."""

import argparse
import importlib.util
import pathlib
from collections.abc import Callable, Mapping

import numpy
import torch
from torch.utils import data as torch_data

from trainers import distributed, errors
from trainers.data import har, memory, vision


def load_digits(args: argparse.Namespace) -> memory.Splits:
    """Return scikit-learn's 1,797 scanned digits, 8 x 8 pixels of 0 to 16; needs no files."""
    # Not imported, which takes 3 s of CPU time.
    package = importlib.util.find_spec("sklearn")
    if package is None or package.origin is None:
        raise errors.UsageError("--dataset digits requires scikit-learn in the same environment.")
    path = pathlib.Path(package.origin).parent / "datasets/data/digits.csv.gz"
    table = torch.from_numpy(numpy.loadtxt(path, dtype=numpy.uint8, delimiter=","))
    images, labels = table[:, :-1].view(-1, 1, 8, 8), table[:, -1].to(torch.int64)
    parts = [(images[part], labels[part]) for part in vision.holdout(len(images))]
    return memory.make_splits(*parts, num_classes=10, unit="images")


def load_synthetic(args: argparse.Namespace) -> memory.Splits:
    """Return one random pattern per class with noise; shape (C, H, W) gives uint8 images."""
    # Independent of --seed, so that runs can be compared.
    generator = torch.Generator().manual_seed(0)
    shape, num_classes = args.synthetic_shape, args.synthetic_classes
    patterns = torch.randn(num_classes, *shape, generator=generator)
    are_images = len(shape) == 3

    def samples_of(labels: torch.Tensor) -> torch.Tensor:
        samples = patterns[labels] + torch.randn(len(labels), *shape, generator=generator)
        return (128 + 32 * samples).clamp(0, 255).to(torch.uint8) if are_images else samples

    def draw(size: int) -> memory.Pair:
        labels = torch.randint(num_classes, (size,), generator=generator)
        return torch.cat([samples_of(chunk) for chunk in labels.split(1000)]), labels

    return memory.make_splits(
        draw(args.synthetic_samples),
        draw(max(args.synthetic_samples // 5, 1)),
        num_classes=num_classes,
        unit="images" if are_images else "samples",
        augment=are_images and not args.no_augmentation,
    )


class Arrays(torch_data.Dataset[tuple[torch.Tensor, int]]):
    """Samples and labels in memory-mapped .npy files; samples of type uint8 are divided by 255."""

    def __init__(self, folder: pathlib.Path, part: str) -> None:
        self._arguments = (folder, part)
        try:
            self.samples, self.labels = samples, labels = [
                numpy.lib.format.open_memmap(folder / f"{part}_{name}.npy", mode="r")
                for name in ("samples", "labels")
            ]
            are_samples = samples.dtype.kind in "biuf" and samples.ndim > 1 and len(samples) > 0
            are_labels = labels.dtype.kind in "iu" and labels.shape == samples.shape[:1]
            if not are_samples or not are_labels or labels.min() < 0:
                found = [f"{array.dtype} {array.shape}" for array in (samples, labels)]
                raise ValueError(f"they contain {' and '.join(found)}")
        except (OSError, ValueError) as error:
            raise errors.DataError(
                f"{folder} has no {part}_samples.npy and {part}_labels.npy for --dataset arrays"
                f" ({error}): save there numbers of shape (N, ...), and for each a class number 0,"
                f" 1, ... as integers of shape (N,), or {memory.OTHER_FOLDER}."
            ) from error

    def __reduce__(self) -> tuple[object, ...]:
        # Each worker process maps the files; pickle would copy them.
        return Arrays, self._arguments

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        sample = torch.from_numpy(numpy.array(self.samples[index], dtype=numpy.float32))
        return sample / 255 if self.samples.dtype == "uint8" else sample, int(self.labels[index])


def load_arrays(args: argparse.Namespace) -> memory.Splits:
    train, evaluation = Arrays(args.data_dir, "train"), Arrays(args.data_dir, "eval")
    shape = train.samples.shape[1:]
    if shape != evaluation.samples.shape[1:]:
        raise errors.DataError(
            f"The samples of training and evaluation in {args.data_dir} have different shapes."
        )
    return memory.Splits(
        train=train,
        eval=evaluation,
        sample_shape=torch.Size(shape),
        num_classes=int(max(train.labels.max(), evaluation.labels.max())) + 1,
        unit="images" if len(shape) == 3 else "samples",
    )


LOADERS: Mapping[str, Callable[[argparse.Namespace], memory.Splits]] = {
    "arrays": load_arrays,
    "digits": load_digits,
    "har": har.load,
    "synthetic": load_synthetic,
    **dict.fromkeys(vision.IN_MEMORY, vision.load),
}


def check_name(name: str) -> str:
    return errors.check_name("--dataset ", name, [*LOADERS, f"{vision.TORCHVISION}NAME"])


def load(args: argparse.Namespace) -> memory.Splits:
    """Read a data set; raise DataError if it cannot be used. Several processes may call it."""
    return LOADERS.get(args.dataset, vision.load)(args)


def load_on_all_ranks(args: argparse.Namespace, dist: distributed.DistInfo) -> memory.Splits:
    """Read a data set, first on one rank of each node; if one rank fails, all ranks raise."""
    for is_turn in (dist.local_rank == 0, dist.local_rank != 0):
        failure: errors.TrainerError | None = None
        try:
            if is_turn:
                splits = load(args)
        except errors.TrainerError as error:
            failure = error
        num_failed = distributed.all_reduce(torch.tensor(int(failure is not None)))
        if num_failed:
            message = f"{args.dataset} cannot be read on another rank: see its error."
            raise failure or errors.DataError(message)
    return splits
