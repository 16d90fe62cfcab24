"""The store of snapshots, with real git."""

from __future__ import annotations

import fcntl
import os
import re
import stat
import subprocess
import tarfile
from pathlib import Path

import pytest

from orchestrator.controller.code import store as stores
from tests.unit.controller.code.conftest import Tree


def test_a_snapshot_has_the_tree_as_it_is(tree: Tree) -> None:
    tree.git("add", ".")
    tree.write("train.py", "two\n")
    tree.write("package/new.py", "new\n")
    tree.write(".gitignore", "*.log\n")
    tree.write("run.log", "ignored\n")
    tree.write("tracked.log", "tracked\n")
    tree.git("add", "-f", "tracked.log")
    before = tree.state()
    taken = tree.take()
    assert tree.contents(taken) == {
        ".gitignore": b"*.log\n",
        "package/new.py": b"new\n",
        "tracked.log": b"tracked\n",
        "train.py": b"two\n",
    }
    assert tree.state() == before
    # As git itself would store it.
    tree.git("add", "-A")
    assert taken == tree.git("write-tree").strip()


def test_equal_trees_are_stored_once(tree: Tree) -> None:
    first = tree.take()
    files = sorted(tree.store.folder.glob("objects/**/*"))
    assert tree.take() == first
    assert sorted(tree.store.folder.glob("objects/**/*")) == files
    tree.write("train.py", "two\n")
    second = tree.take()
    tree.write("train.py", "one\n")
    assert (second != first, tree.take()) == (True, first)
    assert tree.contents(first)["train.py"] == b"one\n"


def test_changes_since_the_last_snapshot(tree: Tree) -> None:
    tree.write("a", "file\n")
    tree.write("gone", "gone\n")
    tree.write("now_ignored", "x\n")
    tree.take()
    (tree.folder / "a").unlink()
    tree.write("a/b", "a folder now\n")
    (tree.folder / "gone").unlink()
    tree.write(".gitignore", "now_ignored\n")
    os.chmod(tree.folder / "train.py", 0o755)
    files = tree.store.read(tree.take())
    assert [(file.path, file.mode) for file in files] == [
        (".gitignore", "100644"),
        ("a/b", "100644"),
        ("train.py", "100755"),
    ]


def test_an_edit_that_leaves_size_and_time_is_found(tree: Tree) -> None:
    """By the time at which the inode changed."""
    for number in range(5):
        path = tree.write("train.py", f"{number}\n")
        when = path.stat().st_mtime_ns
        first = tree.take()
        path = tree.write("train.py", f"{number + 5}\n")
        os.utime(path, ns=(when, when))
        assert tree.take() != first


def test_names_of_all_kinds(tree: Tree) -> None:
    names = {"-option", "a b", "a\nb", "ü", "*", "back\\slash", ":(top)x", '"', "caf\udce9"}
    for name in names:
        (tree.folder / name).write_text("x\n")
    (tree.folder / "link").symlink_to("train.py")
    (tree.folder / "dangling").symlink_to("nowhere")
    os.mkfifo(tree.folder / "fifo")
    taken = tree.take()
    assert {file.path for file in tree.store.read(taken)} == names | {
        "train.py",
        "link",
        "dangling",
    }
    copy = tree.folder.parent / "copy"
    tree.store.extract(taken, copy)
    assert {path.name for path in copy.iterdir()} == names | {"train.py", "link", "dangling"}
    assert (copy / "link").readlink() == Path("train.py")


def test_bytes_stay_as_they_are(tree: Tree) -> None:
    """No filter, no line ends, no identifiers: neither in the store nor in the copy."""
    attributes = (
        "* text=auto eol=crlf filter=x ident working-tree-encoding=UTF-16 export-subst\n"
        "secret.py export-ignore\n[attr]hidden export-ignore\nfolder hidden\n"
    )
    tree.write(".gitattributes", attributes)
    files = {
        ".gitattributes": attributes.encode(),
        "crlf.txt": b"one\r\ntwo\nthree\r",
        "ident.c": b"$Id$ $Format:%H$\n",
        "secret.py": b"part of the snapshot\n",
        "folder/x.py": b"too\n",
        "binary": bytes(range(256)),
        "train.py": b"one\n",
    }
    for name, content in files.items():
        tree.write(name, content)
    taken = tree.take()
    assert tree.contents(taken) == files
    copy = tree.folder.parent / "copy"
    tree.store.extract(taken, copy)
    assert {str(p.relative_to(copy)): p.read_bytes() for p in copy.rglob("*") if p.is_file()} == (
        files
    )
    with tarfile.open(tree.store.archive(taken, tree.runs_dir)) as archive:
        members = {member.name: member for member in archive if member.isfile()}
        assert {
            name: archive.extractfile(member).read()  # type: ignore[union-attr]
            for name, member in members.items()
        } == files


def test_the_archive_is_written_once_and_complete(tree: Tree) -> None:
    os.chmod(tree.folder / "train.py", 0o755)
    taken = tree.take()
    path = tree.store.archive(taken, tree.runs_dir)
    assert path == tree.runs_dir / ".code" / f"{taken}.tar"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    written = path.stat().st_ino
    assert tree.store.archive(taken, tree.runs_dir) == path
    assert path.stat().st_ino == written
    assert os.listdir(path.parent) == [path.name]
    with tarfile.open(path) as archive:
        assert [(m.name, oct(m.mode)) for m in archive] == [("train.py", "0o775")]


def test_the_difference_of_two_snapshots(tree: Tree) -> None:
    first = tree.take()
    tree.write("train.py", "two\n")
    second = tree.take()
    text = tree.store.difference(first, second, limit_bytes=10**6)
    assert "-one\n+two\n" in text
    assert tree.store.difference(first, first, limit_bytes=10**6) == ""
    tree.write("train.py", "long line\n" * 10_000)
    third = tree.take()
    text = tree.store.difference(first, third, limit_bytes=1000)
    command = f"git --git-dir={tree.store.folder} diff {first} {third}"
    assert text.endswith(
        f"\n+long line\nCut after 1000 bytes. All of it: {command}\nOne file: {command} -- FILE\n"
    )
    assert len(text) < 1600
    for options in ([], ["--", "train.py"]):
        words = [*command.split(), *options]
        whole = subprocess.run(words, check=True, capture_output=True).stdout
        assert whole.count(b"+long line\n") == 10_000


def test_all_files_that_differ_are_listed_first(tree: Tree) -> None:
    """Also those whose text is cut."""
    tree.write("a_large", "x\n" * 5000)
    tree.write("gone.py", "1\n2\n")
    first = tree.take()
    tree.write("a_large", "y\n" * 5000)
    (tree.folder / "gone.py").unlink()
    tree.write(f"{'long/' * 20}x.py", "new\n")
    tree.write("z.bin", b"\0" * 100)
    os.chmod(tree.folder / "train.py", 0o755)
    listed, _, text = tree.store.difference(first, tree.take(), limit_bytes=300).partition("\n\n")
    assert listed.splitlines() == [
        f" {'a_large':110} | 10000 ++++++++++----------",
        f" {'gone.py (gone)':110} |     2 -",
        f" {'long/' * 20}x.py (new) |     1 +",
        f" {'train.py (mode +x)':110} |     0",
        f" {'z.bin (new)':110} |   Bin 0 -> 100 bytes",
        " 5 files changed, 5001 insertions(+), 5002 deletions(-)",
    ]
    assert "gone.py" not in text


def test_a_copy_replaces_nothing(tree: Tree) -> None:
    taken = tree.take()
    message = re.escape(f"{tree.folder} exists: name a new folder")
    with pytest.raises(stores.SnapshotError, match=message):
        tree.store.extract(taken, tree.folder)


def test_a_snapshot_that_is_not_stored(tree: Tree) -> None:
    message = (
        r"^the snapshot 000000000000 of the code is no longer stored\. Nothing was submitted\. "
        r"`orchestrator submit` submits the job with the code as it is now\.$"
    )
    tree.take()
    for absent in ("0" * 40, "--help", "HEAD"):
        assert not tree.store.has(absent)
    with pytest.raises(stores.NoSnapshotError, match=message):
        tree.store.read("0" * 40)
    with pytest.raises(stores.NoSnapshotError):
        tree.store.archive("0" * 40, tree.runs_dir)


def test_what_git_refuses(tree: Tree) -> None:
    (tree.folder / "folder").mkdir()
    message = f"^{tree.folder}: git update-index failed: error: folder: is a directory"
    with pytest.raises(stores.SnapshotError, match=message):
        tree.store.take(tree.folder, ["folder"], {})


def test_the_store_is_private(tree: Tree) -> None:
    tree.take()
    assert stat.S_IMODE(tree.store.folder.stat().st_mode) == 0o700
    os.chmod(tree.store.folder.parent, 0o777)
    with pytest.raises(stores.SnapshotError, match="can be written by every user"):
        tree.take()


def test_without_git(tree: Tree) -> None:
    store = stores.Store(folder=tree.store.folder, environ={"PATH": "/nonexistent"})
    with pytest.raises(stores.SnapshotError, match=r"^git could not be started: .* need git: "):
        store.take(tree.folder, ["train.py"], {})


def test_the_last_use_is_known_and_prune_waits(tree: Tree) -> None:
    """By the times of reference and archive, and by a lock."""
    taken = tree.take()
    used = (
        tree.store.folder / "refs" / "snapshots" / taken,
        tree.store.archive(taken, tree.runs_dir),
    )
    for path in used:
        os.utime(path, (1, 1))
    assert (tree.take(), tree.store.archive(taken, tree.runs_dir)) == (taken, used[1])
    assert all(path.stat().st_mtime > 1 for path in used)
    with open(tree.store.folder / "lock", "wb") as lock:
        with tree.store.locked(), pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_drafts_of_killed_calls_are_removed_after_a_day(tree: Tree) -> None:
    tree.take()
    old, new = (tree.store.folder / "indexes" / name for name in ("old.1", "new.2"))
    for path in (old, new):
        path.write_text("")
    os.utime(old, (1, 1))
    tree.take()
    assert (old.exists(), new.exists()) == (False, True)


@pytest.mark.parametrize("content", [b"", b"DIRC"])
def test_a_damaged_index_is_written_again(tree: Tree, content: bytes) -> None:
    taken = tree.take()
    (index,) = (tree.store.folder / "indexes").iterdir()
    index.write_bytes(content)
    assert tree.take() == taken
