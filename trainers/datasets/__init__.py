"""Labelled samples that stay on the device, and who trains on which of them when."""

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

#: The files of those data sets that come from files.
SOURCES: Mapping[str, staging.Source] = {
    "cifar10": cifar.CIFAR10_SOURCE,
    "cifar100": cifar.CIFAR100_SOURCE,
    "har": har.SOURCE,
    "mnist": mnist.SOURCE,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what says where data is and what it looks like."""
    group = parser.add_argument_group("data")
    group.add_argument("--dataset", choices=sorted(DATASETS), default="digits")
    group.add_argument(
        "--data-dir",
        type=pathlib.Path,
        default=pathlib.Path(os.environ.get("DATA_DIR") or "datasets"),
        help="folder of the data sets, by default what DATA_DIR names",
    )
    group.add_argument(
        "--download",
        action="store_true",
        help="fetch what is missing from where the data set is published",
    )
    group.add_argument(
        "--no-augmentation",
        action="store_true",
        help="train on the images as they are: no random crops and flips",
    )
    group.add_argument(
        "--synthetic-shape",
        type=options.parse_shape,
        default=(3, 32, 32),
        help="of a sample of --dataset synthetic: C,H,W makes images, anything else numbers",
    )
    group.add_argument("--synthetic-classes", type=bounds.positive, default=10)
    group.add_argument(
        "--synthetic-samples", type=bounds.positive, default=10_000, help="for training"
    )


def read_options(arguments: argparse.Namespace) -> Options:
    """Return what the command line says about data."""
    return Options(
        folder=arguments.data_dir,
        download=arguments.download,
        augment=not arguments.no_augmentation,
        synthetic_shape=arguments.synthetic_shape,
        synthetic_classes=arguments.synthetic_classes,
        synthetic_samples=arguments.synthetic_samples,
    )


def stage(name: str, wanted: Options) -> None:
    """See to it that the data set's files are in their folder; any number of processes may call."""
    if name in SOURCES:
        staging.stage(SOURCES[name], wanted.folder, download=wanted.download)


def load(name: str, wanted: Options) -> Dataset:
    """Read a data set that is in its folder."""
    return DATASETS[name](wanted).augmented(wanted.augment)


def load_on_all_ranks(
    name: str, wanted: Options, place: ranks.Ranks, device: torch.device
) -> Dataset:
    """Stage a data set once a node and load it on every rank, onto the device; all must call.

    Where one node fails, every rank ends: none waits for data that does not come.
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
        raise errors.DataError(f"The data set {name} is missing on a node: see that node's error.")
    return load(name, wanted).to(device)
