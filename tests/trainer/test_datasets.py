"""Content of the data sets, order of samples, and errors of damaged files."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies

torch = pytest.importorskip("torch", reason="the trainer needs PyTorch")

import numpy  # noqa: E402

from trainers import datasets, errors  # noqa: E402
from trainers.datasets import augmentation, cifar, har, mnist  # noqa: E402

pytestmark = pytest.mark.trainer


def _options(folder: Path) -> datasets.Options:
    return datasets.Options(folder=folder)


def test_digits_split_loses_nothing() -> None:
    pytest.importorskip("sklearn", reason="the digits are scikit-learn's")
    data = datasets.load_digits()
    assert data.train_samples.shape == (1438, 1, 8, 8)
    assert data.test_samples.shape == (359, 1, 8, 8)
    assert data.train_samples.dtype == torch.uint8
    labels = torch.cat([data.train_labels, data.test_labels])
    # The class sizes that scikit-learn documents for the whole set.
    assert labels.bincount().tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    normalised = data.normalise(data.train_samples)
    assert abs(normalised.mean().item()) < 1e-5
    assert abs(normalised.std().item() - 1) < 1e-5


def test_mnist_of_its_own_files(shared_data: Path) -> None:
    torchvision = pytest.importorskip("torchvision", reason="compared with torchvision's reader")
    data = datasets.load("mnist", _options(shared_data))
    for train, images, labels in (
        (True, data.train_samples, data.train_labels),
        (False, data.test_samples, data.test_labels),
    ):
        other = torchvision.datasets.MNIST(root=shared_data, train=train, download=False)
        assert torch.equal(images[:, 0], other.data)
        assert torch.equal(labels, other.targets)
    # Everybody's constants for MNIST, from all 60,000 images.
    assert data.mean.item() / 255 == pytest.approx(0.1307, abs=0.005)
    assert data.std.item() / 255 == pytest.approx(0.3081, abs=0.005)
    assert data.augmentation == "none"


def test_har_of_its_own_files(shared_data: Path) -> None:
    data = datasets.load("har", _options(shared_data))
    assert data.train_samples.shape == (2400, 9, 128)
    assert data.test_samples.shape == (950, 9, 128)
    assert data.train_labels.unique().tolist() == [0, 1, 2, 3, 4, 5]
    # Another reader, for a channel in the middle.
    path = shared_data / "UCI HAR Dataset/test/Inertial Signals/body_gyro_y_test.txt"
    expected = torch.from_numpy(numpy.loadtxt(path, dtype=numpy.float32))
    assert torch.equal(data.test_samples[:, 4], expected)
    # total_acc_x is the axis of gravity, in g.
    assert data.mean[6].item() == pytest.approx(0.8, abs=0.1)
    normalised = data.normalise(data.train_samples)
    assert normalised.mean(dim=(0, 2)).abs().max() < 1e-4
    assert (normalised.std(dim=(0, 2)) - 1).abs().max() < 1e-4


def _cifar_rows(number: int, label_bytes: int, num_classes: int) -> numpy.ndarray:
    random = numpy.random.default_rng(number)
    rows = random.integers(0, 256, (20, label_bytes + cifar.PIXELS), dtype=numpy.uint8)
    rows[:, label_bytes - 1] = random.integers(0, num_classes, 20)
    return rows


@pytest.mark.parametrize(("name", "label_bytes", "num_classes"), [("10", 1, 10), ("100", 2, 100)])
def test_cifar_is_the_same_in_both_of_its_forms(
    tmp_path: Path, name: str, label_bytes: int, num_classes: int
) -> None:
    source = datasets.SOURCES[f"cifar{name}"]
    for number, (binary, python) in enumerate(zip(source.files, source.other_files, strict=True)):
        rows = _cifar_rows(number, label_bytes, num_classes)
        for path in (tmp_path / "bin" / binary, tmp_path / "py" / python):
            path.parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "bin" / binary).write_bytes(rows.tobytes())
        key = b"labels" if name == "10" else b"fine_labels"
        batch = {b"data": rows[:, label_bytes:], key: rows[:, label_bytes - 1].tolist()}
        (tmp_path / "py" / python).write_bytes(pickle.dumps(batch, protocol=2))
    one, other = (
        datasets.load(f"cifar{name}", _options(tmp_path / form)) for form in ("bin", "py")
    )
    assert len(one.train_samples) == 20 * (len(source.files) - 1)
    assert one.fingerprint() == other.fingerprint()
    assert torch.equal(one.mean, other.mean)
    # The first byte of the pixels is the top left of the red plane.
    assert one.test_samples[0, 0, 0, 0] == rows[0, label_bytes]
    assert one.test_labels[0] == rows[0, label_bytes - 1]


def test_a_pickle_may_not_call_anything() -> None:
    with pytest.raises(ValueError, match=r"it calls posix\.system"):
        cifar.parse_pickle(pickle.dumps(_Hostile(), protocol=2))


class _Hostile:
    def __reduce__(self) -> tuple[object, ...]:
        import os

        return os.system, ("touch /tmp/hostile",)


def test_a_damaged_file_is_named(shared_data: Path, tmp_path: Path) -> None:
    shutil.copytree(shared_data / "MNIST", tmp_path / "MNIST")
    path = tmp_path / "MNIST/raw/t10k-images-idx3-ubyte"
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(errors.DataError) as caught:
        datasets.load("mnist", _options(tmp_path))
    assert str(caught.value) == (
        f"{path} is damaged (783999 bytes of values, 784000 expected):"
        " remove it and stage the data set again."
    )
    folder = shutil.copytree(shared_data / har.ROOT, tmp_path / har.ROOT)
    path = folder / "train/Inertial Signals/total_acc_z_train.txt"
    path.chmod(0o600)
    lines = path.read_text().splitlines()
    for change, why in (
        (lines[41] + " 1.0", "line 42 has 129 numbers, not 128"),
        (lines[41] + "e999", "line 42 has a value that is not a finite number"),
        (lines[41] + "x", "line 42 has a value that is not a finite number"),
    ):
        path.write_text("\n".join([*lines[:41], change, *lines[42:]]) + "\n")
        with pytest.raises(errors.DataError) as caught:
            datasets.load("har", _options(tmp_path))
        assert f"{path} is damaged ({why})" in str(caught.value)
    path.write_text("\n".join(lines[:-1]) + "\n")
    with pytest.raises(errors.DataError, match="2399 windows, 2400 labels"):
        datasets.load("har", _options(tmp_path))


@hypothesis.given(strategies.binary(max_size=64))
def test_no_content_breaks_a_parser_otherwise(content: bytes) -> None:
    for parse in (
        lambda: mnist.parse_idx(content, 1),
        lambda: cifar.parse_records(content, 1),
        lambda: cifar.parse_pickle(content),
        lambda: har.parse_table(content, 2),
    ):
        try:
            parse()
        except ValueError:
            continue


def test_synthetic_data_is_the_same_everywhere_and_can_be_learned() -> None:
    options = datasets.Options(synthetic_shape=(20,), synthetic_classes=4, synthetic_samples=2500)
    data = datasets.load("synthetic", options)
    assert data.train_samples.shape == (2500, 20)
    assert data.test_samples.shape == (500, 20)
    assert data.fingerprint() == datasets.load("synthetic", options).fingerprint()
    middles = torch.stack([data.train_samples[data.train_labels == k].mean(0) for k in range(4)])
    nearest = torch.cdist(data.test_samples, middles).argmin(dim=1)
    assert (nearest == data.test_labels).float().mean() > 0.95
    images = datasets.load("synthetic", datasets.Options(synthetic_samples=10))
    assert images.train_samples.dtype == torch.uint8
    assert images.augmentation == "crop-flip"


def test_augmentation_follows_from_seed_epoch_and_index_alone() -> None:
    data = datasets.load("synthetic", datasets.Options(synthetic_samples=100))
    indices = torch.randperm(100)
    whole, _ = data.train_batch(indices, seed=1, epoch=2)
    for world_size in (2, 3):
        parts = [
            data.train_batch(indices[datasets.rank_slice(100, rank, world_size)], seed=1, epoch=2)
            for rank in range(world_size)
        ]
        assert torch.equal(whole, torch.cat([samples for samples, _ in parts]))
    for seed, epoch in ((1, 3), (2, 2)):
        other, _ = data.train_batch(indices, seed=seed, epoch=epoch)
        assert not torch.equal(whole, other)
    plain = data.augmented(False)
    same, labels = plain.train_batch(indices, seed=1, epoch=2)
    assert torch.equal(same, plain.normalise(plain.train_samples[indices]))
    assert torch.equal(labels, data.train_labels[indices])


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
    keys = augmentation.random_keys(torch.arange(count), seed=0, epoch=1)
    crops = augmentation.crop_and_flip(image.expand(count, 1, 32, 32), keys).contiguous()
    seen = numpy.zeros((9, 9, 2))
    for crop in crops:
        seen[expected[crop.numpy().tobytes()]] += 1
    # 50 of each are expected; chi-square of 161 degrees is below 240 in all but 1 of 10,000 draws.
    assert ((seen - 50) ** 2 / 50).sum() < 240


def test_permutation_depends_on_seed_and_epoch_only() -> None:
    # Recorded: a change would break the comparison with every earlier run.
    assert datasets.permutation(0, 1, 8).tolist() == [7, 3, 6, 4, 5, 0, 2, 1]
    assert datasets.permutation(0, 2, 8).tolist() != [7, 3, 6, 4, 5, 0, 2, 1]
    assert datasets.permutation(1, 1, 8).tolist() != [7, 3, 6, 4, 5, 0, 2, 1]


@hypothesis.settings(deadline=None)
@hypothesis.given(strategies.integers(0, 5000), strategies.integers(1, 64))
def test_slices_of_ranks_cover_a_batch_once(size: int, world_size: int) -> None:
    batch = list(range(size))
    parts = [batch[datasets.rank_slice(size, rank, world_size)] for rank in range(world_size)]
    assert [image for part in parts for image in part] == batch
    lengths = {len(part) for part in parts}
    assert max(lengths) - min(lengths) <= 1
