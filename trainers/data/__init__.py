"""Data sets: options, samples in memory or in files, and their order."""

import argparse
import os
import pathlib

from trainers import bounds
from trainers.data import memory, order, sources

DataOptions = sources.DataOptions
Splits = memory.Splits
TensorData = memory.TensorData
load = sources.load
load_on_all_ranks = sources.load_on_all_ranks
permutation = order.permutation
rank_slice = order.rank_slice
stage = sources.stage


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for data."""
    add = parser.add_argument_group("data").add_argument
    add(
        "--dataset",
        type=sources.check_name,
        default="digits",
        metavar="NAME",
        help=f"data set: {', '.join(sorted(sources.NAMES))}, or torchvision:NAME with a class of"
        " torchvision.datasets, such as torchvision:ImageFolder",
    )
    add(
        "--data-dir",
        type=pathlib.Path,
        default=pathlib.Path(os.environ.get("DATA_DIR") or "datasets"),
        help="folder of the data sets; DATA_DIR in the environment changes the default",
    )
    add("--download", action="store_true", help="download missing files from their publisher")
    add("--no-augmentation", action="store_true", help="train without random crops and flips")
    add(
        "--image-size",
        type=bounds.positive,
        metavar="PIXELS",
        help="crop the images of torchvision:NAME to this height and width; default: 224 for"
        " torchvision:ImageFolder, others keep their size",
    )
    add(
        "--synthetic-shape",
        type=parse_shape,
        default=(3, 32, 32),
        help="shape of a sample of --dataset synthetic; C,H,W makes images, others plain numbers",
    )
    add("--synthetic-classes", type=bounds.positive, default=10, help="number of classes")
    add(
        "--synthetic-samples",
        type=bounds.positive,
        default=10_000,
        help="number of training samples",
    )


def read_options(args: argparse.Namespace) -> DataOptions:
    """Return the options for data."""
    return DataOptions(
        folder=args.data_dir,
        download=args.download,
        augment=not args.no_augmentation,
        image_size=args.image_size,
        synthetic_shape=args.synthetic_shape,
        synthetic_classes=args.synthetic_classes,
        synthetic_samples=args.synthetic_samples,
    )


def parse_shape(text: str) -> tuple[int, ...]:
    """Parse `3,32,32`."""
    return tuple(bounds.positive(part) for part in text.split(","))
