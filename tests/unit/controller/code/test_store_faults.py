"""The store of snapshots when something is broken, full, locked or left over, with real git."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator import files
from orchestrator.controller.code import store as stores
from tests.unit.controller.code.conftest import Tree


def damaged(tree: Tree, why: str) -> str:
    """Return the message."""
    folder = tree.store.folder
    return (
        f"the store of snapshots {folder} is damaged ({why}). Move it away, and submit again: `mv "
        f"{folder} {folder}.damaged`. Submitted jobs keep their code; `checkout` and `diff` no "
        "longer find the snapshots in it."
    )


def test_content_that_is_missing(tree: Tree) -> None:
    taken = tree.take()
    for path in (tree.store.folder / "objects" / "pack").iterdir():
        path.unlink()
    message = damaged(tree, f"files of {taken} are missing")
    with pytest.raises(stores.SnapshotError, match=f"^{re.escape(message)}$"):
        tree.store.read(taken)
    assert tree.store.summary(taken) == f"not known: {message}"


@pytest.mark.parametrize(
    "damage", ["no pack", "truncated pack", "empty tree", "no tree", "no HEAD"]
)
def test_a_damaged_store(tree: Tree, damage: str) -> None:
    """The message says what to do, and that helps."""
    taken = tree.take()
    objects = tree.store.folder / "objects"
    blob = tree.store.read(taken)[0].object_id
    (pack,) = objects.glob("pack/*.pack")
    loose = objects / taken[:2] / taken[2:]
    why = {
        "no pack": f"git archive: error: invalid object 100644 {blob} for 'train.py'",
        "truncated pack": f"git archive: error: packfile {pack} does not match index",
        "empty tree": f"git archive: error: object file {loose} is empty",
        "no tree": f"git show-ref: fatal: git show-ref: bad ref refs/snapshots/{taken} ({taken})",
        "no HEAD": f"git show-ref: fatal: not a git repository: '{tree.store.folder}'",
    }
    for path in (pack, loose):
        path.chmod(0o600)
    if damage in ("no pack", "no tree", "no HEAD"):
        {"no pack": pack, "no tree": loose, "no HEAD": tree.store.folder / "HEAD"}[damage].unlink()
    else:
        os.truncate(*{"truncated pack": (pack, 20), "empty tree": (loose, 0)}[damage])
    with pytest.raises(stores.SnapshotError) as raised:
        tree.store.archive(taken, tree.runs_dir)
    assert str(raised.value) == damaged(tree, why[damage])
    tree.store.folder.rename(f"{tree.store.folder}.damaged")
    assert tree.take() == taken
    assert tree.store.archive(taken, tree.runs_dir).exists()


@pytest.mark.parametrize("is_used", [False, True])
def test_what_killed_calls_have_left(tree: Tree, is_used: bool) -> None:
    """It does not stop the next snapshot, which removes it if nobody else uses the store."""
    taken = tree.take()
    store = tree.store.folder
    left = [
        store / "objects" / "pack" / "tmp_pack_x",
        store / "objects" / "tmp_objdir-bulk-fsync-x" / "ab" / "tmp_obj_x",
        store / "refs" / "snapshots" / f"{taken}.lock",
        store / "refs" / "snapshots" / f".{taken}.0a1b2c3d",
        store / "packed-refs.lock",
    ]
    for path in left:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    with open(store / "lock", "wb") as lock:
        if is_used:
            fcntl.flock(lock, fcntl.LOCK_SH)
        assert tree.take() == taken
    assert [path.exists() for path in left] == [is_used] * len(left)


#: Mounts a small disk, and takes a snapshot of a tree that is larger than it.
FULL_DISK = """
import os, pathlib, subprocess, sys
from orchestrator.controller.code import store as stores
folder, state = map(pathlib.Path, sys.argv[1:])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "full", state], check=True)
store = stores.Store(folder=state / "code", environ=dict(os.environ))
small = store.take(folder, ["train.py"], {})
try:
    store.take(folder, ["train.py", "large"], {})
except stores.SnapshotError as error:
    print(error)
print(sorted(path.name for path in store.folder.glob("objects/pack/tmp*")))
print(store.take(folder, ["train.py"], {}) == small)
"""


def test_a_full_disk(tree: Tree, tmp_path: Path) -> None:
    """Nothing is left there, and a smaller snapshot works."""
    state = tmp_path / "state"
    state.mkdir()
    probe = ["unshare", "--mount", "mount", "-t", "tmpfs", "none", str(state)]
    if os.geteuid() != 0 or subprocess.run(probe, check=False, capture_output=True).returncode:
        pytest.skip("a full disk needs a small tmpfs, and only root may mount one")
    tree.write("large", os.urandom(1_500_000))
    command = ["unshare", "--mount", sys.executable, "-c", FULL_DISK, tree.folder, state]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    message, *others = done.stdout.splitlines()
    assert re.sub("tmp_pack_[a-zA-Z0-9]{6}", "tmp_pack_x", message) == (
        f"git update-index failed: fatal: sha1 file '{state}/code/objects/pack/tmp_pack_x' write "
        f"error. Out of diskspace. Free space on the disk of {state}/code: `orchestrator usage "
        "--disk` shows what jobs need there."
    )
    assert others == ["[]", "True"]


def test_a_store_that_cannot_be_written(tree: Tree) -> None:
    taken = tree.take()

    def failing(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    message = (
        f"cannot write {tree.store.folder}: Read-only file system. Make it writable, or set "
        "state_dir to another folder."
    )
    for name in ("shutil.copy2", "files.make_private_folder", "files.replace"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(f"orchestrator.controller.code.store.{name}", failing)
            with pytest.raises(stores.SnapshotError) as raised:
                tree.take()
        assert str(raised.value) == message, name
    assert tree.store.has(taken)


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks(
    tree: Tree, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is removed then, because others may use it."""

    def failing(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", failing)
    taken = tree.take()
    left = tree.store.folder / "objects" / "pack" / "tmp_pack_x"
    left.touch()
    assert (tree.take(), left.exists()) == (taken, True)


def test_an_index_is_kept_only_with_its_snapshot(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Objects of an interrupted snapshot are pruned, and an index must not name them."""
    inner = tree.take()
    (kept,) = (tree.store.folder / "indexes").iterdir()
    before = kept.read_bytes()
    tree.write("new.py", "new\n")

    def failing(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files, "replace", failing)
    with pytest.raises(stores.SnapshotError):
        tree.store.take(tree.folder, ["train.py", "new.py"], {"inner": inner})
    assert kept.read_bytes() == before
