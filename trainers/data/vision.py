"""Data sets of torchvision: MNIST and CIFAR in memory, all others read sample by sample."""

import argparse
import contextlib
import inspect
import numbers
import pathlib
import socket
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import data as torch_data

from trainers import errors
from trainers.data import batches, files, memory

TORCHVISION = "torchvision:"
#: Data sets that are held in memory: their class in torchvision, and their augmentation.
IN_MEMORY = {
    "cifar10": ("CIFAR10", "crop-flip"),
    "cifar100": ("CIFAR100", "crop-flip"),
    "mnist": ("MNIST", "none"),
}
IMAGE_FOLDER = f"{TORCHVISION}ImageFolder"
IMAGE_FOLDER_SIZE = 224
# Mean and standard deviation of ImageNet's training images.
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
# Evaluation images are resized to this multiple of --image-size and cropped.
RESIZE_FACTOR = 256 / 224
# The held-out part does not depend on --seed, so that runs can be compared.
HOLDOUT_SEED = 0
HOLDOUT_SHARE = 0.2
# Timeout of a download that receives nothing.
SILENCE_SECONDS = 60
# Names of the evaluation part in torchvision, in this order.
EVAL_SPLITS = ("val", "valid", "test")

Transforms = Sequence[Callable[[Any], torch.Tensor] | None]


def stage(args: argparse.Namespace) -> None:
    """Unpack or download a data set if its files are missing or damaged.

    The network is used only with `--download`. Raises DataError if the files cannot be staged.
    """
    name, folder, download = args.dataset, args.data_dir, args.download
    kind = _dataset_class(name)
    archives = _archives(kind)
    if not archives and not (download and "download" in inspect.signature(kind).parameters):
        return

    def populate(temporary: pathlib.Path) -> None:
        with contextlib.suppress(errors.DataError):
            _open(name, kind, folder)
            return  # staged by another process in the meantime
        for path in intact:
            (temporary / path).parent.mkdir(parents=True, exist_ok=True)
            (temporary / path).symlink_to((folder / path).absolute())
        timeout = socket.getdefaulttimeout()
        socket.setdefaulttimeout(SILENCE_SECONDS)
        try:
            _construct(kind, temporary, download=True)
        finally:
            socket.setdefaulttimeout(timeout)

    try:
        _open(name, kind, folder)
    except errors.DataError:
        from torchvision.datasets import utils

        intact = [
            path for path, (md5, _) in archives.items() if utils.check_integrity(folder / path, md5)
        ]
        # torchvision downloads all archives that are not intact.
        if not download and len(intact) < len(archives):
            raise
        files.add(folder, populate, _advice(kind))


def load(args: argparse.Namespace) -> memory.Splits:
    """Read a staged data set; raise DataError if it cannot be read."""
    name, folder, augment = args.dataset, args.data_dir, not args.no_augmentation
    kind = _dataset_class(name)
    if name in IN_MEMORY:
        return _load_in_memory(name, kind, folder, augment=augment)
    transforms = [_transform(name, args.image_size, augment=part) for part in (augment, False)]
    train, evaluation = _open(name, kind, folder, transforms)
    samples = [part[index] for part in (train, evaluation) for index in (0, len(part) - 1)]
    if not all(len(each) == 2 and isinstance(each[1], numbers.Integral) for each in samples):
        raise errors.UsageError(
            f"The samples of {name} are not pairs of an image and a class number: use another data"
            " set, or write a task of your own (--task)."
        )
    if len({image.shape for image, _ in samples}) > 1:
        raise errors.UsageError(
            f"The images of {name} have different sizes: set --image-size, for example 224."
        )
    # The parts of an undivided data set are subsets of it.
    datasets = [getattr(part, "dataset", part) for part in (train, evaluation)]
    classes, eval_classes = (
        getattr(each, "classes", None) or getattr(each, "categories", None) or []
        for each in datasets
    )
    if classes != eval_classes:
        raise errors.DataError(
            f"The training and the evaluation part of {name} in {folder} have different classes:"
            " both need the same."
        )
    return memory.Splits(
        train=train,
        eval=evaluation,
        sample_shape=samples[0][0].shape,
        num_classes=len(classes) or _count_classes(datasets[0]),
        unit="images",
    )


def holdout(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the indices of the training and the evaluation part of an undivided data set."""
    shuffled = batches.permutation(HOLDOUT_SEED, 0, size)
    num_eval = round(size * HOLDOUT_SHARE)
    return shuffled[num_eval:], shuffled[:num_eval]


def _load_in_memory(name: str, kind: Any, folder: pathlib.Path, *, augment: bool) -> memory.Splits:
    parts = []
    for dataset in _open(name, kind, folder):
        images = torch.as_tensor(dataset.data)
        images = images.unsqueeze(1) if images.dim() == 3 else images.permute(0, 3, 1, 2)
        labels = torch.as_tensor(dataset.targets, dtype=torch.int64)
        if len(images) != len(labels) or labels.max() >= len(dataset.classes):
            raise errors.DataError(
                f"{name} in {folder} is damaged: its images and labels do not match."
                f" {_advice(kind)}"
            )
        parts.append((images.contiguous(), labels))
    return memory.make_splits(
        *parts,
        num_classes=len(dataset.classes),
        unit="images",
        augmentation=IN_MEMORY[name][1] if augment else "none",
    )


def _transform(name: str, size: int | None, *, augment: bool) -> Callable[[Any], torch.Tensor]:
    from torchvision.transforms import v2

    if name == IMAGE_FOLDER and size is None:
        size = IMAGE_FOLDER_SIZE
    steps: list[Any] = []
    if size is not None and augment:
        steps = [v2.RandomResizedCrop(size), v2.RandomHorizontalFlip()]
    elif size is not None:
        steps = [v2.Resize(round(size * RESIZE_FACTOR)), v2.CenterCrop(size)]
    statistics = IMAGENET if name == IMAGE_FOLDER else ((0.5,), (0.5,))
    steps += [v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(*statistics)]
    return v2.Compose(steps)


def _count_classes(dataset: Any) -> int:
    labels = getattr(dataset, "targets", getattr(dataset, "labels", None))
    if labels is None:
        labels = [dataset[index][1] for index in range(len(dataset))]
    return int(max(labels)) + 1


def _dataset_class(name: str) -> Any:
    """Return the class in torchvision.datasets; raise UsageError if it cannot be used."""
    datasets = errors.import_package("torchvision.datasets", "torchvision", f"--dataset {name}")
    if name in IN_MEMORY:
        return getattr(datasets, IN_MEMORY[name][0])
    classes = [each for each in datasets.__all__ if inspect.isclass(getattr(datasets, each))]
    title = name.removeprefix(TORCHVISION)
    kind = getattr(datasets, errors.check_name(f"--dataset {TORCHVISION}", title, classes))
    required = [
        each.name
        for each in inspect.signature(kind).parameters.values()
        if each.default is each.empty and each.kind is not each.VAR_KEYWORD and each.name != "root"
    ]
    if required:
        raise errors.UsageError(
            f"--dataset {name} cannot be used, because the class requires more arguments"
            f" ({', '.join(required)}): write a task of your own (--task)."
        )
    return kind


def _open(
    name: str, kind: Any, folder: pathlib.Path, transforms: Transforms = (None, None)
) -> list[Any]:
    """Return the training and evaluation part; raise DataError if one is missing or damaged."""
    try:
        return _construct(kind, folder, transforms)
    # A damaged file can raise nearly anything.
    except Exception as error:
        why = str(error).partition(" You can use download=True")[0].rstrip(".")
        raise errors.DataError(
            f"{name} cannot be read from {folder} ({why}). {_advice(kind)}"
        ) from error


def _construct(
    kind: Any,
    folder: pathlib.Path,
    transforms: Transforms = (None, None),
    *,
    download: bool = False,
) -> list[Any]:
    """Return the training and evaluation part, by the parameters that the class has."""
    if kind.__name__ == "ImageFolder":
        evaluation = "val" if (folder / "val").is_dir() else "test"
        return [kind(folder / "train", transforms[0]), kind(folder / evaluation, transforms[1])]
    parameters = inspect.signature(kind).parameters
    given = {"root": folder, "download": download}
    keywords = {key: value for key, value in given.items() if key in parameters}
    parts = []
    for train, transform in zip((True, False), transforms, strict=True):
        keywords["transform"] = transform
        if "train" in parameters:
            parts.append(kind(**keywords, train=train))
        elif "split" in parameters:
            # The default split is the one for training: `train`, `trainval` or `train-standard`.
            splits = ("train", parameters["split"].default) if train else EVAL_SPLITS
            parts.append(_first_split(kind, keywords, splits))
        else:
            dataset = kind(**keywords)
            indices = holdout(len(dataset))[0 if train else 1]
            parts.append(torch_data.Subset(dataset, indices.tolist()))
    return parts


def _first_split(kind: Any, keywords: dict[str, Any], splits: Sequence[str]) -> Any:
    for split in splits[:-1]:
        with contextlib.suppress(ValueError):  # this class has no such split
            return kind(**keywords, split=split)
    return kind(**keywords, split=splits[-1])


def _archives(kind: Any) -> dict[str, tuple[str, str]]:
    """Return MD5 and address of the archives of MNIST, CIFAR and data sets in their formats.

    Their paths are relative to the folder of data sets.
    """
    from torchvision import datasets

    if issubclass(kind, datasets.MNIST) and isinstance(kind.resources, list):
        folder = f"{kind.__name__}/raw/"
        return {folder + path: (md5, kind.mirrors[0] + path) for path, md5 in kind.resources}
    if issubclass(kind, datasets.CIFAR10):
        return {kind.filename: (kind.tgz_md5, kind.url)}
    return {}


def _advice(kind: Any) -> str:
    archives = [f"\n  {path} from {url}" for path, (_, url) in _archives(kind).items()]
    what = "".join([*archives, "\n"]) if archives else " its files, "
    if kind.__name__ == "ImageFolder":
        what = " folders with the images of each class, train/CLASS and val/CLASS or test/CLASS, "
    advice = f"Put there{what}or {files.OTHER_FOLDER}"
    if "download" in inspect.signature(kind).parameters:
        advice += ", or use --download on a machine with network access"
    return f"{advice}."
