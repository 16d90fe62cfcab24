"""Code snapshots that no stored spec names: their references, archives and objects."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from orchestrator import errors
from orchestrator.code import git
from orchestrator.controller.code import store as stores
from orchestrator.controller.prune import folders
from orchestrator.controller.session import contexts
from orchestrator.processes import process

#: A younger snapshot may belong to a submission that is not stored yet.
_UNUSED_SECONDS = 24 * 3600.0
_EXPIRE = "1.day.ago"
_REFERENCES = "refs/snapshots/"
#: What the repository of a snapshot was like (controller/code/store.py).
_PROVENANCE = "provenance"
#: The indexes of working trees; a name with a dot is a draft.
_INDEXES = "indexes"
#: Locked exclusively here, and shared by who takes a snapshot.
_LOCK = "lock"
_GIT_SECONDS = 60.0
#: Repacking writes all that is kept once more.
_REPACK_SECONDS = 3600.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A snapshot, an archive of one, or a temporary file of an interrupted submission."""

    #: the archive or the temporary file; for a snapshot without archive: its reference
    path: Path
    #: of the archive; 0 while a run folder has a hard link to it
    size_bytes: int
    #: the tree, if the store has a reference to it
    tree: str | None = None


def store_folder(context: contexts.Context) -> Path:
    return context.configuration.state_dir / "code"


def archive_folders(context: contexts.Context) -> list[Path]:
    """Return the folders with archives: `.code` beside run folders."""
    found = [parent / ".code" for parent in folders.runs_dirs(context)]
    return [
        path
        for path in found
        if path.is_dir()
        and not path.is_symlink()
        and not contexts.run_folder_exposure(context, path)
    ]


def unused(context: contexts.Context) -> list[Snapshot]:
    """Return the snapshots that no stored spec names and that are older than a day."""
    references = _references(context)
    archives = {
        path: status for folder in archive_folders(context) for path, status in _files(folder)
    }
    # Afterwards: a submission that was stored meanwhile is seen.
    with context.store.reading() as work:
        used = work.prune.trees()
    now = context.clock.now().timestamp()
    found: dict[str, list[tuple[Path, os.stat_result]]] = {}
    result: list[Snapshot] = []
    for path, status in archives.items():
        tree = path.name.removesuffix(".tar")
        if git.TREE_ID.fullmatch(tree):
            found.setdefault(tree, []).append((path, status))
        elif _is_old(status, now):
            # A draft.
            result.append(Snapshot(path=path, size_bytes=_size_bytes(status)))
    for tree in sorted({*found, *references} - used):
        files = found.get(tree, [])
        reference = _status(store_folder(context) / _REFERENCES / tree)
        statuses = [status for _, status in files] + ([reference] if reference else [])
        if not all(_is_old(status, now) for status in statuses):
            continue
        named = tree if tree in references else None
        result += [
            Snapshot(path=path, size_bytes=_size_bytes(status), tree=named)
            for path, status in files
        ] or [Snapshot(path=store_folder(context) / _REFERENCES / tree, size_bytes=0, tree=tree)]
    store = store_folder(context)
    result += [
        Snapshot(path=path, size_bytes=_size_bytes(status))
        for path, status in _files(store / _INDEXES)
        if "." in path.name and _is_old(status, now)
    ]
    return result


def remove(context: contexts.Context) -> list[Snapshot]:
    """Remove unused snapshots, and all objects that no snapshot needs; return the snapshots.

    It may be interrupted anywhere: what is left is found again. No snapshot is taken meanwhile.
    Raises OrchestratorError and OSError.
    """
    if not store_folder(context).is_dir():
        chosen = unused(context)
        _remove_files(context, chosen)
        return chosen
    with _locked(store_folder(context)):
        # Not before: a submission may have used one meanwhile.
        chosen = unused(context)
        _remove(context, chosen)
        return chosen


def _remove(context: contexts.Context, chosen: Sequence[Snapshot]) -> None:
    stores.remove_unfinished(store_folder(context))
    trees = sorted({each.tree for each in chosen if each.tree is not None})
    if trees:
        # An index names objects that are about to go, and git would not store them again.
        for path, _ in _files(store_folder(context) / _INDEXES):
            path.unlink(missing_ok=True)
        for tree in trees:
            (store_folder(context) / _PROVENANCE / f"{tree}.json").unlink(missing_ok=True)
        lines = "".join(f"delete {_REFERENCES}{tree}\n" for tree in trees)
        _git(context, ["update-ref", "--stdin"], _GIT_SECONDS, stdin=lines)
    _remove_files(context, chosen)
    # Objects of a snapshot that was being taken have no reference yet: -a would drop them.
    unreachable = f"--unpack-unreachable={_EXPIRE}"
    _git(context, ["repack", "-A", "-d", "-q", unreachable], _REPACK_SECONDS)
    _git(context, ["prune", f"--expire={_EXPIRE}"], _REPACK_SECONDS)


def _remove_files(context: contexts.Context, chosen: Sequence[Snapshot]) -> None:
    for each in chosen:
        if each.path.parent != store_folder(context) / _REFERENCES:
            each.path.unlink(missing_ok=True)


@contextlib.contextmanager
def _locked(store: Path) -> Iterator[None]:
    """Wait until no snapshot is being taken, and let none be taken meanwhile."""
    with open(os.open(store / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            raise errors.OrchestratorError(
                f"no code snapshot was removed, because {store} cannot be locked "
                f"({error.strerror}): one that is being taken could lose files. Move state_dir to "
                "a file system with locks."
            ) from error
        yield


def _references(context: contexts.Context) -> set[str]:
    """Return the trees to which our store has a reference."""
    if not store_folder(context).is_dir():
        return set()
    listed = _git(context, ["for-each-ref", "--format=%(refname)", _REFERENCES], _GIT_SECONDS)
    return {line.removeprefix(_REFERENCES) for line in listed.splitlines()}


def _git(
    context: contexts.Context, arguments: Sequence[str], seconds: float, stdin: str = ""
) -> str:
    """Run git in our store, with no other configuration than that of the store."""
    store = store_folder(context)
    environ = git.environment(store, context.environ)
    settings = ("-c", "core.hooksPath=/dev/null", "-c", "gc.auto=0")
    argv = ["git", *settings, *arguments]
    result = process.run(
        argv, seconds, environ, die_with_parent=True, folder=str(store), stdin=stdin.encode()
    )
    if result.timed_out or result.returncode:
        why = result.stderr.strip() or f"exit code {result.returncode}"
        why = f"no end after {seconds:.0f} s" if result.timed_out else why
        text = git.failure(arguments[0], why, store, store, None).removesuffix(".")
        raise errors.OrchestratorError(f"{text}. Nothing that is needed was removed.")
    return result.stdout


def _files(folder: Path) -> list[tuple[Path, os.stat_result]]:
    """Return the regular files of this user in a folder."""
    found = []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            status = _status(folder / entry.name)
            if status is not None and status.st_uid == os.geteuid():
                found.append((folder / entry.name, status))
    return sorted(found)


def _status(path: Path) -> os.stat_result | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def _is_old(status: os.stat_result, now: float) -> bool:
    # A new hard link in a run folder changes the ctime of an archive.
    return now - max(status.st_mtime, status.st_ctime) >= _UNUSED_SECONDS


def _size_bytes(status: os.stat_result) -> int:
    return status.st_blocks * 512 if status.st_nlink == 1 else 0
