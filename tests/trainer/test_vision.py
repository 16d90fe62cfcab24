"""Data sets of torchvision that are read sample by sample."""

from __future__ import annotations

import argparse
import gzip
import pickle
import struct
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the trainer needs PyTorch")
datasets = pytest.importorskip("torchvision.datasets", reason="these data sets are torchvision's")

import numpy  # noqa: E402
from PIL import Image  # noqa: E402
from torchvision.transforms import functional  # noqa: E402

from trainers import arguments, data, errors  # noqa: E402
from trainers.data import vision  # noqa: E402

pytestmark = pytest.mark.trainer

ELSEWHERE = "set another folder with --data-dir FOLDER (or DATA_DIR in the environment)"


def _load(name: str, folder: Path, **options: Any) -> data.Splits:
    args = arguments.parse_arguments([f"--dataset=torchvision:{name}", f"--data-dir={folder}"])
    args = argparse.Namespace(**vars(args) | options)
    return data.load(args)


def _error(name: str, folder: Path, kind: type = errors.DataError, **options: Any) -> str:
    with pytest.raises(kind) as caught:
        _load(name, folder, **options)
    return str(caught.value)


def _save_images(folder: Path, size: tuple[int, int] = (40, 30), count: int = 3) -> None:
    """Write random PNG files of two classes."""
    generator = numpy.random.default_rng(0)
    for name in ("cats", "dogs"):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            pixels = generator.integers(0, 256, (size[1], size[0], 3), dtype=numpy.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")


def test_image_folder_is_resized_cropped_and_normalized(tmp_path: Path) -> None:
    _save_images(tmp_path / "train")
    _save_images(tmp_path / "test", count=1)
    splits = _load("ImageFolder", tmp_path)
    assert splits.num_classes == 2
    assert (splits.sample_shape, splits.unit) == (torch.Size((3, 224, 224)), "images")
    assert (len(splits.train), len(splits.eval)) == (6, 2)
    # The same by other means: the evaluation of torchvision's models.
    with Image.open(tmp_path / "test/dogs/0.png") as image:
        expected = functional.center_crop(functional.resize(image, 256), 224)
    expected = functional.normalize(
        functional.to_tensor(expected), [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    )
    sample, label = splits.eval[1]
    assert torch.allclose(sample, expected, atol=1e-6)
    assert label == 1
    assert torch.equal(sample, splits.eval[1][0])


def test_training_images_are_augmented_by_the_state_of_torch(tmp_path: Path) -> None:
    for part in ("train", "val"):
        _save_images(tmp_path / part)
    splits = _load("ImageFolder", tmp_path, image_size=16)
    assert splits.sample_shape == torch.Size((3, 16, 16))
    torch.manual_seed(1)
    first, second = splits.train[0][0], splits.train[0][0]
    assert not torch.equal(first, second)
    torch.manual_seed(1)
    assert torch.equal(first, splits.train[0][0])
    plain = _load("ImageFolder", tmp_path, image_size=16, no_augmentation=True)
    assert torch.equal(plain.train[0][0], splits.eval[0][0])
    # Workers that are not forked get a pickle.
    assert torch.equal(pickle.loads(pickle.dumps(splits.eval))[0][0], splits.eval[0][0])


def test_image_folders_that_do_not_fit_are_explained(tmp_path: Path) -> None:
    advice = (
        "Put there folders with the images of each class, train/CLASS and val/CLASS or test/CLASS,"
        f" or {ELSEWHERE}."
    )
    title = "torchvision:ImageFolder"
    assert _error("ImageFolder", tmp_path) == (
        f"{title} cannot be read from {tmp_path} ([Errno 2] No such file or directory:"
        f" '{tmp_path}/train'). {advice}"
    )
    _save_images(tmp_path / "train")
    assert _error("ImageFolder", tmp_path) == (
        f"{title} cannot be read from {tmp_path} ([Errno 2] No such file or directory:"
        f" '{tmp_path}/test'). {advice}"
    )
    _save_images(tmp_path / "val")
    (tmp_path / "val/cats").rename(tmp_path / "val/birds")
    assert _error("ImageFolder", tmp_path) == (
        f"The classes of training and evaluation of {title} in {tmp_path} differ."
    )


def _save_fashion(folder: Path, *, compressed: bool) -> dict[str, bytes]:
    generator = numpy.random.default_rng(0)
    contents = {}
    for prefix, count in (("train", 5), ("t10k", 2)):
        pixels = generator.integers(0, 256, count * 784, dtype=numpy.uint8).tobytes()
        header = struct.pack(">4B3I", 0, 0, 8, 3, count, 28, 28)
        contents[f"{prefix}-images-idx3-ubyte"] = header + pixels
        labels = bytes(range(count))
        contents[f"{prefix}-labels-idx1-ubyte"] = struct.pack(">4BI", 0, 0, 8, 1, count) + labels
    folder.mkdir(parents=True)
    for name, content in contents.items():
        path = folder / (f"{name}.gz" if compressed else name)
        path.write_bytes(gzip.compress(content) if compressed else content)
    return contents


def test_a_data_set_with_train_argument_keeps_its_size(tmp_path: Path) -> None:
    contents = _save_fashion(tmp_path / "FashionMNIST/raw", compressed=False)
    splits = _load("FashionMNIST", tmp_path)
    assert splits.sample_shape == torch.Size((1, 28, 28))
    assert (len(splits.train), len(splits.eval), splits.num_classes) == (5, 2, 10)
    sample, label = splits.train[3]
    pixels = numpy.frombuffer(contents["train-images-idx3-ubyte"], numpy.uint8, offset=16)
    expected = torch.from_numpy(pixels.reshape(5, 1, 28, 28)[3].copy()) / 255 * 2 - 1
    assert torch.allclose(sample, expected, atol=1e-6)
    assert label == 3
    assert torch.equal(sample, splits.train[3][0])


def test_archives_in_the_format_of_mnist_are_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = tmp_path / "FashionMNIST/raw"
    contents = _save_fashion(raw, compressed=True)
    names = [f"{name}.gz" for name in contents]
    resources = [(name, datasets.utils.calculate_md5(raw / name)) for name in names]
    monkeypatch.setattr(datasets.FashionMNIST, "resources", resources)
    assert len(_load("FashionMNIST", tmp_path).train) == 5
    assert all((raw / name).read_bytes() == content for name, content in contents.items())


class Pictures(datasets.VisionDataset):
    """A data set with parts, which records how it was created."""

    splits: tuple[str, ...] = ("train", "val", "test")
    created: tuple[tuple[str, bool], ...] = ()
    size = (8, 8)
    label: Any = 1

    def __init__(self, root: Path, split: str = "train", transform: Any = None,
                 download: bool = True) -> None:  # fmt: skip
        super().__init__(root, transform=transform)
        datasets.utils.verify_str_arg(split, "split", self.splits)
        self.split = split
        type(self).created += ((split, download),)

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        size = self.size if index == 0 else (8, 8)
        return self.transform(Image.new("RGB", size)), self.label


@pytest.fixture
def pictures(monkeypatch: pytest.MonkeyPatch) -> type[Pictures]:
    """The data set above under the name of one of torchvision's."""
    own = type("Own", (Pictures,), {})
    monkeypatch.setattr(datasets, "SVHN", own)
    return own


@pytest.mark.parametrize(
    ("splits", "chosen"),
    [
        (("train", "val", "test"), ("train", "val")),
        (("train", "valid", "test"), ("train", "valid")),
        (("train", "test"), ("train", "test")),
    ],
)
def test_splits_are_chosen_by_name(
    tmp_path: Path, pictures: Any, splits: tuple[str, ...], chosen: tuple[str, str]
) -> None:
    pictures.splits = splits
    loaded = _load("SVHN", tmp_path)
    assert (loaded.train.split, loaded.eval.split) == chosen
    # No download, although it is the default of the class.
    assert pictures.created == ((chosen[0], False), (chosen[1], False))
    assert loaded.num_classes == 2


def test_a_default_split_is_that_for_training(tmp_path: Path, pictures: Any) -> None:
    pictures.splits = ("trainval", "test")
    pictures.__init__.__defaults__ = ("trainval", None, True)
    try:
        loaded = _load("SVHN", tmp_path)
    finally:
        pictures.__init__.__defaults__ = ("train", None, True)
    assert (loaded.train.split, loaded.eval.split) == ("trainval", "test")


def test_samples_that_do_not_fit_are_explained(tmp_path: Path, pictures: Any) -> None:
    message = (
        "The samples of torchvision:SVHN are not pairs of an image and a class number, or the"
        " images have different sizes: set --image-size, for example 224, or write a task of your"
        " own (--task)."
    )
    pictures.size = (9, 8)
    assert _error("SVHN", tmp_path, errors.UsageError) == message
    pictures.label = {"boxes": []}
    assert _error("SVHN", tmp_path, errors.UsageError) == message


def test_an_undivided_data_set_is_divided_the_same_way_each_time(tmp_path: Path) -> None:
    splits = _load("FakeData", tmp_path, image_size=8)
    assert (len(splits.train), len(splits.eval)) == (800, 200)
    assert splits.sample_shape == torch.Size((3, 8, 8))
    assert splits.num_classes == 10
    indices = [*splits.train.indices, *splits.eval.indices]
    assert sorted(indices) == list(range(1000))
    assert splits.eval.indices[:5] == vision.holdout(1000)[1][:5].tolist()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Svhn", "unknown name in --dataset torchvision:Svhn: did you mean SVHN?"),
        ("VisionDatasets", "unknown name in --dataset torchvision:VisionDatasets: did you mean"
         " VisionDataset?"),
        ("EMNIST", "torchvision:EMNIST requires arguments (split): write a task (--task)."),
    ],
)  # fmt: skip
def test_names_that_cannot_be_used_are_explained(tmp_path: Path, name: str, message: str) -> None:
    assert _error(name, tmp_path, errors.UsageError) == message


def test_missing_files_are_explained(tmp_path: Path) -> None:
    assert _error("Flowers102", tmp_path) == (
        f"torchvision:Flowers102 cannot be read from {tmp_path} (Dataset not found or corrupted)."
        f" Put there its files, or {ELSEWHERE}, or use --download on a machine with network access."
    )


def test_a_download_fills_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pictures: Any
) -> None:
    def create(self: Any, root: Path, split: str = "train", transform: Any = None,
               download: bool = False) -> None:  # fmt: skip
        Pictures.__init__(self, root, split, transform, download)
        if download:
            (root / "own").mkdir(exist_ok=True)
            (root / "own" / split).write_text(split)
        if not (root / "own" / split).is_file():
            raise RuntimeError("Dataset not found. You can use download=True to download it")

    monkeypatch.setattr(pictures, "__init__", create)
    assert len(_load("SVHN", tmp_path / "data", download=True).train) == 4
    files = [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
    assert sorted(path.name for path in files) == [".staging.lock", "train", "val"]
    pictures.created = ()
    _load("SVHN", tmp_path / "data", download=True)
    assert not any(download for _, download in pictures.created)
