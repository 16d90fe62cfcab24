"""UCI's Human Activity Recognition Using Smartphones: its nine inertial channels."""

import contextlib
import pathlib
import zipfile

import numpy
import torch

from trainers import errors
from trainers.data import files, memory

# Walking, upstairs, downstairs, sitting, standing, laying.
NUM_CLASSES = 6
CHANNELS = tuple(
    f"{signal}_{axis}" for signal in ("body_acc", "body_gyro", "total_acc") for axis in "xyz"
)
# Values of a channel in a window, 2.56 s at 50 Hz.
LENGTH = 128
ROOT = "UCI HAR Dataset"
ADDRESS = "https://archive.ics.uci.edu/dataset/240/human+activity+recognition+using+smartphones"


def stage(folder: pathlib.Path) -> None:
    """Unpack the publisher's zip file if necessary; raise DataError if there is none."""

    def unpack(temporary: pathlib.Path) -> None:
        with zipfile.ZipFile(archive) as members:
            names = [name for name in members.namelist() if name.startswith(f"{ROOT}/")]
            members.extractall(temporary, names)

    archive = folder / f"{ROOT}.zip"
    paths = [*_paths(folder, "train"), *_paths(folder, "test")]
    advice = (
        f"Put {archive.name} from {ADDRESS} there, or {files.OTHER_FOLDER}. It has no published"
        " checksum, so --download does not download it."
    )
    if archive.is_file() and not all(path.is_file() for path in paths):
        files.add(folder, unpack, advice)
    for path in paths:
        if not path.is_file():
            raise errors.DataError(f"har is not in {folder}: {path} does not exist. {advice}")


def load(folder: pathlib.Path) -> memory.Splits:
    """Load windows of a smartphone's motion, float32 [N, 9, 128], and the activity of its owner."""
    return memory.make_splits(
        _load_part(folder, "train"),
        _load_part(folder, "test"),
        num_classes=NUM_CLASSES,
        unit="windows",
    )


def read_table(path: pathlib.Path, width: int) -> numpy.ndarray:
    """Read lines of `width` finite numbers, float32 [lines, width]; raise DataError otherwise."""
    rows = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        with contextlib.suppress(ValueError), numpy.errstate(over="ignore"):
            row = numpy.array([float(word) for word in line.split()], dtype=numpy.float32)
            if len(row) == width and numpy.isfinite(row).all():
                rows.append(row)
        if len(rows) < number:
            raise _damaged(path, f"line {number} is not {width} finite number(s)")
    return numpy.array(rows).reshape(-1, width)


def _paths(folder: pathlib.Path, part: str) -> list[pathlib.Path]:
    """Return the files of the labels and of each channel of `train` or `test`."""
    root = folder / ROOT / part
    signals = [root / "Inertial Signals" / f"{channel}_{part}.txt" for channel in CHANNELS]
    return [root / f"y_{part}.txt", *signals]


def _load_part(folder: pathlib.Path, part: str) -> tuple[torch.Tensor, torch.Tensor]:
    labels_path, *signal_paths = _paths(folder, part)
    labels = read_table(labels_path, 1)[:, 0]
    if not numpy.isin(labels, range(1, NUM_CLASSES + 1)).all():
        raise _damaged(labels_path, f"a label is not 1 to {NUM_CLASSES}")
    signals = [read_table(path, LENGTH) for path in signal_paths]
    for path, windows in zip(signal_paths, signals, strict=True):
        if len(windows) != len(labels):
            raise _damaged(path, f"{len(windows)} windows, {len(labels)} labels")
    return torch.from_numpy(numpy.stack(signals, axis=1)), torch.from_numpy(labels).long() - 1


def _damaged(path: pathlib.Path, why: str) -> errors.DataError:
    return errors.DataError(f"{path} is damaged ({why}): replace it.")
