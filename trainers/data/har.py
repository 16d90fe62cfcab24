"""UCI's Human Activity Recognition Using Smartphones: its nine inertial channels."""

import numpy
import torch

from trainers.datasets import options, records, staging

CHANNELS = tuple(
    f"{signal}_{axis}" for signal in ("body_acc", "body_gyro", "total_acc") for axis in "xyz"
)
# Readings of a window, 2.56 s at 50 Hz.
LENGTH = 128
CLASSES = ("Walking", "Upstairs", "Downstairs", "Sitting", "Standing", "Laying")
ROOT = "UCI HAR Dataset"


def signal_path(part: str, channel: str) -> str:
    """Return the path of a channel of `train` or `test`."""
    return f"{ROOT}/{part}/Inertial Signals/{channel}_{part}.txt"


def label_path(part: str) -> str:
    """Return the path of the labels of `train` or `test`."""
    return f"{ROOT}/{part}/y_{part}.txt"


SOURCE = staging.Source(
    title="UCI HAR",
    files=tuple(
        path
        for part in ("train", "test")
        for path in (label_path(part), *(signal_path(part, channel) for channel in CHANNELS))
    ),
    archives=(
        staging.Archive(
            path="UCI HAR Dataset.zip",
            address="https://archive.ics.uci.edu/dataset/240/"
            "human+activity+recognition+using+smartphones",
        ),
    ),
)


def load_har(wanted: options.Options) -> records.Dataset:
    """Load windows of a smartphone's motion, float32 [N, 9, 128], and the activity of its owner."""
    return records.make(
        "har",
        train=_read_part(wanted, "train"),
        test=_read_part(wanted, "test"),
        num_classes=len(CLASSES),
        class_names=CLASSES,
    )


def _read_part(wanted: options.Options, part: str) -> tuple[torch.Tensor, torch.Tensor]:
    labels = _read(wanted, label_path(part), width=1).reshape(-1)
    whole = numpy.isin(labels, numpy.arange(1, len(CLASSES) + 1)).all()
    if not whole:
        raise staging.damaged(wanted.folder / label_path(part), "a label is not 1 to 6")
    signals = numpy.empty((len(labels), len(CHANNELS), LENGTH), dtype=numpy.float32)
    for number, channel in enumerate(CHANNELS):
        path = signal_path(part, channel)
        windows = _read(wanted, path, width=LENGTH)
        if len(windows) != len(labels):
            why = f"{len(windows)} windows, {len(labels)} labels"
            raise staging.damaged(wanted.folder / path, why)
        signals[:, number] = windows
    return torch.from_numpy(signals), torch.from_numpy(labels.astype(numpy.int64) - 1)


def _read(wanted: options.Options, path: str, *, width: int) -> numpy.ndarray:
    content = staging.read(wanted.folder, SOURCE, path)
    try:
        return parse_table(content, width)
    except ValueError as error:
        raise staging.damaged(wanted.folder / path, str(error)) from error


def parse_table(content: bytes, width: int) -> numpy.ndarray:
    """Parse lines of `width` numbers, float32 [lines, width].

    Raises ValueError if the content has another format, with the line if it is known.
    """
    words = content.split()
    lines = content.count(b"\n") + (not content.endswith(b"\n"))
    if not words or len(words) != lines * width:
        for number, line in enumerate(content.splitlines(), start=1):
            if len(line.split()) != width:
                raise ValueError(f"line {number} has {len(line.split())} numbers, not {width}")
        raise ValueError("no lines")
    try:
        values = numpy.array(words, dtype="S").astype(numpy.float32)
    except ValueError:
        values = numpy.array([_number(word) for word in words], dtype=numpy.float32)
    if not numpy.isfinite(values).all():
        line = int(numpy.flatnonzero(~numpy.isfinite(values))[0]) // width + 1
        raise ValueError(f"line {line} has a value that is not a finite number")
    return values.reshape(-1, width)


def _number(word: bytes) -> float:
    try:
        return float(word)
    except ValueError:
        return float("nan")
