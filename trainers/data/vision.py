"""Data sets of torchvision: MNIST and CIFAR in memory, all others read sample by sample."""

import argparse
import contextlib
import fcntl
import inspect
import numbers
import pathlib
import socket
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import data as torch_data

from trainers import errors
from trainers.data import batches, memory

TORCHVISION = "torchvision:"
#: Data sets that are held in memory, and their class in torchvision.
IN_MEMORY = {"cifar10": "CIFAR10", "cifar100": "CIFAR100", "mnist": "MNIST"}
IMAGE_FOLDER = f"{TORCHVISION}ImageFolder"
# Mean and standard deviation of ImageNet's training images.
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
# Evaluation images are resized to this multiple of --image-size and cropped.
RESIZE_FACTOR = 256 / 224
EVAL_SPLITS = ("val", "valid", "test")


def load(args: argparse.Namespace) -> memory.Splits:
    """Read a data set, after unpacking it, or downloading it with `--download`, if necessary."""
    name, augment = args.dataset, not args.no_augmentation
    kind = _dataset_class(name)
    if name in IN_MEMORY:
        parts = _open_or_stage(args, kind, (None, None))
        return memory.make_splits(
            *((_images(part.data), torch.as_tensor(part.targets).long()) for part in parts),
            num_classes=len(parts[0].classes),
            unit="images",
            augment=augment and name != "mnist",
        )
    transforms = [_transform(name, args.image_size, augment=part) for part in (augment, False)]
    train, evaluation = _open_or_stage(args, kind, transforms)
    samples = [part[index] for part in (train, evaluation) for index in (0, len(part) - 1)]
    if (
        not all(len(each) == 2 and isinstance(each[1], numbers.Integral) for each in samples)
        or len({image.shape for image, _ in samples}) > 1
    ):
        raise errors.UsageError(
            f"The samples of {name} are not pairs of an image and a class number, or the images"
            " have different sizes: set --image-size, for example 224, or write a task of your own"
            " (--task)."
        )
    # The parts of an undivided data set are subsets of it.
    whole, eval_whole = (getattr(part, "dataset", part) for part in (train, evaluation))
    classes = getattr(whole, "classes", getattr(whole, "categories", None))
    if getattr(eval_whole, "classes", classes) != classes:
        raise errors.DataError(
            f"The classes of training and evaluation of {name} in {args.data_dir} differ."
        )
    labels = getattr(whole, "targets", getattr(whole, "labels", None))
    if not classes and labels is None:
        labels = [whole[index][1] for index in range(len(whole))]
    return memory.Splits(
        train=train,
        eval=evaluation,
        sample_shape=samples[0][0].shape,
        num_classes=len(classes) if classes else int(max(labels)) + 1,
        unit="images",
    )


def holdout(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the indices of training and evaluation, independent of --seed, of undivided data."""
    shuffled = batches.permutation(0, 0, size)
    num_eval = round(size * 0.2)
    return shuffled[num_eval:], shuffled[:num_eval]


def _images(data: Any) -> torch.Tensor:
    images = torch.as_tensor(data)
    return (images[:, None] if images.dim() == 3 else images.permute(0, 3, 1, 2)).contiguous()


def _transform(name: str, size: int | None, *, augment: bool) -> Callable[[Any], torch.Tensor]:
    from torchvision.transforms import v2

    statistics = ((0.5,), (0.5,))
    if name == IMAGE_FOLDER:
        size, statistics = size or 224, IMAGENET
    steps: list[Any] = []
    if size is not None and augment:
        steps = [v2.RandomResizedCrop(size), v2.RandomHorizontalFlip()]
    elif size is not None:
        steps = [v2.Resize(round(size * RESIZE_FACTOR)), v2.CenterCrop(size)]
    steps += [v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(*statistics)]
    return v2.Compose(steps)


def _dataset_class(name: str) -> Any:
    datasets = errors.import_package("torchvision.datasets", "torchvision", f"--dataset {name}")
    title = IN_MEMORY.get(name, name.removeprefix(TORCHVISION))
    kind = getattr(datasets, errors.check_name(f"--dataset {TORCHVISION}", title, datasets.__all__))
    required = {key for key, each in _parameters(kind).items() if each.default is each.empty}
    if extra := ", ".join(sorted(required - {"root", "kwargs"})):
        raise errors.UsageError(f"{name} requires arguments ({extra}): write a task (--task).")
    return kind


def _open_or_stage(args: argparse.Namespace, kind: Any, transforms: Sequence[Any]) -> list[Any]:
    folder, archives = args.data_dir, _archives(kind)

    def open_parts() -> list[Any]:
        try:
            return _construct(kind, folder, transforms)
        # A damaged file can raise nearly anything.
        except Exception as error:
            why = str(error).partition(" You can use download=True")[0].rstrip(".")
            message = f"{args.dataset} cannot be read from {folder} ({why}). {_advice(kind)}"
            raise errors.DataError(message) from error

    try:
        return open_parts()
    except errors.DataError:
        from torchvision.datasets import utils

        intact = [
            path for path, (md5, _) in archives.items() if utils.check_integrity(folder / path, md5)
        ]
        # torchvision downloads all archives that are not intact.
        is_complete = archives and len(intact) == len(archives)
        if not (is_complete or (args.download and "download" in _parameters(kind))):
            raise
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ".staging.lock").open("a") as lock:
            # Not supported by Lustre without flock and some FUSE file systems: the renames suffice.
            with contextlib.suppress(OSError):
                fcntl.lockf(lock, fcntl.LOCK_EX)
            # Another process may have staged it in the meantime.
            with contextlib.suppress(errors.DataError):
                return open_parts()
            _stage(kind, folder, intact)
    # Archives and downloads fail in many ways.
    except Exception as error:
        message = f"cannot stage data in {folder} ({error}). {_advice(kind)}"
        raise errors.DataError(message) from error
    return open_parts()


def _stage(kind: Any, folder: pathlib.Path, archives: Sequence[str]) -> None:
    """Unpack archives of the folder, and download others; a file with its name is complete."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=".staging-") as name:
        temporary = pathlib.Path(name)
        for path in archives:
            (temporary / path).parent.mkdir(parents=True, exist_ok=True)
            (temporary / path).symlink_to((folder / path).absolute())
        # torchvision would wait forever for a server that sends nothing.
        socket.setdefaulttimeout(60)
        _construct(kind, temporary, download=True)
        for source in list(temporary.rglob("*")):
            if source.is_file() and not source.is_symlink():
                target = folder / source.relative_to(temporary)
                target.parent.mkdir(parents=True, exist_ok=True)
                source.replace(target)


def _construct(
    kind: Any,
    folder: pathlib.Path,
    transforms: Sequence[Any] = (None, None),
    download: bool = False,
) -> list[Any]:
    """Return the training and evaluation part, by the parameters that the class has."""
    if kind.__name__ == "ImageFolder":
        evaluation = "val" if (folder / "val").is_dir() else "test"
        return [kind(folder / "train", transforms[0]), kind(folder / evaluation, transforms[1])]
    parameters = _parameters(kind)
    parts = []
    for train, transform in zip((True, False), transforms, strict=True):
        keywords = {"root": folder, "download": download, "transform": transform}
        keywords = {key: value for key, value in keywords.items() if key in parameters}
        if "train" in parameters:
            parts.append(kind(**keywords, train=train))
        elif "split" in parameters:
            # The default split is the one for training: `train`, `trainval` or `train-standard`.
            splits = (parameters["split"].default,) if train else EVAL_SPLITS
            for split in splits:
                with contextlib.suppress(ValueError):  # the class has no such split
                    parts.append(kind(**keywords, split=split))
                    break
            else:
                raise ValueError(f"it has none of the splits {', '.join(map(str, splits))}")
        else:
            dataset = kind(**keywords)
            indices = holdout(len(dataset))[0 if train else 1]
            parts.append(torch_data.Subset(dataset, indices.tolist()))
    return parts


def _parameters(kind: Any) -> Any:
    return inspect.signature(kind).parameters


def _archives(kind: Any) -> dict[str, tuple[str, str]]:
    """Return paths, MD5 and addresses of the archives of data sets like MNIST and CIFAR."""
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
    advice = f"Put there{what}or {memory.OTHER_FOLDER}"
    if "download" in _parameters(kind):
        advice += ", or use --download on a machine with network access"
    return f"{advice}."
