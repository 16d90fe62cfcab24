"""Objects of snapshots that go from one store to another: which, and as packs of git."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path

from orchestrator import errors
from orchestrator.code import git
from orchestrator.controller.code import store as stores
from orchestrator.controller.code.calls import Call, SnapshotError

#: Packs are about so large, unless a single file is larger: what has arrived is not sent again.
PACK_BYTES = 16 * 1024**2


def objects(store: stores.Store, tree: str) -> list[str]:
    """Return the IDs of a tree and of all objects in it. Raises SnapshotError."""
    listed = _call(store)("ls-tree", "-r", "-t", "-z", tree)
    return list(dict.fromkeys([tree, *git.objects_of_tree(listed)]))


def lacking(store: stores.Store, ids: Sequence[str]) -> list[str]:
    """Return those of the objects that the store does not have. Raises SnapshotError."""
    return [name for name, size_bytes in _sizes(store, ids) if size_bytes is None]


def packs(store: stores.Store, ids: Sequence[str]) -> Iterator[Path]:
    """Yield files with packs of these objects; each is removed afterwards. SnapshotError."""
    for group in _groups(_sizes(store, ids)):
        base = store.folder / f"{stores.INCOMING}{secrets.token_hex(8)}"
        text = "".join(f"{name}\n" for name in group).encode()
        try:
            digest = _call(store)("pack-objects", "-q", str(base), stdin=text).strip()
            yield Path(f"{base}-{digest}.pack")
        finally:
            for path in store.folder.glob(f"{base.name}*"):
                path.unlink(missing_ok=True)


def add(store: stores.Store, pack: Path) -> None:
    """Store the objects of a pack, whose content git verifies. Raises SnapshotError."""
    with pack.open("rb") as file:
        _call(store)("index-pack", "--stdin", stdin=file)


def keep(store: stores.Store, tree: str) -> None:
    """Keep a tree whose objects have arrived. Raises SnapshotError if one is missing."""
    if lacking(store, [tree]) or lacking(store, objects(store, tree)):
        raise SnapshotError(f"the snapshot {tree[:12]} did not arrive completely: call again")
    try:
        store.refer_to(tree)
    except OSError as error:
        raise SnapshotError(git.not_written(store.folder, str(error.strerror))) from error


def _groups(sizes: Sequence[tuple[str, int | None]]) -> Iterator[list[str]]:
    group: list[str] = []
    total = 0
    for name, size_bytes in sizes:
        if size_bytes is None:
            raise errors.OrchestratorError(f"the object {name} of the snapshot is missing here")
        if group and total + size_bytes > PACK_BYTES:
            yield group
            group, total = [], 0
        group.append(name)
        total += size_bytes
    if group:
        yield group


def _sizes(store: stores.Store, ids: Sequence[str]) -> list[tuple[str, int | None]]:
    """Return the size of each object; None: it is missing."""
    text = "".join(f"{name}\n" for name in ids).encode()
    listed = _call(store)("cat-file", "--batch-check", stdin=text)
    return [git.object_size(line) for line in listed.splitlines()]


def _call(store: stores.Store) -> Call:
    return Call(store=store.folder, environ=store.environ)


def incoming(store: stores.Store) -> Path:
    """Return a new path for a pack that arrives; what is left of it is removed later."""
    return store.folder / f"{stores.INCOMING}{os.getpid()}.{secrets.token_hex(8)}"
