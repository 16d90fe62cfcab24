"""Content of the data sets, order of samples, and errors of damaged files."""

from __future__ import annotations

import argparse
import pickle
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the trainer needs PyTorch")

import numpy  # noqa: E402

from trainers import arguments, data, errors  # noqa: E402
from trainers.data import batches, har, memory, vision  # noqa: E402

pytestmark = pytest.mark.trainer

ELSEWHERE = "set another folder with --data-dir FOLDER (or DATA_DIR in the environment)"


def _load(name: str, **options: Any) -> data.Splits:
    args = arguments.parse_arguments(["--dataset", name])
    return data.load(argparse.Namespace(**vars(args) | options))


def _error(name: str, folder: Path, kind: type = errors.DataError) -> str:
    with pytest.raises(kind) as caught:
        _load(name, data_dir=folder)
    return str(caught.value)


def test_digits_split_loses_nothing() -> None:
    datasets = pytest.importorskip("sklearn.datasets", reason="the digits are scikit-learn's")
    digits = datasets.load_digits()
    splits = _load("digits")
    images = torch.from_numpy(digits.images).to(torch.uint8)
    assert torch.equal(splits.train.samples.squeeze(1), images[vision.holdout(len(images))[0]])
    assert splits.train.samples.shape == (1438, 1, 8, 8)
    assert splits.eval.samples.shape == (359, 1, 8, 8)
    assert splits.train.samples.dtype == torch.uint8
    assert (splits.sample_shape, splits.unit) == (torch.Size((1, 8, 8)), "images")
    labels = torch.cat([splits.train.labels, splits.eval.labels])
    # The class sizes that scikit-learn documents for the whole set.
    assert labels.bincount().tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    normalized, _ = splits.train.batch(slice(None))
    assert abs(normalized.mean().item()) < 1e-5
    assert abs(normalized.std().item() - 1) < 1e-5


def test_har_is_read_as_numpy_reads_it(shared_data: Path) -> None:
    splits = _load("har", data_dir=shared_data)
    train, evaluation = splits.train, splits.eval
    assert (train.samples.shape, evaluation.samples.shape) == ((2400, 9, 128), (950, 9, 128))
    assert (splits.num_classes, splits.unit) == (6, "windows")
    assert train.labels.unique().tolist() == [0, 1, 2, 3, 4, 5]
    # Another reader, for a channel in the middle.
    path = shared_data / "UCI HAR Dataset/test/Inertial Signals/body_gyro_y_test.txt"
    words = [[float(word) for word in line.split()] for line in path.read_text().splitlines()]
    assert torch.equal(evaluation.samples[:, 4], torch.tensor(words))
    # total_acc_x is the axis of gravity, in g.
    assert train.mean[6].item() == pytest.approx(0.8, abs=0.1)
    normalized, _ = train.batch(slice(None))
    assert normalized.mean(dim=(0, 2)).abs().max() < 1e-4
    assert (normalized.std(dim=(0, 2)) - 1).abs().max() < 1e-4


def test_a_damaged_har_file_is_named(shared_data: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(shared_data / har.ROOT, tmp_path / har.ROOT)
    path = folder / "train/Inertial Signals/body_acc_x_train.txt"
    path.chmod(0o600)
    lines = path.read_text().splitlines()
    for line, why in (
        (f"{lines[41]} 1.0", "the number of columns changed from 128 to 129 at row 42; "),
        (f"{lines[41]}e999", "a number is not finite"),
        (f"{lines[41]}x", "could not convert string "),
        ("", "cannot reshape array of size 307072 into shape (2400,128)"),
    ):
        path.write_text("\n".join([*lines[:41], line, *lines[42:]]) + "\n")
        message = _error("har", tmp_path)
        assert message.startswith(f"har cannot be read from {tmp_path} ({path}: {why}")
    path.write_text("")
    with pytest.warns(UserWarning, match="contained no data"):
        message = _error("har", tmp_path)
    assert message.startswith(f"har cannot be read from {tmp_path} ({path}: cannot reshape")
    path = folder / "train/y_train.txt"
    path.chmod(0o600)
    path.write_text(path.read_text().replace("6", "7"))
    assert _error("har", tmp_path) == (
        f"har cannot be read from {tmp_path} ({path}: a label is not 1 to 6). Put"
        f" UCI HAR Dataset.zip from {har.ADDRESS} there, or {ELSEWHERE}. It has no published"
        " checksum, so --download does not download it."
    )


def test_synthetic_data_is_the_same_everywhere_and_can_be_learned() -> None:
    options = {"synthetic_shape": (20,), "synthetic_classes": 4, "synthetic_samples": 2500}
    splits = _load("synthetic", **options)
    train, evaluation = splits.train, splits.eval
    assert (train.samples.shape, evaluation.samples.shape) == ((2500, 20), (500, 20))
    assert splits.unit == "samples"
    again = _load("synthetic", **options)
    assert memory.fingerprint(train) == memory.fingerprint(again.train)
    middles = torch.stack([train.samples[train.labels == k].mean(0) for k in range(4)])
    nearest = torch.cdist(evaluation.samples, middles).argmin(dim=1)
    assert (nearest == evaluation.labels).float().mean() > 0.95
    images = _load("synthetic", synthetic_samples=10)
    assert (images.train.samples.dtype, images.unit) == (torch.uint8, "images")
    assert (images.train.augment, images.eval.augment) == (True, False)
    assert not _load("synthetic", synthetic_samples=10, no_augmentation=True).train.augment


def _save_arrays(folder: Path, **changes: numpy.ndarray) -> None:
    generator = numpy.random.default_rng(0)
    arrays = {
        "train_samples": generator.integers(0, 256, (6, 3, 4, 4), dtype=numpy.uint8),
        "train_labels": numpy.array([0, 1, 2, 0, 1, 2]),
        "eval_samples": generator.integers(0, 256, (2, 3, 4, 4), dtype=numpy.uint8),
        "eval_labels": numpy.array([3, 0], dtype=numpy.uint8),
    }
    for name, array in (arrays | changes).items():
        numpy.save(folder / f"{name}.npy", array)


def test_arrays_are_mapped_and_read_by_sample(tmp_path: Path) -> None:
    _save_arrays(tmp_path)
    splits = _load("arrays", data_dir=tmp_path)
    assert (splits.sample_shape, splits.num_classes) == (torch.Size((3, 4, 4)), 4)
    assert (len(splits.train), len(splits.eval), splits.unit) == (6, 2, "images")
    assert isinstance(splits.train.samples, numpy.memmap)
    expected = numpy.load(tmp_path / "train_samples.npy")
    sample, label = splits.train[4]
    assert torch.equal(sample, torch.from_numpy(expected[4]).float() / 255)
    assert label == 1
    # A worker process maps the files; their content is not part of the pickle.
    content = pickle.dumps(splits.train)
    assert len(content) < 300
    assert torch.equal(pickle.loads(content)[4][0], sample)
    loader = torch.utils.data.DataLoader(splits.train, batch_size=4)
    samples, labels = next(iter(loader))
    assert (samples.shape, labels.tolist()) == ((4, 3, 4, 4), [0, 1, 2, 0])


def test_arrays_of_other_types_keep_their_values(tmp_path: Path) -> None:
    signals = numpy.linspace(-2, 2, 6 * 5).reshape(6, 5).astype(">f8")
    _save_arrays(tmp_path, train_samples=signals, eval_samples=signals[:2])
    splits = _load("arrays", data_dir=tmp_path)
    assert torch.equal(splits.train[1][0], torch.from_numpy(signals[1].astype(numpy.float32)))
    assert splits.unit == "samples"


def test_arrays_that_do_not_fit_are_explained(tmp_path: Path) -> None:
    def message(part: str, why: str) -> str:
        return (
            f"{tmp_path} has no {part}_samples.npy and {part}_labels.npy for --dataset arrays"
            f" ({why}): save there numbers of shape (N, ...), and for each a class number 0, 1, ..."
            f" as integers of shape (N,), or {ELSEWHERE}."
        )

    missing = f"[Errno 2] No such file or directory: '{tmp_path}/train_samples.npy'"
    assert _error("arrays", tmp_path) == message("train", missing)
    pixels = "uint8 (6, 3, 4, 4)"
    for change, samples, labels in (
        ({"train_labels": numpy.zeros(5, dtype=int)}, pixels, "int64 (5,)"),
        ({"train_labels": numpy.zeros(6)}, pixels, "float64 (6,)"),
        ({"train_labels": numpy.zeros((6, 1), dtype=int)}, pixels, "int64 (6, 1)"),
        ({"train_labels": numpy.full(6, -1)}, pixels, "int64 (6,)"),
        ({"train_samples": numpy.zeros((6, 2), dtype="S3")}, "|S3 (6, 2)", "int64 (6,)"),
        ({"train_samples": numpy.zeros(6)}, "float64 (6,)", "int64 (6,)"),
    ):
        _save_arrays(tmp_path, **change)
        found = f"they contain {samples} and {labels}"
        assert _error("arrays", tmp_path) == message("train", found)
    _save_arrays(tmp_path, eval_samples=numpy.zeros((2, 3, 4, 5)))
    assert _error("arrays", tmp_path) == (
        f"The samples of training and evaluation in {tmp_path} have different shapes."
    )
    _save_arrays(tmp_path)
    path = tmp_path / "eval_samples.npy"
    path.write_bytes(path.read_bytes()[:-1])
    begin = message("eval", "").partition("(")[0]
    assert _error("arrays", tmp_path).startswith(begin)
    numpy.save(path, numpy.array([None]), allow_pickle=True)
    assert _error("arrays", tmp_path).startswith(begin)


def test_names_are_checked_and_suggested() -> None:
    args = arguments.parse_arguments(["--dataset", "torchvision:SVHN"])
    assert args.dataset == "torchvision:SVHN"
    for name, fix in (
        ("cifr10", "did you mean cifar10?"),
        ("MNIST", "did you mean mnist?"),
        ("torchvision", "did you mean torchvision:NAME?"),
        (
            "xyz",
            "use arrays, cifar10, cifar100, digits, har, mnist, synthetic, torchvision:NAME.",
        ),
    ):
        with pytest.raises(errors.UsageError) as caught:
            arguments.parse_arguments(["--dataset", name])
        assert str(caught.value) == f"unknown name in --dataset {name}: {fix}"


@pytest.mark.parametrize(
    ("name", "module", "package"),
    [
        ("mnist", "torchvision.datasets", "torchvision"),
        ("torchvision:SVHN", "torchvision.datasets", "torchvision"),
    ],
)
def test_a_missing_package_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, module: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    assert _error(name, tmp_path, errors.UsageError) == (
        f"--dataset {name} requires {package}, which cannot be imported (import of {module} halted;"
        f" None in sys.modules): install a release for PyTorch {torch.__version__} in the same"
        " environment."
    )


def test_digits_without_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(errors.UsageError) as caught:
        _load("digits")
    fix = "--dataset digits requires scikit-learn in the same environment."
    assert str(caught.value) == fix


def test_augmentation_follows_from_seed_epoch_and_index_alone() -> None:
    splits = _load("synthetic", synthetic_samples=100)
    indices = torch.randperm(100)

    def prepare(part: torch.Tensor, seed: int, epoch: int) -> torch.Tensor:
        return splits.train.batch(part, splits.train.draws(seed, epoch))[0]

    whole = prepare(indices, 1, 2)
    for world_size in (2, 3):
        parts = indices.tensor_split(world_size)
        assert torch.equal(whole, torch.cat([prepare(part, 1, 2) for part in parts]))
    for seed, epoch in ((1, 3), (2, 2)):
        assert not torch.equal(whole, prepare(indices, seed, epoch))
    plain = _load("synthetic", synthetic_samples=100, no_augmentation=True).train
    assert plain.draws(1, 2) is None
    samples, labels = plain.batch(indices)
    assert torch.equal(samples, (plain.samples[indices].float() - plain.mean) / plain.std)
    assert torch.equal(labels, splits.train.labels[indices])


def test_crops_and_flips_are_correct_and_equally_likely() -> None:
    functional = pytest.importorskip(
        "torchvision.transforms.v2.functional", reason="compared with torchvision's crop"
    )
    # All pixels differ, so they show the crop.
    image = (torch.arange(32 * 32, dtype=torch.int64) + 1).reshape(1, 32, 32)
    padded = functional.pad(image, [4, 4, 4, 4])
    expected = {}
    for top in range(9):
        for left in range(9):
            crop = functional.crop(padded, top, left, 32, 32)
            expected[crop.numpy().tobytes()] = (top, left, 0)
            expected[crop.flip(2).numpy().tobytes()] = (top, left, 1)
    count = 8100
    draws = _load("synthetic", synthetic_samples=count).train.draws(0, 1)
    crops = memory.crop_and_flip(image.expand(count, 1, 32, 32), draws).contiguous()
    seen = numpy.zeros((9, 9, 2))
    for crop in crops:
        seen[expected[crop.numpy().tobytes()]] += 1
    # 50 of each are expected; chi-square of 161 degrees is below 240 in all but 1 of 10,000 draws.
    assert ((seen - 50) ** 2 / 50).sum() < 240


def test_permutation_depends_on_seed_and_epoch_only() -> None:
    # Recorded: a change would break the comparison with every earlier run.
    assert batches.permutation(0, 1, 8).tolist() == [7, 3, 6, 4, 5, 0, 2, 1]
    assert batches.permutation(0, 2, 8).tolist() != [7, 3, 6, 4, 5, 0, 2, 1]
    assert batches.permutation(1, 1, 8).tolist() != [7, 3, 6, 4, 5, 0, 2, 1]
