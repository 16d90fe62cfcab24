"""UCI's Human Activity Recognition Using Smartphones: its nine inertial channels."""

import argparse
import zipfile
from typing import Any

import numpy
import torch

from trainers import errors
from trainers.data import memory

# Walking, upstairs, downstairs, sitting, standing, laying.
NUM_CLASSES = 6
SIGNALS = ("body_acc", "body_gyro", "total_acc")
# Values of a channel in a window, 2.56 s at 50 Hz.
LENGTH = 128
ROOT = "UCI HAR Dataset"
ADDRESS = "https://archive.ics.uci.edu/dataset/240/human+activity+recognition+using+smartphones"


def load(args: argparse.Namespace) -> memory.Splits:
    """Load windows of a smartphone's motion, float32 [N, 9, 128], and the activity of its owner.

    They are read from the folder, or from the publisher's zip file.
    """
    folder, archive = args.data_dir / ROOT, args.data_dir / f"{ROOT}.zip"
    try:
        is_unpacked = folder.is_dir() or not archive.exists()
        root = folder if is_unpacked else zipfile.Path(archive, f"{ROOT}/")
        parts = [_read_part(root / part, part) for part in ("train", "test")]
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise errors.DataError(
            f"har cannot be read from {args.data_dir} ({error}). Put {archive.name} from {ADDRESS}"
            f" there, or {memory.OTHER_FOLDER}. It has no published checksum, so --download does"
            " not download it."
        ) from error
    return memory.make_splits(*parts, num_classes=NUM_CLASSES, unit="windows")


def _read_part(folder: Any, part: str) -> memory.Pair:
    labels = _read(folder / f"y_{part}.txt", (-1, 1))[:, 0]
    if not numpy.isin(labels, range(1, NUM_CLASSES + 1)).all():
        raise ValueError(f"{folder / f'y_{part}.txt'}: a label is not 1 to {NUM_CLASSES}")
    names = [f"{signal}_{axis}_{part}.txt" for signal in SIGNALS for axis in "xyz"]
    shape = (len(labels), LENGTH)
    signals = [_read(folder / "Inertial Signals" / name, shape) for name in names]
    return torch.from_numpy(numpy.stack(signals, axis=1)), torch.from_numpy(labels).long() - 1


def _read(path: Any, shape: tuple[int, int]) -> numpy.ndarray:
    """Read a table of finite numbers; raise ValueError otherwise."""
    try:
        with path.open() as file:
            table = numpy.loadtxt(file, dtype=numpy.float32, ndmin=2)
        if not numpy.isfinite(table).all():
            raise ValueError("a number is not finite")
        return table.reshape(shape)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
