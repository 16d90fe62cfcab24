"""This user, and who can change what a path leads to.

A path is safe if only its user and root can change the file, the folders above it and the symbolic
links on the way. Folders of a group whose only member is the user are safe (the default of
Debian, Ubuntu and RHEL: umask 002 with a group for each user). A folder with the sticky bit, such
as /tmp, is safe above the user's own entry: others can add files but not replace that entry.

Not detected: NFSv4 ACLs and access by a file server's administrator. POSIX ACLs show as group bits.
"""

from __future__ import annotations

import dataclasses
import errno
import grp
import os
import pwd
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from orchestrator.text import escaping

_MAX_SYMBOLIC_LINKS = 40  # as in the kernel (man 7 path_resolution)
_ROOT_UID = 0
_ACL = "system.posix_acl_access"


class PrivateFolderError(OSError):
    """A folder cannot be made private: another user owns it or can change it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Exposure:
    """How another user can change what a path leads to."""

    #: the folder, link or file that is not safe
    path: Path
    #: "belongs to user eve", "can be written by every user"
    reason: str
    #: what makes the path safe, or accepts it; "" if only another path helps
    cure: str = ""

    def __str__(self) -> str:
        return f"{escaping.visible(str(self.path))} {self.reason}"

    def advice(self, setting: str) -> str:
        """Return what to do. setting: the configuration's key of the folder."""
        another = f"set {setting} to a folder of your own"
        return f"{self.cure}, or {another}" if self.cure else another

    def refusal(self, path: Path, setting: str) -> str:
        """Return why `path` is not used, and what to do."""
        advice = self.advice(setting)
        return (
            f"{escaping.visible(str(path))} is not used: {self}, so others could change what your "
            f"jobs run. {advice[:1].upper()}{advice[1:]}."
        )


def exposure(path: Path, *, shared_folders: Sequence[Path] = ()) -> Exposure | None:
    """Return how someone other than this user and root can change `path`; None if nobody can.

    path: absolute; a missing part of it is as safe as the nearest folder that exists.
    shared_folders: at and below them other owners and group-writable folders are accepted.

    Raises OSError if a folder on the way cannot be examined.
    """
    own = os.geteuid()
    shared = [Path(os.path.realpath(folder)) for folder in shared_folders]
    steps = list(_steps(path))
    exists = os.path.exists(path)
    for number, (step, status) in enumerate(steps, 1):
        is_shared = any(step.is_relative_to(folder) for folder in shared)
        is_above = number < len(steps) or not exists
        reason = _reason(step, status, own, is_shared=is_shared, is_above=is_above)
        if reason:
            return Exposure(path=step, reason=reason, cure=_cure(step, status, own))
    return None


def make_private_folder(
    folder: Path, *, shared_folders: Sequence[Path] = (), setting: str = "it"
) -> None:
    """Create a folder and its missing parents, with mode 0700 whatever the umask is.

    setting: the configuration's key of the folder, for the error's advice.

    Raises PrivateFolderError if others can change the folder, and OSError if it cannot be created.
    """
    missing = []
    for path in (folder, *folder.parents):
        if os.path.lexists(path):
            break
        missing.append(path)
    if missing:
        # Before anything is created in a folder of another user.
        _refuse_exposed(folder, shared_folders, setting)
    for path in reversed(missing):
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            # Created by another process at the same moment; its owner is checked below.
            continue
        if stat.S_IMODE(os.lstat(path).st_mode) & 0o700 != 0o700:
            os.chmod(path, 0o700)
    _refuse_exposed(folder, shared_folders, setting)
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))


def _refuse_exposed(folder: Path, shared_folders: Sequence[Path], setting: str) -> None:
    if exposed := exposure(folder, shared_folders=shared_folders):
        raise PrivateFolderError(errno.EPERM, exposed.refusal(folder, setting), str(folder))


def _steps(path: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield each folder, link and file that decides where the path leads, as path_resolution(7)."""
    at = Path("/")
    yield at, os.lstat(at)
    pending = list(reversed(path.parts[1:]))
    links = 0
    while pending:
        part = pending.pop()
        if part == "..":
            at = at.parent
            yield at, os.lstat(at)
            continue
        step = at / part
        try:
            status = os.lstat(step)
        except FileNotFoundError:
            return
        yield step, status
        if not stat.S_ISLNK(status.st_mode):
            at = step
            continue
        links += 1
        if links > _MAX_SYMBOLIC_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        target = Path(os.readlink(step))
        if target.is_absolute():
            at = Path("/")
        pending.extend(part for part in reversed(target.parts) if part != "/")


def _reason(
    step: Path, status: os.stat_result, own: int, *, is_shared: bool, is_above: bool
) -> str:
    """Return why a step is not safe; "" if it is.

    is_above: the step is a folder above the path, not what the path leads to.
    """
    if status.st_uid not in (own, _ROOT_UID) and not is_shared:
        return f"belongs to {_user_name(status.st_uid)}"
    if stat.S_ISLNK(status.st_mode):
        return ""
    is_sticky = stat.S_ISDIR(status.st_mode) and bool(status.st_mode & stat.S_ISVTX)
    if is_sticky and is_above:
        return ""
    if status.st_mode & stat.S_IWOTH:
        return "can be written by every user"
    if status.st_mode & stat.S_IWGRP and not is_shared and not _is_private_group(step, status, own):
        return f"can be written by group {_group_name(status.st_gid)}"
    return ""


def _cure(step: Path, status: os.stat_result, own: int) -> str:
    """Return how the user can make a step safe, or accept it; "" if neither is possible."""
    if stat.S_ISLNK(status.st_mode):
        return ""
    name = escaping.visible(str(step))
    # A user should not change the mode of a device.
    is_own = status.st_uid == own and (stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode))
    is_group_writable = bool(status.st_mode & stat.S_IWGRP)
    if status.st_mode & stat.S_IWOTH:
        bits = "go-w" if is_group_writable else "o-w"
        return f"run `chmod {bits} {name}`" if is_own else ""
    folder = step if stat.S_ISDIR(status.st_mode) else step.parent
    setting = f'shared_folders = ["{escaping.visible(str(folder))}"]'
    accept = f"accept it with `{setting}` in your own configuration"
    return f"run `chmod g-w {name}`, {accept}" if is_own and is_group_writable else accept


def _is_private_group(step: Path, status: os.stat_result, own: int) -> bool:
    """Return whether the group is the user's own, without other members, and there is no ACL."""
    if status.st_gid != _ROOT_UID:
        try:
            group, user = grp.getgrgid(status.st_gid), pwd.getpwuid(own)
        except KeyError:
            return False
        if group.gr_name != user.pw_name or set(group.gr_mem) - {user.pw_name}:
            return False
    try:
        # With an ACL the group bits are its mask: another user may have write permission.
        return _ACL not in os.listxattr(step, follow_symlinks=False)
    except OSError:
        return True


def _user_name(uid: int) -> str:
    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"user ID {uid}"


def _group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def user_name() -> str:
    """Return the user's name; the user ID without a user database, as in a container."""
    if name := os.environ.get("LOGNAME") or os.environ.get("USER"):
        return name
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def home_folder() -> str:
    """Return the home folder in the user database; / without one."""
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return "/"
