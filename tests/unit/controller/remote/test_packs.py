"""Objects of a snapshot that go from one store to another."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from orchestrator.controller.code import packs
from orchestrator.controller.code import store as stores
from orchestrator.controller.code.calls import SnapshotError


def store(folder: Path) -> stores.Store:
    made = stores.Store(folder=folder / "state" / "code", environ=os.environ)
    made.prepare()
    return made


def taken(made: stores.Store, root: Path, files: dict[str, bytes]) -> str:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return made.take(root, list(files), {})


def send(source: stores.Store, target: stores.Store, tree: str) -> int:
    """Send what the target lacks; return the number of packs."""
    missing = packs.lacking(target, packs.objects(source, tree))
    number = 0
    for pack in packs.packs(source, missing):
        packs.add(target, pack)
        number += 1
    return number


def test_a_tree_arrives_and_only_changes_are_sent(tmp_path: Path) -> None:
    here, there = store(tmp_path / "here"), store(tmp_path / "there")
    files = {"train.py": b"1\n", "a/b/c.py": b"2\n", "with space": b""}
    tree = taken(here, tmp_path / "project", files)
    assert send(here, there, tree) == 1
    packs.keep(there, tree)
    assert there.has(tree)
    there.extract(tree, tmp_path / "copy")
    assert (tmp_path / "copy/a/b/c.py").read_bytes() == b"2\n"
    assert send(here, there, tree) == 0
    changed = taken(here, tmp_path / "project", {**files, "train.py": b"3\n"})
    # The file and the root.
    assert len(packs.lacking(there, packs.objects(here, changed))) == 2


def test_large_trees_are_sent_in_several_packs(tmp_path: Path) -> None:
    here, there = store(tmp_path / "here"), store(tmp_path / "there")
    dice = random.Random(1)
    files = {f"{n}.bin": dice.randbytes(packs.PACK_BYTES // 2 + 1) for n in range(3)}
    tree = taken(here, tmp_path / "project", files)
    assert send(here, there, tree) == 3
    packs.keep(there, tree)
    assert list(here.folder.glob(f"{stores.INCOMING}*")) == []


def test_an_incomplete_tree_is_not_kept(tmp_path: Path) -> None:
    here, there = store(tmp_path / "here"), store(tmp_path / "there")
    tree = taken(here, tmp_path / "project", {"train.py": b"1\n", "a/b.py": b"2\n"})
    objects = packs.objects(here, tree)
    for lost in objects:
        for pack in packs.packs(here, [name for name in objects if name != lost]):
            packs.add(there, pack)
        with pytest.raises(SnapshotError):
            packs.keep(there, tree)
        assert not there.has(tree)
        there = store(tmp_path / f"without-{lost}")


def test_a_damaged_pack_is_refused(tmp_path: Path) -> None:
    here, there = store(tmp_path / "here"), store(tmp_path / "there")
    tree = taken(here, tmp_path / "project", {"train.py": b"1\n" * 100})
    for pack in packs.packs(here, packs.objects(here, tree)):
        pack.chmod(0o600)
        content = bytearray(pack.read_bytes())
        content[len(content) // 2] ^= 1
        pack.write_bytes(content)
        with pytest.raises(SnapshotError):
            packs.add(there, pack)
