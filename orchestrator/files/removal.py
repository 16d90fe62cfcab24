"""Removal of what jobs have left: never through a symbolic link, and at any depth."""

from __future__ import annotations

import os
import stat

_FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove(name: str, parent: int) -> None:
    """Remove an entry of an open folder with all that it contains.

    It may be interrupted anywhere and called again. Each folder inside is moved to the top before
    it is emptied: a program may have made more levels than file descriptors or a path allow. Other
    file systems that are mounted inside are not entered. Raises the first OSError after everything
    else was removed.
    """
    if not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=parent)
        return
    top = _open_writable(name, parent)
    try:
        problem = _empty(top, top)
        failed: set[str] = set()
        while inner := [entry for entry in _folders(top) if entry not in failed]:
            for entry in inner:
                error = _remove_inner(entry, top)
                if error is not None:
                    problem = problem or error
                    failed.add(entry)
    finally:
        os.close(top)
    if problem is not None:
        raise problem
    os.rmdir(name, dir_fd=parent)


def _remove_inner(name: str, top: int) -> OSError | None:
    try:
        folder = _open_writable(name, top)
        try:
            problem = _empty(folder, top)
        finally:
            os.close(folder)
        if problem is None:
            os.rmdir(name, dir_fd=top)
    except OSError as error:
        return error
    return problem


def _empty(folder: int, top: int) -> OSError | None:
    """Remove the files of a folder, and move its folders to the top; return the first error."""
    problem: OSError | None = None
    with os.scandir(folder) as entries:
        listed = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in listed:
        try:
            if not is_folder:
                os.unlink(name, dir_fd=folder)
            elif folder != top:
                _move(name, folder, top)
        except OSError as error:
            problem = problem or error
    return problem


def _move(name: str, folder: int, top: int) -> None:
    new = os.urandom(8).hex()
    try:
        os.rename(name, new, src_dir_fd=folder, dst_dir_fd=top)
    except PermissionError:
        # A folder that changes its parent must be writable.
        os.close(_open_writable(name, folder))
        os.rename(name, new, src_dir_fd=folder, dst_dir_fd=top)


def _folders(folder: int) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]


def _open_writable(name: str, parent: int) -> int:
    """Open a folder, and make it writable for its owner: programs leave read-only ones."""
    path = os.open(name, os.O_PATH | _FOLDER, dir_fd=parent)
    try:
        mode = stat.S_IMODE(os.fstat(path).st_mode)
        if mode & stat.S_IRWXU != stat.S_IRWXU:
            os.chmod(f"/proc/self/fd/{path}", mode | stat.S_IRWXU)
        return os.open(".", os.O_RDONLY | _FOLDER, dir_fd=path)
    finally:
        os.close(path)
