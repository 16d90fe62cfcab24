"""Run folders and their checkpoints: whether they may be touched, what is in them, and removal."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import secrets
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from orchestrator import jobs, prune
from orchestrator.controller.session import contexts
from orchestrator.files import removal, run_folder

_CHECKPOINTS = re.compile(r"checkpoints(?:\.[0-9]{1,10})?")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Checkpoints:
    """Checkpoints to remove from one folder of a run folder."""

    #: name in the run folder: checkpoints, or checkpoints.TASK
    folder: str
    #: None: the whole folder
    names: tuple[str, ...] | None


def problem(context: contexts.Context, job: jobs.Job) -> str:
    """Return why the run folder of a job must not be removed by this process; "" if it may be.

    A folder that is gone already is no problem.
    """
    path = Path(job.run_dir)
    if not path.parent.is_dir():
        return f"{path.parent}, the parent of their run folders, is not visible on this host"
    if path.name != run_folder.slurm_name(job.name, job.token):
        return "the path of their run folder is not one that orchestrator makes"
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"their run folder cannot be examined ({error.strerror})"
    if not stat.S_ISDIR(status.st_mode):
        return "their run folder was replaced by something else"
    if status.st_uid != os.geteuid():
        return "their run folder belongs to another user"
    return contexts.run_folder_exposure(context, path)


def checkpoints(run_dir: Path, *, all_of_them: bool) -> list[Checkpoints]:
    """Return the checkpoints to remove; symbolic links, as of continuation jobs, are left alone."""
    found: list[Checkpoints] = []
    for entry in _entries(run_dir):
        if _CHECKPOINTS.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
            if all_of_them:
                found.append(Checkpoints(folder=entry.name, names=None))
            elif names := prune.removable(_listed(run_dir / entry.name)):
                found.append(Checkpoints(folder=entry.name, names=tuple(names)))
    return sorted(found, key=lambda each: each.folder)


def _listed(folder: Path) -> list[prune.Entry]:
    entries = _entries(folder)
    targets: set[str] = set()
    for entry in entries:
        if entry.is_symlink():
            with contextlib.suppress(OSError):
                targets.add(os.path.basename(os.readlink(folder / entry.name)))
    listed = []
    for entry in sorted(entries, key=lambda entry: entry.name):
        with contextlib.suppress(OSError):
            listed.append(
                prune.Entry(
                    name=entry.name,
                    modified_at=entry.stat(follow_symlinks=False).st_mtime,
                    is_link=entry.is_symlink(),
                    is_linked=entry.name in targets,
                )
            )
    return listed


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return [*entries]
    except OSError:
        return []


def move_away(run_dir: Path, chosen: Sequence[Checkpoints] | None) -> str | None:
    """Rename a run folder, or some of its checkpoints, to a name that is removed later.

    Returns that name, in the parent of the run folder; None if there is nothing. What has this name
    is not used by anything. Raises OSError.
    """
    with _opened(run_dir.parent) as parent:
        if chosen is None:
            name = prune.leftover_name(run_dir.name)
            try:
                os.rename(run_dir.name, name, src_dir_fd=parent, dst_dir_fd=parent)
            except FileNotFoundError:
                return None
            return name
        name = prune.leftover_name(f"checkpoints-{secrets.token_hex(4)}.{run_dir.name}")
        os.mkdir(name, 0o700, dir_fd=parent)
        with _opened(run_dir.name, parent) as folder, _opened(name, parent) as target:
            for each in chosen:
                if each.names is None:
                    os.rename(each.folder, each.folder, src_dir_fd=folder, dst_dir_fd=target)
                    continue
                os.mkdir(each.folder, 0o700, dir_fd=target)
                with _opened(each.folder, folder) as old, _opened(each.folder, target) as new:
                    for entry in each.names:
                        with contextlib.suppress(FileNotFoundError):
                            os.rename(entry, entry, src_dir_fd=old, dst_dir_fd=new)
        return name


def remove(parent: Path, name: str) -> None:
    """Remove what was renamed; OSError if something is left of it."""
    with _opened(parent) as folder, contextlib.suppress(FileNotFoundError):
        removal.remove(name, folder)


def runs_dirs(context: contexts.Context) -> list[Path]:
    """Return the folders with the run folders of stored jobs, and that of the configuration."""
    with context.store.reading() as work:
        parents = {Path(run_dir).parent for run_dir in work.prune.run_dirs()}
    return sorted({*parents, context.configuration.runs_dir})


def leftovers(context: contexts.Context) -> list[Path]:
    """Return what interrupted removals of this installation left beside run folders."""
    with context.store.reading() as work:
        installation_id = work.settings.installation_id()
    found = []
    for parent in runs_dirs(context):
        for entry in _entries(parent):
            token = prune.leftover_token(entry.name)
            if token is None or not token.startswith(installation_id):
                continue
            with contextlib.suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid():
                    found.append(parent / entry.name)
    return [path for path in sorted(found) if not contexts.run_folder_exposure(context, path)]


@contextlib.contextmanager
def _opened(name: str | Path, parent: int | None = None) -> Iterator[int]:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    # The way to the parent was checked; what is in it must not be a symbolic link.
    flags |= 0 if parent is None else os.O_NOFOLLOW
    descriptor = os.open(name, flags, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
