"""Where initdb and postgres come from: this machine, or the test cluster's root file system."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import pwd
import shutil
from collections.abc import Iterator
from pathlib import Path

from tests.cluster import machine, root

#: The server's folder, as a server in a root file system sees it.
INSIDE = Path("/tmp/server")
# Mounts are made in a namespace of the server's own: nothing is written into the root file system.
# `umount` reads /proc. The system folders are not on every user's PATH.
ENTER = f"""
set -e
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
root=$1; folder=$2; shift 2
mount --bind "$root" "$root"
mount --rbind /proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mkdir "$root{INSIDE}"
mount --bind "$folder" "$root{INSIDE}"
cd "$root"; pivot_root . mnt; umount -l /mnt; cd /
exec "$@"
"""


class Unavailable(Exception):
    """No server can be started; the message explains why."""


@dataclasses.dataclass(frozen=True)
class Programs:
    """initdb and postgres."""

    #: Their folder, as the server sees it.
    folder: Path
    #: The root file system in which they run; None: this machine's own.
    root: Path | None = None

    def sees(self, folder: Path) -> Path:
        """Return the server's folder as the server sees it."""
        return folder if self.root is None else INSIDE

    def command(self, name: str, folder: Path, *, user_id: int) -> list[str]:
        """Return the words that run a program for the user with this ID (0: root).

        It does not run as root, which it refuses, and ends with the process that starts it. In a
        root file system it has no network either.
        """
        ends = ["setpriv", "--pdeathsig", "INT"]
        as_nobody = [f"--reuid={nobody()}", f"--regid={nobody()}", "--clear-groups"]
        program = str(self.folder / name)
        if self.root is None:
            return [*ends, *(as_nobody if user_id == 0 else []), "--", program]
        # Until the last `setpriv`, which may give up rights and with them the first one's effect.
        spaces = ["setpriv", "--pdeathsig", "KILL"]
        spaces += ["unshare", "--mount", "--propagation", "private", "--ipc", "--net"]
        enter = ["sh", "-c", ENTER, "enter", str(self.root), str(folder)]
        if user_id == 0:
            return [*spaces, *enter, *ends, *as_nobody, "--", program]
        # Root of a user namespace may mount; a second namespace makes it an ordinary user again,
        # whose name initdb finds in the root file system.
        mapped = [f"--map-user={nobody()}", f"--map-group={nobody()}"]
        again = ["unshare", "--user", *mapped]
        return [*spaces, "--user", "--map-root-user", *enter, *again, *ends, "--", program]


def nobody() -> int:
    """Return the ID of the user that the server runs as, where root or a namespace gives it one."""
    return pwd.getpwnam("nobody").pw_uid


@contextlib.contextmanager
def found(cache: Path, release: str, *, build: bool = False) -> Iterator[Programs]:
    """Find the programs on this machine, else in a cluster's root file system in `cache`.

    The root file system is not deleted while the block runs. One that is being built is waited for;
    with `build` a missing one is built, which takes minutes. Raises Unavailable if there is none.
    """
    if not shutil.which("setpriv"):
        raise Unavailable("no setpriv here, and the server must end with the tests")
    folder = installed()
    if folder is not None:
        yield Programs(folder)
        return
    if build:
        try:
            root.build(release, cache)
        except machine.Unavailable as error:
            raise Unavailable(f"no PostgreSQL server is installed here. {error}") from error
    with _kept(cache, release) as base:
        yield Programs(Path("/", newest(base).relative_to(base)), base)


def installed() -> Path | None:
    """Return the folder of the programs of this machine, if it has them."""
    executable = shutil.which("postgres")
    if executable and shutil.which("initdb"):
        return Path(executable).parent
    with contextlib.suppress(Unavailable):
        return newest(Path("/"))
    return None


def newest(base: Path) -> Path:
    """Return the folder of the newest programs in a Debian system, which keeps them off PATH."""
    folders = [path.parent for path in base.glob("usr/lib/postgresql/*/bin/initdb")]
    if not folders:
        raise Unavailable(f"no PostgreSQL server in {base}")
    return max(folders, key=lambda folder: int(folder.parent.name))


@contextlib.contextmanager
def _kept(cache: Path, release: str) -> Iterator[Path]:
    suite = root.SUITES[release]
    folder = cache / f"root-{suite}-{root.key(release)}"
    with contextlib.ExitStack() as stack:
        try:
            # Whoever builds or deletes a root file system holds the lock.
            with (cache / f"root-{suite}.lock").open() as lock:
                fcntl.flock(lock, fcntl.LOCK_SH)
                stamp = stack.enter_context((folder / root.STAMP).open())
                fcntl.flock(stamp, fcntl.LOCK_SH)
        except OSError as error:
            raise Unavailable(
                "no PostgreSQL server here: initdb and postgres are not installed, and the test"
                " cluster, whose root file system has them, is not built. As root: apt-get install"
                " postgresql, or .venv/bin/python -m tests.cluster build"
            ) from error
        yield folder
