"""The file system of the database, and whether its locks work across hosts.

SQLite's WAL needs memory that all processes share, so it works on one host only
(sqlite.org/wal.html); on a network file system everything depends on fcntl locks.
"""

from __future__ import annotations

import contextlib
import enum
import fcntl
import os
import pathlib
import re
import struct
import tempfile
import time
from collections.abc import Collection, Iterator
from typing import NamedTuple

from orchestrator import errors

#: Types that only one host can mount at a time. All others are treated as network file systems,
#: which is slower and never wrong.
LOCAL_TYPES = frozenset(
    "bcachefs btrfs devtmpfs erofs exfat ext2 ext3 ext4 f2fs fuse.fuse-overlayfs fuseblk jfs ntfs3 "
    "overlay ramfs reiserfs rootfs squashfs tmpfs vfat xfs zfs".split()
)
#: Mount options that keep locks on one host: nfs(5), mount.lustre(8), mount.cifs(8).
LOCAL_LOCK_OPTIONS = ("nolock", "local_lock=all", "local_lock=posix", "localflock", "nobrl")
#: Types that send no lock to a server: sshfs has no lock operation, and BeeGFS has
#: tuneUseGlobalFileLocks=false unless the site changed it.
LOCAL_LOCK_TYPES = {
    "fuse.sshfs": "sshfs keeps file locks on one host",
    "beegfs": "BeeGFS keeps file locks on one host by default",
}
#: struct flock of 64-bit Linux: type, whence, start, len, pid.
_FLOCK = "hhqqi4x"
_WHOLE_FILE = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
#: PENDING_BYTE and the bytes after it (os_unix.c of SQLite).
_SQLITE_LOCK = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0x40000000, 512, 0)
#: suffix of a checked backup that is to replace the database file
READY = ".restore-ready"
_FIRST_PAUSE_SECONDS = 0.005
_MAX_PAUSE_SECONDS = 0.1


class Locality(enum.Enum):
    """Whether other hosts may write the same file."""

    LOCAL = "local"
    NETWORK = "network"


class Mount(NamedTuple):
    """One line of /proc/self/mounts."""

    mount_point: str
    fs_type: str
    options: Collection[str]


def find_mount(path: pathlib.Path, mounts: str) -> Mount | None:
    """Return the mount of an absolute, resolved path: the deepest, and the last of equal ones.

    `mounts` is the text of /proc/self/mounts (fstab(5)).
    """
    deepest = None
    for line in mounts.splitlines():
        _, mount_point, fs_type, options, *_ = [*line.split(" "), "", "", ""]
        mount_point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), mount_point)
        if mount_point and path.is_relative_to(mount_point):
            if deepest is None or len(mount_point) >= len(deepest.mount_point):
                deepest = Mount(mount_point, fs_type, options.split(","))
    return deepest


def classify(mount: Mount | None) -> Locality:
    """Return whether a mount is local; None, without /proc (no Linux), is local.

    Raises DatabaseError if its locks are known to stay on one host.
    """
    if mount is None or mount.fs_type in LOCAL_TYPES:
        return Locality.LOCAL
    option = next((each for each in LOCAL_LOCK_OPTIONS if each in mount.options), None)
    why = f"mounted with {option}" if option else LOCAL_LOCK_TYPES.get(mount.fs_type)
    if why:
        raise errors.DatabaseError(
            f"{mount.mount_point} ({mount.fs_type}) cannot hold the database: {why}, so two "
            "hosts could write at once. Set state_dir to a local disk; a database that "
            "several hosts share needs PostgreSQL."
        )
    return Locality.NETWORK


def locality(path: pathlib.Path) -> Locality:
    """Return whether the file system of `path`, or of its nearest existing parent, is local."""
    try:
        mounts = pathlib.Path("/proc/self/mounts").read_text(errors="surrogateescape")
    except OSError:
        return Locality.LOCAL
    return classify(find_mount(path.resolve(), mounts))


@contextlib.contextmanager
def file_lock(path: pathlib.Path, *, timeout_seconds: float) -> Iterator[int]:
    """Hold the exclusive fcntl lock of `path` (created with 0600) and yield its descriptor.

    It polls, because a blocking lock cannot be given up. Raises DatabaseLockedError after the
    timeout, and DatabaseError if the file system refuses locks.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + timeout_seconds
        pause = _FIRST_PAUSE_SECONDS
        while not _try_lock(descriptor, path):
            if time.monotonic() > deadline:
                raise errors.DatabaseLockedError(
                    f"{path} has been locked by another process for {timeout_seconds:g} s. "
                    f"`fuser {path}` on its host shows which one; try again when it has ended."
                )
            time.sleep(pause)
            pause = min(pause * 2, _MAX_PAUSE_SECONDS)
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def lock_out_others(path: pathlib.Path) -> Iterator[None]:
    """Hold the exclusive SQLite lock of a database file; DatabaseLockedError if it is open.

    In WAL mode each process holds a lock on the file as long as it has it open. This process must
    not have it open.
    """
    if users := _users(path):
        raise errors.DatabaseLockedError(
            f"{path} is open in {', '.join(users)}. Wait until it has ended, or stop it; "
            "then try again."
        )
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        try:
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _SQLITE_LOCK)
        except (BlockingIOError, PermissionError) as error:
            raise errors.DatabaseLockedError(
                f"{path} is locked by another process. `fuser {path}` on its host shows which "
                "one; try again when it has ended."
            ) from error
        yield
    finally:
        os.close(descriptor)


def _users(path: pathlib.Path) -> list[str]:
    """Return the other processes of this host that have a file open, as far as /proc shows them."""
    status = path.stat()
    users = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        if process.name == str(os.getpid()):
            continue
        with contextlib.suppress(OSError):
            for descriptor in (process / "fd").iterdir():
                with contextlib.suppress(OSError):
                    if os.path.samestat(descriptor.stat(), status):
                        command = (process / "comm").read_text().strip()
                        users.append(f"process {process.name} ({command})")
                        break
    return users


def prove_locks(folder: pathlib.Path) -> None:
    """Check with a new file in `folder` that a lock keeps a second owner out.

    The second owner is another open file description of this process: F_OFD_GETLK of fcntl(2)
    sees our own process-owned lock as foreign, as a second process would. Whether locks reach other
    hosts cannot be tested from here; `classify` refuses mounts that are known to keep them local.
    """
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".lock-proof-") as file:
        path = pathlib.Path(file.name)
        _try_lock(file.fileno(), path)
        other = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            answer = fcntl.fcntl(other, fcntl.F_OFD_GETLK, _WHOLE_FILE)
        except OSError as error:
            raise _refused(path, error) from error
        finally:
            os.close(other)
    if struct.unpack(_FLOCK, answer)[0] == fcntl.F_UNLCK:
        raise _refused(path, None)


def _try_lock(descriptor: int, path: pathlib.Path) -> bool:
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    except OSError as error:
        raise _refused(path, error) from error
    return True


def _refused(path: pathlib.Path, error: OSError | None) -> errors.DatabaseError:
    why = "a second process gets the lock too" if error is None else error.strerror
    return errors.DatabaseError(
        f"File locks do not work in {path.parent} ({why}). Set state_dir to a local disk; "
        "a database that several hosts share needs PostgreSQL."
    )


def sync(path: pathlib.Path) -> None:
    """Write the content of a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
