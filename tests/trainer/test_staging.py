"""Data sets are staged completely, once, and with their published checksum."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import http.server
import io
import multiprocessing
import os
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the trainer needs PyTorch")

from trainers import datasets, errors
from trainers.datasets import cifar, har, mnist, staging

pytestmark = pytest.mark.trainer


class Server(http.server.ThreadingHTTPServer):
    """Serves some files from memory and counts what is asked for."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []

    def address(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{name}"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Server)
        name = self.path.strip("/")
        self.server.asked.append(name)
        content = self.server.files.get(name)
        self.send_response(404 if content is None else 200)
        self.end_headers()
        self.wfile.write(content or b"")

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


def _tar(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def _published(server: Server, source: staging.Source, make: Callable[[str], bytes]):
    """Return the source as this server publishes it."""
    archives = []
    for archive in source.archives:
        name = archive.path.rpartition("/")[2]
        server.files[name] = make(name)
        md5 = hashlib.md5(server.files[name]).hexdigest()
        archives.append(dataclasses.replace(archive, address=server.address(name), md5=md5))
    return dataclasses.replace(source, archives=tuple(archives))


@pytest.fixture
def cifar_source(server: Server) -> staging.Source:
    # A member outside of the folder must not be unpacked.
    files = {"../evil": b"x", "cifar-100-binary/extra": b"x"}
    files |= {path: os.urandom(1000) for path in cifar.CIFAR100_SOURCE.files}
    return _published(server, cifar.CIFAR100_SOURCE, lambda name: _tar(files))


def _left(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_missing_data_names_the_folder_and_does_not_download(tmp_path: Path) -> None:
    with pytest.raises(errors.DataError) as caught:
        datasets.stage("cifar100", datasets.Options(folder=tmp_path / "data"))
    assert str(caught.value) == (
        f"CIFAR-100 is not in {tmp_path}/data. Either\n"
        "  put its files there: cifar-100-binary/train.bin, ... (2 files), or\n"
        f"  put {tmp_path}/data/cifar-100-binary.tar.gz there,"
        " from https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz\n"
        "or set its folder with --data-dir FOLDER (or DATA_DIR in the environment).\n"
        "On a machine with network access, --download downloads it."
    )
    assert not (tmp_path / "data").exists()
    with pytest.raises(errors.DataError, match="UCI HAR is published without a checksum"):
        datasets.stage("har", datasets.Options(folder=tmp_path, download=True))


def test_download_is_checked_and_only_what_is_read_is_unpacked(
    tmp_path: Path, server: Server, cifar_source: staging.Source
) -> None:
    folder = tmp_path / "data"
    staging.stage(cifar_source, folder, download=True)
    staging.stage(cifar_source, folder, download=True)
    assert server.asked == ["cifar-100-binary.tar.gz"]
    assert _left(tmp_path) == [
        "data/.CIFAR-100.lock",
        "data/cifar-100-binary.tar.gz",
        "data/cifar-100-binary/test.bin",
        "data/cifar-100-binary/train.bin",
    ]


def test_an_archive_that_is_there_needs_no_network(
    tmp_path: Path, server: Server, cifar_source: staging.Source
) -> None:
    archive = tmp_path / "cifar-100-binary.tar.gz"
    archive.write_bytes(server.files[archive.name])
    staging.stage(cifar_source, tmp_path, download=False)
    assert server.asked == []
    assert staging.read(tmp_path, cifar_source, "cifar-100-binary/test.bin")
    (tmp_path / "cifar-100-binary/test.bin").unlink()
    archive.write_bytes(server.files[archive.name][:-1])
    with pytest.raises(errors.DataError, match=f"{archive} is damaged \\(MD5 "):
        staging.stage(cifar_source, tmp_path, download=False)


def test_mnist_and_har_come_out_of_their_archives(tmp_path: Path, server: Server) -> None:
    source = _published(server, mnist.SOURCE, lambda name: gzip.compress(name.encode()))
    staging.stage(source, tmp_path, download=True)
    for path in source.files:
        assert (tmp_path / path).read_text() == f"{Path(path).name}.gz"
    with zipfile.ZipFile(tmp_path / "UCI HAR Dataset.zip", "w") as archive:
        for path in har.SOURCE.files:
            archive.writestr(path, path)
    staging.stage(har.SOURCE, tmp_path, download=False)
    assert all((tmp_path / path).read_text() == path for path in har.SOURCE.files)


def test_a_bad_download_leaves_nothing(
    tmp_path: Path, server: Server, cifar_source: staging.Source
) -> None:
    (name,) = server.files
    server.files[name] = server.files[name][:-1]
    with pytest.raises(errors.DataError, match="checksum mismatch of "):
        staging.stage(cifar_source, tmp_path, download=True)
    del server.files[name]
    with pytest.raises(errors.DataError, match=r"cannot download .* \(HTTP Error 404: Not Found\)"):
        staging.stage(cifar_source, tmp_path, download=True)
    assert _left(tmp_path) == [".CIFAR-100.lock"]


def test_processes_that_ask_at_once_fetch_once(
    tmp_path: Path, server: Server, cifar_source: staging.Source
) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(
            target=staging.stage, args=(cifar_source, tmp_path), kwargs={"download": True}
        )
        for _ in range(2)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0]
    assert server.asked == ["cifar-100-binary.tar.gz"]
