"""Which other users can change a path. Files of other users require root."""

from __future__ import annotations

import errno
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator import files

ROOT = os.geteuid() == 0
NOBODY = 65534
needs_root = pytest.mark.skipif(not ROOT, reason="needs root to make files of another user")


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "own").mkdir(mode=0o700)
    return tmp_path / "own"


@pytest.fixture
def _umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def test_a_folder_of_our_own(own: Path) -> None:
    assert files.exposure(own) is None
    assert files.exposure(own / "missing" / "further") is None


@pytest.mark.parametrize("name", ["", "file", "sub/file"])
def test_every_user_can_write_above(own: Path, name: str) -> None:
    own.chmod(0o777)
    exposure = files.exposure(own / name)
    assert str(exposure) == f"{own} can be written by every user"


def test_the_sticky_bit_protects_our_entries_and_not_the_folder_itself(own: Path) -> None:
    own.chmod(0o1777)
    assert files.exposure(own / "missing") is None
    (own / "mine").mkdir()
    assert files.exposure(own / "mine") is None
    for path in (own, own / "mine" / ".."):
        exposure = files.exposure(path)
        assert exposure is not None
        assert (exposure.path, exposure.reason) == (own, "can be written by every user")


@needs_root
def test_a_folder_of_another_user(own: Path) -> None:
    os.chown(own, NOBODY, 0)
    name = pwd.getpwuid(NOBODY).pw_name
    assert str(files.exposure(own / "x")) == f"{own} belongs to user {name}"
    os.chown(own, 54321, 0)
    assert str(files.exposure(own / "x")) == f"{own} belongs to user ID 54321"


@needs_root
def test_an_entry_of_another_user_in_a_sticky_folder(own: Path) -> None:
    own.chmod(0o1777)
    (own / "bait").mkdir()
    os.chown(own / "bait", NOBODY, 0)
    exposure = files.exposure(own / "bait" / "state")
    assert exposure is not None
    assert exposure.path == own / "bait"


@needs_root
def test_a_link_of_another_user(own: Path) -> None:
    own.chmod(0o1777)
    (own / "target").mkdir()
    (own / "link").symlink_to("target")
    assert files.exposure(own / "link" / "x") is None
    os.chown(own / "link", NOBODY, 0, follow_symlinks=False)
    exposure = files.exposure(own / "link" / "x")
    assert exposure is not None
    assert exposure.path == own / "link"


def test_a_link_leads_through_the_folders_of_its_target(tmp_path: Path, own: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (own / "up").mkdir()
    (own / "link").symlink_to("up/../../open/inside")
    exposure = files.exposure(own / "link")
    assert exposure is not None
    assert exposure.path == tmp_path / "open"


def test_links_without_end(own: Path) -> None:
    (own / "a").symlink_to("b")
    (own / "b").symlink_to("a")
    with pytest.raises(OSError, match="Too many levels") as raised:
        files.exposure(own / "a")
    assert raised.value.errno == errno.ELOOP


@needs_root
def test_a_group_folder_is_accepted_when_the_user_opted_in(tmp_path: Path, own: Path) -> None:
    (own / "project").mkdir()
    os.chown(own, NOBODY, 100)
    own.chmod(0o2770)
    refused = files.exposure(own / "project")
    assert refused is not None
    assert files.exposure(own / "project", shared_folders=[own]) is None
    assert files.exposure(own / "project", shared_folders=[own / "project"]) == refused
    own.chmod(0o2777)
    exposure = files.exposure(own / "project", shared_folders=[own])
    assert exposure is not None
    assert exposure.reason == "can be written by every user"


@needs_root
def test_group_with_other_members(own: Path) -> None:
    own.chmod(0o770)
    os.chown(own, 0, 100)
    exposure = files.exposure(own)
    assert exposure is not None
    assert exposure.reason == "can be written by group users"


@needs_root
def test_an_acl_for_another_user_beside_a_private_group(own: Path) -> None:
    own.chmod(0o770)
    assert files.exposure(own) is None
    # linux/posix_acl_xattr.h: version 2; the user, user 65534, the group, the mask, others
    entries = [(1, 7, -1), (2, 7, NOBODY), (4, 7, -1), (16, 7, -1), (32, 0, -1)]
    acl = (2).to_bytes(4, "little") + b"".join(
        tag.to_bytes(2, "little")
        + rights.to_bytes(2, "little")
        + (number & 0xFFFFFFFF).to_bytes(4, "little")
        for tag, rights, number in entries
    )
    try:
        os.setxattr(own, "system.posix_acl_access", acl)
    except OSError as error:
        pytest.skip(f"this file system has no POSIX ACLs: {error.strerror}")
    exposure = files.exposure(own)
    assert exposure is not None
    assert exposure.reason == "can be written by group root"


@pytest.mark.usefixtures("_umask")
@pytest.mark.parametrize("umask", [0, 0o022, 0o077, 0o777])
def test_a_private_folder_is_0700_with_any_umask(own: Path, umask: int) -> None:
    os.umask(umask)
    files.make_private_folder(own / "a" / "b" / "c")
    for folder in ("a", "a/b", "a/b/c"):
        assert stat.S_IMODE((own / folder).stat().st_mode) == 0o700
    files.make_private_folder(own / "a" / "b" / "c")


def test_folder_writable_by_other_users_is_not_private(own: Path) -> None:
    own.chmod(0o777)
    with pytest.raises(files.PrivateFolderError, match="can be written by every user"):
        files.make_private_folder(own)


def test_path_is_a_file(own: Path) -> None:
    (own / "a").touch()
    with pytest.raises(NotADirectoryError):
        files.make_private_folder(own / "a")


def test_fixes(own: Path) -> None:
    own.chmod(0o777)
    exposure = files.exposure(own)
    assert exposure is not None and exposure.cure == f"run `chmod go-w {own}`"
    # The mode of a device is not for its reader to change.
    device = files.exposure(Path("/dev/zero"))
    assert device is not None and device.cure == ""


@needs_root
def test_how_a_group_or_an_owner_is_accepted(own: Path) -> None:
    accept = f'accept it with `shared_folders = ["{own}"]` in your own configuration'
    os.chown(own, 0, NOBODY)
    own.chmod(0o770)
    exposure = files.exposure(own)
    assert exposure is not None and exposure.cure == f"run `chmod g-w {own}`, {accept}"
    os.chown(own, NOBODY, NOBODY)
    exposure = files.exposure(own)
    assert exposure is not None and exposure.cure == accept


def test_nothing_is_created_in_a_folder_that_others_can_change(own: Path) -> None:
    own.chmod(0o777)
    with pytest.raises(files.PrivateFolderError) as raised:
        files.make_private_folder(own / "new" / "deep", setting="runs_dir")
    assert raised.value.strerror == (
        f"{own}/new/deep is not used: {own} can be written by every user, so others could change "
        f"what your jobs run. Run `chmod go-w {own}`, or set runs_dir to a folder of "
        "your own."
    )
    assert list(own.iterdir()) == []
