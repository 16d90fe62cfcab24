"""Which file system holds the database, and whether its locks reach across hosts.

SQLite's WAL needs memory that all processes share, so it works on one host only
(sqlite.org/wal.html); on a network file system everything hangs on fcntl locks.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import fcntl
import os
import pathlib
import re
import struct
import tempfile
import time
from collections.abc import Iterator

from db import errors

#: What only one host can mount at a time. Anything not named here is treated as a network file
#: system: slower, never wrong.
LOCAL_TYPES = frozenset(
    "bcachefs btrfs devtmpfs erofs exfat ext2 ext3 ext4 f2fs fuse.fuse-overlayfs fuseblk jfs ntfs3 "
    "overlay ramfs reiserfs rootfs squashfs tmpfs vfat xfs zfs".split()
)
#: Mount option -> why locks stay on this host with it. nfs(5), mount.lustre(8), mount.cifs(8).
LOCAL_LOCK_OPTIONS = {
    "nolock": "mounted with nolock",
    "local_lock=all": "mounted with local_lock=all",
    "local_lock=posix": "mounted with local_lock=posix",
    "localflock": "mounted with localflock",
    "nobrl": "mounted with nobrl",
}
#: Types that never send a lock to a server: sshfs has no lock operation, BeeGFS has
#: tuneUseGlobalFileLocks=false unless the site changed it.
LOCAL_LOCK_TYPES = {
    "fuse.sshfs": "sshfs keeps file locks on one host",
    "beegfs": "BeeGFS keeps file locks on one host by default",
}
_FIRST_PAUSE_SECONDS = 0.005
_LONGEST_PAUSE_SECONDS = 0.1


class Locality(enum.Enum):
    """Who else may write the same file."""

    LOCAL = "local"
    NETWORK = "network"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mount:
    """One line of /proc/self/mountinfo."""

    mount_point: str
    fs_type: str
    #: those of the mount and those of the file system
    options: frozenset[str]


def parse_mountinfo(text: str) -> list[Mount]:
    """Return the mounts of /proc/self/mountinfo in its order; see proc_pid_mountinfo(5)."""
    mounts = []
    for line in text.splitlines():
        before, separator, after = line.partition(" - ")
        fields, rest = before.split(" "), after.split(" ")
        if not separator or len(fields) < 6 or len(rest) < 3:
            continue
        options = frozenset(fields[5].split(",")) | frozenset(rest[2].split(","))
        mounts.append(Mount(mount_point=_unescape(fields[4]), fs_type=rest[0], options=options))
    return mounts


def find_mount(path: pathlib.Path, mounts: list[Mount]) -> Mount | None:
    """Return the mount that holds `path` (absolute, resolved): the deepest, of equals the last."""
    best: Mount | None = None
    for mount in mounts:
        inside = path.is_relative_to(mount.mount_point)
        if inside and (best is None or len(mount.mount_point) >= len(best.mount_point)):
            best = mount
    return best


def classify(mount: Mount | None) -> Locality:
    """Tell a local from a network file system; without mountinfo (no Linux) it is local.

    Raises UnsafeFileSystemError where locks are known to stay on one host.
    """
    if mount is None or mount.fs_type in LOCAL_TYPES:
        return Locality.LOCAL
    whys = [why for option, why in LOCAL_LOCK_OPTIONS.items() if option in mount.options]
    if mount.fs_type in LOCAL_LOCK_TYPES:
        whys.append(LOCAL_LOCK_TYPES[mount.fs_type])
    if whys:
        raise errors.UnsafeFileSystemError(
            f"{mount.mount_point} ({mount.fs_type}) cannot hold the database: {whys[0]}, so two "
            "hosts could write at once. Set state_dir to a local disk; a database that "
            "several hosts share needs PostgreSQL."
        )
    return Locality.NETWORK


def locality(path: pathlib.Path) -> Locality:
    """Classify the file system of `path`; its nearest existing parent counts."""
    place = path.resolve()
    try:
        text = pathlib.Path("/proc/self/mountinfo").read_text(errors="surrogateescape")
    except OSError:
        return Locality.LOCAL
    return classify(find_mount(place, parse_mountinfo(text)))


@contextlib.contextmanager
def file_lock(path: pathlib.Path, *, timeout_seconds: float) -> Iterator[int]:
    """Hold the exclusive fcntl lock of `path` (made, 0600) and yield its descriptor.

    Polls, because a blocking lock can't be given up. Raises LockedError after the time-out and
    UnsafeFileSystemError where the file system refuses locks.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + timeout_seconds
        pause = _FIRST_PAUSE_SECONDS
        while not _try_lock(descriptor, path):
            if time.monotonic() > deadline:
                raise errors.LockedError(
                    f"{path} has been locked by another process for {timeout_seconds:g} s. "
                    f"`fuser {path}` on its host shows which one; try again when it has ended."
                )
            time.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def alone(path: pathlib.Path) -> Iterator[None]:
    """Hold SQLite's lock of a database file against all others; LockedError where one has it open.

    In WAL mode each process that has opened the file holds a lock on it until it closes it. This
    process must not have it open.
    """
    if users := open_in(path):
        raise errors.LockedError(
            f"{path} is open in {', '.join(users)}. Wait until it has ended, or end it; "
            "then try again."
        )
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        try:
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _sqlite_lock())
        except (BlockingIOError, PermissionError) as error:
            raise errors.LockedError(
                f"{path} is locked by another process. `fuser {path}` on its host shows which "
                "one; try again when it has ended."
            ) from error
        yield
    finally:
        os.close(descriptor)


def open_in(path: pathlib.Path) -> list[str]:
    """Return the other processes of this host that have a file open, as far as /proc shows them."""
    status = path.stat()
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        if process.name == str(os.getpid()):
            continue
        with contextlib.suppress(OSError):
            for descriptor in (process / "fd").iterdir():
                with contextlib.suppress(OSError):
                    one = descriptor.stat()
                    if (one.st_dev, one.st_ino) == (status.st_dev, status.st_ino):
                        words = (process / "comm").read_text().strip()
                        found.append(f"process {process.name} ({words})")
                        break
    return found


def prove_locks(folder: pathlib.Path) -> None:
    """Check in a new file of `folder` that a lock keeps a second owner out.

    The second owner is another open file description of this process: F_OFD_GETLK of fcntl(2)
    sees our own process-owned lock as foreign, as a second process would. Another host can't be
    asked from here; mounts that are known to keep locks to themselves are refused by `classify`.
    """
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".lock-proof-") as file:
        path = pathlib.Path(file.name)
        _try_lock(file.fileno(), path)
        other = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            answer = fcntl.fcntl(other, fcntl.F_OFD_GETLK, _whole_file())
        except OSError as error:
            raise _refused(path, error) from error
        finally:
            os.close(other)
    if struct.unpack(_FLOCK, answer)[0] == fcntl.F_UNLCK:
        raise _refused(path, None)


#: struct flock of 64-bit Linux: type, whence, start, len, pid.
_FLOCK = "hhqqi4x"


def _whole_file() -> bytes:
    return struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)


def _sqlite_lock() -> bytes:
    # sqlite3.h, os_unix.c: PENDING_BYTE and what follows it.
    return struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0x40000000, 512, 0)


def _try_lock(descriptor: int, path: pathlib.Path) -> bool:
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    except OSError as error:
        raise _refused(path, error) from error
    return True


def _refused(path: pathlib.Path, error: OSError | None) -> errors.UnsafeFileSystemError:
    why = "they keep nobody out" if error is None else error.strerror
    return errors.UnsafeFileSystemError(
        f"File locks do not work in {path.parent} ({why}). Set state_dir to a local disk; "
        "a database that several hosts share needs PostgreSQL."
    )


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
