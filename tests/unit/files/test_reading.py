"""Opening paths that may not be regular files."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from orchestrator import files


def test_a_regular_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"12345")
    assert files.read_bytes(path, limit_bytes=5) == b"12345"
    assert files.read_text(path, limit_bytes=5) == "12345"
    with files.open_regular(path) as file:
        assert file.readline() == b"12345"


def test_a_file_over_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.touch()
    os.truncate(path, 1 << 40)
    with pytest.raises(files.TooLargeError, match="larger than 5 bytes"):
        files.read_bytes(path, limit_bytes=5)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("fifo", "not a regular file but a FIFO"),
        ("folder", "not a regular file but a folder"),
        ("device", "not a regular file but a character device"),
        ("link", "not a regular file but a FIFO"),
    ],
)
def test_no_regular_file(tmp_path: Path, kind: str, message: str) -> None:
    path = tmp_path / "a"
    match kind:
        case "fifo":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "device":
            path = Path("/dev/zero")
        case "link":
            os.mkfifo(tmp_path / "b")
            path.symlink_to("b")
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(files.NotRegularFileError) as raised:
        files.read_bytes(path, limit_bytes=10)
    assert raised.value.strerror == message
    assert raised.value.filename == str(path)
    assert set(os.listdir("/proc/self/fd")) == before


def test_a_socket_is_not_opened(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "a"))
        with pytest.raises(OSError, match="No such device"):
            files.open_regular(tmp_path / "a")


def test_a_pipe_that_the_user_named() -> None:
    reader, writer = os.pipe()
    os.write(writer, b"12345")
    os.close(writer)
    path = f"/proc/self/fd/{reader}"
    assert files.read_bytes(path, limit_bytes=5, is_given=True) == b"12345"
    os.close(reader)


def test_a_pipe_over_the_limit() -> None:
    with pytest.raises(files.TooLargeError, match="larger than 10 bytes"):
        files.read_bytes("/dev/zero", limit_bytes=10, is_given=True)


def test_fifo_without_a_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.files.reading._FIFO_TIMEOUT_SECONDS", 0)
    os.mkfifo(tmp_path / "a")
    with pytest.raises(files.NotRegularFileError) as raised:
        files.read_bytes(tmp_path / "a", limit_bytes=10, is_given=True)
    assert raised.value.strerror == "a FIFO to which nothing was written for 0 s"


def test_a_folder_that_the_user_named(tmp_path: Path) -> None:
    with pytest.raises(files.NotRegularFileError, match="not a regular file but a folder"):
        files.read_bytes(tmp_path, limit_bytes=10, is_given=True)


def test_the_time_of_a_file_is_one_that_can_be_stored() -> None:
    assert files.time_of(1.5).isoformat() == "1970-01-01T00:00:01.500000+00:00"
    for stamp, year in ((-1e14, 1970), (1e14, 2999), (6.7e16, 2999), (2.0**63, 2999)):
        assert files.time_of(stamp).year == year
