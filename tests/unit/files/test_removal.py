"""Removal of folders: links are not followed, depth does not matter, and it may be interrupted."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.files import disk_use, removal


@pytest.fixture
def parent(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


def test_files_and_folders_go(tmp_path: Path, parent: int) -> None:
    for name in ("x/a/b/c", "x/a/d", "x/e"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "file").write_text("text")
    (tmp_path / "y").write_text("stays")
    removal.remove("x", parent)
    assert os.listdir(tmp_path) == ["y"]
    removal.remove("y", parent)
    with pytest.raises(FileNotFoundError):
        removal.remove("y", parent)


def test_links_are_not_followed(tmp_path: Path, parent: int) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/file").write_text("text")
    (tmp_path / "x/inner").mkdir(parents=True)
    (tmp_path / "x/link").symlink_to(tmp_path / "kept")
    (tmp_path / "x/inner/link").symlink_to(tmp_path / "kept/file")
    removal.remove("x", parent)
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    removal.remove("link", parent)
    assert [*tmp_path.rglob("*")] == [tmp_path / "kept", tmp_path / "kept/file"]


def test_deeper_than_any_path(tmp_path: Path, parent: int) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)
    # A path of 4,096 bytes has 2,048 levels at most, and a process 1,024 open files.
    for _ in range(2_100):
        os.mkdir("d", dir_fd=folder)
        inner = os.open("d", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(folder)
    removal.remove("d", parent)
    assert os.listdir(tmp_path) == []


def test_read_only_folders(tmp_path: Path) -> None:
    """As another user: root needs no permission."""
    (tmp_path / "x/inner/deep").mkdir(parents=True)
    (tmp_path / "x/inner/deep/file").write_text("text")
    uid = os.geteuid() or 65534
    for path in [tmp_path, *tmp_path.rglob("*")]:
        os.chown(path, uid, -1)
    for path in (tmp_path / "x/inner/deep", tmp_path / "x/inner", tmp_path / "x"):
        path.chmod(0o500)
    descriptor = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            os.setuid(uid)
            removal.remove("x", descriptor)
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    os.close(descriptor)
    assert os.listdir(tmp_path) == []


def test_the_rest_goes_if_something_cannot(
    tmp_path: Path, parent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("x/a", "x/b"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "file").write_text("text")
        (tmp_path / name / "busy").write_text("text")
    unlink = os.unlink

    def refuse(name: str, *, dir_fd: int) -> None:
        if name == "busy":
            raise OSError(16, "Device or resource busy", name)
        unlink(name, dir_fd=dir_fd)

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refuse)
        with pytest.raises(OSError, match="busy"):
            removal.remove("x", parent)
    left = sorted(path.name for path in tmp_path.rglob("*") if path.is_file())
    assert left == ["busy", "busy"]
    removal.remove("x", parent)
    assert os.listdir(tmp_path) == []


def test_hard_links_count_once_and_links_are_not_followed(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    (first / "code.tar").write_bytes(b"x" * 100_000)
    os.link(first / "code.tar", second / "code.tar")
    (second / "7.out").write_bytes(b"x" * 50_000)
    (second / "link").symlink_to(first)
    examiner = disk_use.Examiner(1000)

    def kind(name: str) -> str:
        return name.partition(".")[2] or "other"

    of_first, of_second = examiner.examine(first, kind), examiner.examine(second, kind)
    assert of_first["tar"] >= 100_000
    assert of_second["tar"] == 0
    assert 50_000 <= of_second["out"] < 100_000
    assert of_second["other"] < 50_000
    assert not examiner.is_over
    assert examiner.examine(tmp_path / "missing", kind) == {}


def test_at_most_so_many_files(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / str(number)).write_text("text")
    examiner = disk_use.Examiner(10)
    assert 0 < examiner.size_bytes(tmp_path) < 20 * 4096
    assert examiner.is_over
