"""Files of data sets are unpacked or downloaded completely, once, and only if asked for."""

from __future__ import annotations

import argparse
import gzip
import hashlib
import http.server
import io
import json
import pickle
import re
import shutil
import socket
import subprocess
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the trainer needs PyTorch")
datasets = pytest.importorskip("torchvision.datasets", reason="these data sets are torchvision's")

import numpy  # noqa: E402

from tests.trainer import forked  # noqa: E402
from trainers import arguments, data, distributed, errors  # noqa: E402
from trainers.data import har, memory  # noqa: E402

pytestmark = pytest.mark.trainer

ELSEWHERE = "set another folder with --data-dir FOLDER (or DATA_DIR in the environment)"
DOWNLOAD = "or use --download on a machine with network access"
ADDRESS = "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz"
CIFAR_ADVICE = f"Put there\n  cifar-100-python.tar.gz from {ADDRESS}\nor {ELSEWHERE}, {DOWNLOAD}."


class Server(http.server.ThreadingHTTPServer):
    """Serves some files from memory and counts the requests."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.requests: list[str] = []

    def address(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{name}"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        assert isinstance(self.server, Server)
        self.send_response(200 if self.path.strip("/") in self.server.files else 404)
        self.end_headers()

    def do_GET(self) -> None:
        assert isinstance(self.server, Server)
        self.do_HEAD()
        name = self.path.strip("/")
        self.server.requests.append(name)
        self.wfile.write(self.server.files.get(name, b""))

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Block the network, and return the addresses that were tried."""
    tried: list[object] = []

    def refuse(*arguments: object, **keywords: object) -> None:
        tried.append(arguments)
        raise OSError("the network is blocked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    return tried


def _cifar_files(num_images: int = 20) -> dict[str, bytes]:
    """Return the content of small CIFAR-100 files by path."""
    generator = numpy.random.default_rng(0)

    def batch() -> dict[str, Any]:
        pixels = generator.integers(0, 256, (num_images, 3072), dtype=numpy.uint8)
        return {"data": pixels, "fine_labels": generator.integers(0, 3, num_images).tolist()}

    contents = {"train": batch(), "test": batch(), "meta": {"fine_label_names": ["a", "b", "c"]}}
    return {f"cifar-100-python/{name}": pickle.dumps(each) for name, each in contents.items()}


def _tar(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def _md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


def _cifar_attributes(archive: bytes, address: str) -> dict[str, Any]:
    """Return the attributes of torchvision's class for the small files."""
    md5 = {name.rpartition("/")[2]: _md5(content) for name, content in _cifar_files().items()}
    return {
        "train_list": [["train", md5["train"]]],
        "test_list": [["test", md5["test"]]],
        "meta": {"filename": "meta", "key": "fine_label_names", "md5": md5["meta"]},
        "tgz_md5": _md5(archive),
        "url": address,
    }


@pytest.fixture
def cifar(monkeypatch: pytest.MonkeyPatch) -> bytes:
    """The archive of a small CIFAR-100, whose checksums torchvision knows."""
    archive = _tar(_cifar_files())
    for name, value in _cifar_attributes(archive, ADDRESS).items():
        monkeypatch.setattr(datasets.CIFAR100, name, value)
    return archive


def _args(name: str, folder: Path, *flags: str) -> argparse.Namespace:
    return arguments.parse_arguments([f"--dataset={name}", f"--data-dir={folder}", *flags])


def _load(name: str, folder: Path, *, download: bool = False) -> data.Splits:
    return data.load(_args(name, folder, *(["--download"] if download else [])))


def _error(name: str, folder: Path, *, download: bool = False) -> str:
    with pytest.raises(errors.DataError) as caught:
        _load(name, folder, download=download)
    return str(caught.value)


def _paths(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_missing_data_names_the_archive_and_does_not_download(
    tmp_path: Path, connections: list[object]
) -> None:
    folder = tmp_path / "data"
    assert _error("cifar100", folder) == (
        f"cifar100 cannot be read from {folder} (Dataset not found or corrupted). {CIFAR_ADVICE}"
    )
    address = "https://ossci-datasets.s3.amazonaws.com/mnist/"
    names = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    listed = [f"  MNIST/raw/{name}-ubyte.gz from {address}{name}-ubyte.gz\n" for name in names]
    assert _error("mnist", folder) == (
        f"mnist cannot be read from {folder} (Dataset not found). Put there\n{''.join(listed)}"
        f"or {ELSEWHERE}, {DOWNLOAD}."
    )
    assert not folder.exists()
    for download in (False, True):
        assert _error("har", folder, download=download) == (
            f"har cannot be read from {folder} ([Errno 2] No such file or directory:"
            f" '{folder}/UCI HAR Dataset/train/y_train.txt'). Put UCI HAR Dataset.zip from"
            f" {har.ADDRESS} there, or {ELSEWHERE}. It has no published checksum, so --download"
            " does not download it."
        )
    assert connections == []


def test_an_archive_is_unpacked_without_network(
    tmp_path: Path, cifar: bytes, connections: list[object]
) -> None:
    archive = tmp_path / "cifar-100-python.tar.gz"
    archive.write_bytes(cifar)
    splits = _load("cifar100", tmp_path)
    files = _cifar_files()
    assert _paths(tmp_path) == [".staging.lock", *sorted([archive.name, *files])]
    batch = pickle.loads(files["cifar-100-python/test"])
    # The first 1,024 bytes of an image are its red plane, row by row.
    assert torch.equal(splits.eval.samples, torch.from_numpy(batch["data"]).reshape(20, 3, 32, 32))
    assert splits.eval.labels.tolist() == batch["fine_labels"]
    assert (splits.num_classes, splits.unit) == (3, "images")
    assert (splits.train.augment, splits.eval.augment) == (True, False)
    assert connections == []


def test_damaged_files_are_explained_or_unpacked_again(
    tmp_path: Path, cifar: bytes, connections: list[object]
) -> None:
    archive = tmp_path / "cifar-100-python.tar.gz"
    archive.write_bytes(cifar[:-1])
    damaged = (
        f"cifar100 cannot be read from {tmp_path} (Dataset not found or corrupted). {CIFAR_ADVICE}"
    )
    assert _error("cifar100", tmp_path) == damaged
    archive.write_bytes(cifar)
    _load("cifar100", tmp_path)
    path = tmp_path / "cifar-100-python/train"
    intact = path.read_bytes()
    path.write_bytes(intact[:-1])
    _load("cifar100", tmp_path)
    assert path.read_bytes() == intact
    archive.unlink()
    path.write_bytes(intact[:-1])
    assert _error("cifar100", tmp_path) == damaged
    assert connections == []


def test_mnist_of_its_own_files(shared_data: Path, connections: list[object]) -> None:
    splits = _load("mnist", shared_data)
    for part, prefix, count in ((splits.train, "train", 9000), (splits.eval, "t10k", 1000)):
        raw = shared_data / "MNIST/raw"
        pixels = numpy.fromfile(raw / f"{prefix}-images-idx3-ubyte", dtype=numpy.uint8)[16:]
        labels = numpy.fromfile(raw / f"{prefix}-labels-idx1-ubyte", dtype=numpy.uint8)[8:]
        assert torch.equal(part.samples, torch.from_numpy(pixels).reshape(count, 1, 28, 28))
        assert part.labels.tolist() == labels.tolist()
    # Everybody's constants for MNIST, from all 60,000 images.
    assert splits.train.mean.item() / 255 == pytest.approx(0.1307, abs=0.005)
    assert splits.train.std.item() / 255 == pytest.approx(0.3081, abs=0.005)
    assert (splits.train.augment, splits.num_classes) == (False, 10)
    assert connections == []


def test_a_damaged_mnist_file_is_explained(
    shared_data: Path, tmp_path: Path, connections: list[object]
) -> None:
    shutil.copytree(shared_data / "MNIST", tmp_path / "MNIST")
    path = tmp_path / "MNIST/raw/t10k-images-idx3-ubyte"
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:-1])
    assert re.match(
        rf"mnist cannot be read from {tmp_path} \(.+\)\. Put there\n  MNIST/raw/train",
        _error("mnist", tmp_path),
    )
    assert connections == []


def test_mnist_and_har_come_out_of_their_archives(
    tmp_path: Path,
    shared_data: Path,
    monkeypatch: pytest.MonkeyPatch,
    connections: list[object],
) -> None:
    (tmp_path / "MNIST/raw").mkdir(parents=True)
    resources = []
    for name, _ in datasets.MNIST.resources:
        content = (shared_data / "MNIST/raw" / name.removesuffix(".gz")).read_bytes()
        (tmp_path / "MNIST/raw" / name).write_bytes(gzip.compress(content, compresslevel=1))
        resources.append((name, _md5((tmp_path / "MNIST/raw" / name).read_bytes())))
    monkeypatch.setattr(datasets.MNIST, "resources", resources)
    with zipfile.ZipFile(tmp_path / "UCI HAR Dataset.zip", "w") as archive:
        for path in (shared_data / har.ROOT).rglob("*.txt"):
            archive.write(path, path.relative_to(shared_data))
    for name in ("mnist", "har"):
        unpacked, original = _load(name, tmp_path), _load(name, shared_data)
        for part, other in ((unpacked.train, original.train), (unpacked.eval, original.eval)):
            assert memory.fingerprint(part) == memory.fingerprint(other)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".staging.lock",
        "MNIST",
        "UCI HAR Dataset.zip",
    ]
    assert connections == []


def test_an_archive_that_cannot_be_read_is_explained(tmp_path: Path) -> None:
    (tmp_path / "UCI HAR Dataset.zip").write_bytes(b"no zip file")
    assert _error("har", tmp_path).startswith(
        f"har cannot be read from {tmp_path} (File is not a zip file). Put UCI HAR Dataset.zip from"
    )


def test_a_download_is_checked_and_moved_into_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Server, cifar: bytes
) -> None:
    name = "cifar-100-python.tar.gz"
    folder = tmp_path / "data"
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/{name}"
    monkeypatch.setattr(datasets.CIFAR100, "url", url)
    assert _error("cifar100", folder, download=True) == (
        f"cannot stage data in {folder} (<urlopen error [Errno 111] Connection refused>). Put there"
        f"\n  {name} from {url}\nor {ELSEWHERE}, {DOWNLOAD}."
    )
    monkeypatch.setattr(datasets.CIFAR100, "url", server.address(name))
    server.files[name] = cifar[:-1]
    message = _error("cifar100", folder, download=True)
    assert message.startswith(
        f"cannot stage data in {folder} (File not found or corrupted.). Put there\n  {name} from"
    )
    assert _paths(folder) == [".staging.lock"]
    server.files[name] = cifar
    _load("cifar100", folder, download=True)
    server.requests.clear()
    _load("cifar100", folder, download=True)
    assert _paths(folder) == [".staging.lock", *sorted([name, *_cifar_files()])]
    # The archive that is there replaces a damaged file.
    (folder / "cifar-100-python/meta").write_bytes(b"")
    _load("cifar100", folder, download=True)
    assert server.requests == []


TWO_PROCESSES = """
import json, os, sys
from torchvision import datasets
from trainers import arguments, data

for name, value in json.loads(sys.argv[1]).items():
    setattr(datasets.CIFAR100, name, value)
children = []
for _ in range(2):
    child = os.fork()
    if child == 0:
        data.load(arguments.parse_arguments(sys.argv[2:]))
        os._exit(0)
    children.append(child)
sys.exit(max(os.waitpid(child, 0)[1] for child in children) != 0)
"""


def test_two_processes_download_once(
    launch: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    server: Server,
    cifar: bytes,
) -> None:
    name = "cifar-100-python.tar.gz"
    server.files[name] = cifar
    monkeypatch.setattr(datasets.CIFAR100, "url", server.address(name))
    _load("cifar100", tmp_path / "one", download=True)
    requests_of_one = list(server.requests)
    server.requests.clear()
    attributes = json.dumps(_cifar_attributes(cifar, server.address(name)))
    words = ["--dataset=cifar100", f"--data-dir={tmp_path}/two", "--download"]
    done = launch(["-c", TWO_PROCESSES, attributes, *words])
    assert done.returncode == 0, done.stderr
    assert server.requests == requests_of_one


def _dist(local_rank: int) -> distributed.DistInfo:
    return forked.dist_info(local_rank, 2)


@pytest.mark.parametrize("local_rank", [0, 1])
def test_all_ranks_end_if_one_cannot_stage(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, local_rank: int
) -> None:
    sums: list[int] = []

    def add_failure_of_another_rank(tensor: torch.Tensor, op: str = "sum") -> torch.Tensor:
        sums.append(int(tensor))
        return tensor + 1

    monkeypatch.setattr(distributed, "all_reduce", add_failure_of_another_rank)
    with pytest.raises(errors.DataError) as caught:
        data.load_on_all_ranks(_args("cifar100", tmp_path), _dist(local_rank))
    # Only the first rank of a node looks at the files before all have agreed.
    if local_rank == 0:
        assert str(caught.value).startswith(f"cifar100 cannot be read from {tmp_path} (")
        assert sums == [1]
    else:
        assert str(caught.value) == "cifar100 cannot be read on another rank: see its error."
        assert sums == [0]
