"""CIFAR-10 and CIFAR-100, in their binary format or in torchvision's Python format."""

import io
import pickle
from typing import Any

import numpy
import torch

from trainers.datasets import options, records, staging

PIXELS = 3 * 32 * 32
# Addresses and checksums as on https://www.cs.toronto.edu/~kriz/cifar.html
ADDRESS = "https://www.cs.toronto.edu/~kriz/"
CIFAR10_SOURCE = staging.Source(
    title="CIFAR-10",
    files=(
        *(f"cifar-10-batches-bin/data_batch_{number}.bin" for number in range(1, 6)),
        "cifar-10-batches-bin/test_batch.bin",
    ),
    archives=(
        staging.Archive(
            path="cifar-10-binary.tar.gz",
            address=f"{ADDRESS}cifar-10-binary.tar.gz",
            md5="c32a1d4ab5d03f1284b67883e8d87530",
        ),
    ),
    other_files=(
        *(f"cifar-10-batches-py/data_batch_{number}" for number in range(1, 6)),
        "cifar-10-batches-py/test_batch",
    ),
)
CIFAR100_SOURCE = staging.Source(
    title="CIFAR-100",
    files=("cifar-100-binary/train.bin", "cifar-100-binary/test.bin"),
    archives=(
        staging.Archive(
            path="cifar-100-binary.tar.gz",
            address=f"{ADDRESS}cifar-100-binary.tar.gz",
            md5="03b5dce01913d631647c71ecec9e9cb8",
        ),
    ),
    other_files=("cifar-100-python/train", "cifar-100-python/test"),
)
CIFAR10_CLASSES = tuple("airplane automobile bird cat deer dog frog horse ship truck".split())


def load_cifar10(wanted: options.Options) -> records.Dataset:
    """Load small photographs of ten classes, 32 x 32 pixels in three colours."""
    *train, test = _read(wanted, CIFAR10_SOURCE, label_bytes=1, num_classes=10)
    return records.make(
        "cifar10",
        train=(torch.cat([part[0] for part in train]), torch.cat([part[1] for part in train])),
        test=test,
        num_classes=10,
        class_names=CIFAR10_CLASSES,
        augmentation="crop-flip",
    )


def load_cifar100(wanted: options.Options) -> records.Dataset:
    """Load small photographs of a hundred classes, 32 x 32 pixels in three colours."""
    # Two label bytes: the coarse class, which is not used, and the fine class.
    train, test = _read(wanted, CIFAR100_SOURCE, label_bytes=2, num_classes=100)
    return records.make(
        "cifar100", train=train, test=test, num_classes=100, augmentation="crop-flip"
    )


def _read(
    wanted: options.Options, source: staging.Source, *, label_bytes: int, num_classes: int
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return the images and labels of each file, in the format that is present."""
    other = staging.has_other_files(source, wanted.folder)
    binary = not other or (wanted.folder / source.files[0]).is_file()
    parts = []
    for path in source.files if binary else source.other_files:
        content = staging.read(wanted.folder, source, path)
        try:
            if binary:
                images, labels = parse_records(content, label_bytes)
            else:
                images, labels = parse_pickle(content)
            if labels.max() >= num_classes or labels.min() < 0:
                raise ValueError(f"a label is not 0 to {num_classes - 1}")
        except ValueError as error:
            raise staging.damaged(wanted.folder / path, str(error)) from error
        parts.append((torch.from_numpy(images), torch.from_numpy(labels)))
    return parts


def parse_records(content: bytes, label_bytes: int) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Parse the binary format; the last label byte of an image is its class.

    Raises ValueError if the content has another format.
    """
    size = label_bytes + PIXELS
    if not content or len(content) % size:
        raise ValueError(f"{len(content)} bytes, not a multiple of {size}")
    rows = numpy.frombuffer(content, dtype=numpy.uint8).reshape(-1, size)
    labels = rows[:, label_bytes - 1].astype(numpy.int64)
    return rows[:, label_bytes:].reshape(-1, 3, 32, 32).copy(), labels


def parse_pickle(content: bytes) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Parse the Python format; only NumPy arrays are unpickled.

    Raises ValueError if the content has another format.
    """
    try:
        batch = _ArrayUnpickler(io.BytesIO(content), encoding="bytes").load()
        labels = numpy.asarray(batch.get(b"fine_labels", batch.get(b"labels")), dtype=numpy.int64)
        images = numpy.asarray(batch[b"data"], dtype=numpy.uint8).reshape(len(labels), 3, 32, 32)
    # A damaged pickle can raise nearly anything.
    except Exception as error:
        raise ValueError(f"not a CIFAR batch: {error}") from error
    return images, labels


class _ArrayUnpickler(pickle.Unpickler):
    """Unpickles only arrays, because a pickle can run any code."""

    def find_class(self, module: str, name: str) -> Any:
        if module.startswith("numpy") and name in ("ndarray", "dtype"):
            return getattr(numpy, name)
        if module.startswith("numpy") and name == "_reconstruct":
            return numpy.empty(0).__reduce__()[0]
        if (module, name) == ("_codecs", "encode"):
            # Python 3 pickles bytes for Python 2 like this.
            return lambda text, encoding: text.encode("latin1")
        raise ValueError(f"it calls {module}.{name}")
