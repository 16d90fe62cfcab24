"""MNIST in its original files, with the layout of torchvision."""

import math

import numpy
import torch

from trainers.datasets import options, records, staging

FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
# The original site no longer serves the files; this is PyTorch's mirror, with the checksums of
# torchvision.datasets.MNIST.
ADDRESS = "https://ossci-datasets.s3.amazonaws.com/mnist/"
MD5 = (
    "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "d53e105ee54ea40749a09fcbcd1e9432",
    "9fb629c4189551a2d022fa330f9573f3",
    "ec29112dd5afa0611ce80d1b7f02629c",
)
SOURCE = staging.Source(
    title="MNIST",
    files=tuple(f"MNIST/raw/{name}" for name in FILES),
    archives=tuple(
        staging.Archive(path=f"MNIST/raw/{name}.gz", address=f"{ADDRESS}{name}.gz", md5=md5)
        for name, md5 in zip(FILES, MD5, strict=True)
    ),
)


def load_mnist(wanted: options.Options) -> records.Dataset:
    """Load handwritten digits, 28 x 28 pixels of 0 to 255."""
    train_images, train_labels, test_images, test_labels = (
        _read(wanted, path, num_dimensions=3 if "images" in path else 1) for path in SOURCE.files
    )
    for images, labels, path in (
        (train_images, train_labels, SOURCE.files[1]),
        (test_images, test_labels, SOURCE.files[3]),
    ):
        if len(images) != len(labels) or not len(labels) or labels.max() > 9:
            why = f"{len(labels)} labels for {len(images)} images, or a label above 9"
            raise staging.damaged(wanted.folder / path, why)
    return records.make(
        "mnist",
        train=(train_images.unsqueeze(1), train_labels.long()),
        test=(test_images.unsqueeze(1), test_labels.long()),
        num_classes=10,
        class_names=tuple("0123456789"),
    )


def _read(wanted: options.Options, path: str, *, num_dimensions: int) -> torch.Tensor:
    content = staging.read(wanted.folder, SOURCE, path)
    try:
        return parse_idx(content, num_dimensions)
    except ValueError as error:
        raise staging.damaged(wanted.folder / path, str(error)) from error


def parse_idx(content: bytes, num_dimensions: int) -> torch.Tensor:
    """Parse the IDX format: 0, 0, 8 for uint8, the number of dimensions, sizes, values.

    Raises ValueError if the content has another format.
    """
    head = 4 + 4 * num_dimensions
    if len(content) < head or content[:4] != bytes((0, 0, 8, num_dimensions)):
        raise ValueError(f"not an IDX file of {num_dimensions} dimensions")
    sizes = [int.from_bytes(content[offset : offset + 4]) for offset in range(4, head, 4)]
    if len(content) - head != math.prod(sizes):
        raise ValueError(f"{len(content) - head} bytes of values, {math.prod(sizes)} expected")
    values = numpy.frombuffer(content, dtype=numpy.uint8, offset=head)
    return torch.from_numpy(values.reshape(sizes).copy())
