"""Data sets: files, options and order of samples."""

import argparse
import os
import pathlib
from collections.abc import Callable, Mapping

import torch

from trainers import bounds, errors, ranks
from trainers.datasets import cifar, digits, har, mnist, options, order, records, staging, synthetic

Dataset = records.Dataset
Options = options.Options
permutation = order.permutation
rank_slice = order.rank_slice
load_digits = digits.load_digits

DATASETS: Mapping[str, Callable[[Options], Dataset]] = {
    "cifar10": cifar.load_cifar10,
    "cifar100": cifar.load_cifar100,
    "digits": digits.load_digits,
    "har": har.load_har,
    "mnist": mnist.load_mnist,
    "synthetic": synthetic.load_synthetic,
}

#: The files of data sets that are read from files.
SOURCES: Mapping[str, staging.Source] = {
    "cifar10": cifar.CIFAR10_SOURCE,
    "cifar100": cifar.CIFAR100_SOURCE,
    "har": har.SOURCE,
    "mnist": mnist.SOURCE,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for data."""
    group = parser.add_argument_group("data")
    group.add_argument("--dataset", choices=sorted(DATASETS), default="digits", help="data set")
    group.add_argument(
        "--data-dir",
        type=pathlib.Path,
        default=pathlib.Path(os.environ.get("DATA_DIR") or "datasets"),
        help="folder of the data sets; DATA_DIR in the environment changes the default",
    )
    group.add_argument(
        "--download",
        action="store_true",
        help="download missing files from the publisher of the data set",
    )
    group.add_argument(
        "--no-augmentation",
        action="store_true",
        help="train without random crops and flips",
    )
    group.add_argument(
        "--synthetic-shape",
        type=options.parse_shape,
        default=(3, 32, 32),
        help="shape of a sample of --dataset synthetic; C,H,W makes images, others plain numbers",
    )
    group.add_argument(
        "--synthetic-classes", type=bounds.positive, default=10, help="number of classes"
    )
    group.add_argument(
        "--synthetic-samples",
        type=bounds.positive,
        default=10_000,
        help="number of training samples",
    )


def read_options(arguments: argparse.Namespace) -> Options:
    """Return the options for data."""
    return Options(
        folder=arguments.data_dir,
        download=arguments.download,
        augment=not arguments.no_augmentation,
        synthetic_shape=arguments.synthetic_shape,
        synthetic_classes=arguments.synthetic_classes,
        synthetic_samples=arguments.synthetic_samples,
    )


def stage(name: str, wanted: Options) -> None:
    """Stage the files of a data set; any number of processes may call it at once."""
    if name in SOURCES:
        staging.stage(SOURCES[name], wanted.folder, download=wanted.download)


def load(name: str, wanted: Options) -> Dataset:
    """Read a staged data set."""
    return DATASETS[name](wanted).augmented(wanted.augment)


def load_on_all_ranks(
    name: str, wanted: Options, place: ranks.Ranks, device: torch.device
) -> Dataset:
    """Stage a data set once per node and load it on every rank's device; all ranks must call it.

    If staging fails on one node, every rank ends.
    """
    failure: errors.TrainerError | None = None
    if place.local_rank == 0:
        try:
            stage(name, wanted)
        except errors.TrainerError as error:
            failure = error
    failed = torch.tensor([failure is not None], dtype=torch.int64, device=device)
    ranks.sum_over_ranks(failed)
    if failure is not None:
        raise failure
    if failed.item():
        raise errors.DataError(
            f"The data set {name} is missing on another node: see the error of that node."
        )
    return load(name, wanted).to(device)
