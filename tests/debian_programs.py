"""Where programs of a Debian package come from: this machine, or the test cluster's root."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import pwd
import shutil
from collections.abc import Iterator
from pathlib import Path

from tests.cluster import machine, root

#: The folder of a program's files, as a program in a root file system sees it.
INSIDE = Path("/tmp/files")
# Mounts are made in a namespace of the program's own: nothing is written into the root file system.
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
    """The programs cannot be run; the message explains why."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Package:
    """Programs of a Debian package, all in one folder."""

    name: str
    programs: tuple[str, ...]
    #: glob pattern of the folder below the root; of several matches the highest version is used
    folder: str = "usr/bin"


POSTGRESQL = Package(
    name="postgresql", programs=("initdb", "postgres"), folder="usr/lib/postgresql/*/bin"
)
PROMETHEUS = Package(name="prometheus", programs=("prometheus", "promtool"))


@dataclasses.dataclass(frozen=True)
class Programs:
    """The programs of a package."""

    #: Their folder, as they see it.
    folder: Path
    #: The root file system in which they run; None: this machine's own.
    root: Path | None = None

    def sees(self, folder: Path) -> Path:
        """Return the folder of a program's files as the program sees it."""
        return folder if self.root is None else INSIDE

    def command(
        self,
        name: str,
        folder: Path,
        *,
        user_id: int,
        is_never_root: bool = False,
        has_network: bool = False,
    ) -> list[str]:
        """Return the words that run a program, with `folder`, for the user with this ID (0: root).

        It ends with the process that starts it. `is_never_root`: it runs as nobody where it would
        have been root, which it refuses. `has_network` applies to a root file system.
        """
        ends = ["setpriv", "--pdeathsig", "INT"]
        as_nobody = [f"--reuid={nobody()}", f"--regid={nobody()}", "--clear-groups"]
        program = str(self.folder / name)
        if self.root is None:
            return [*ends, *(as_nobody if is_never_root and user_id == 0 else []), "--", program]
        # Until the last `setpriv`, which may give up rights and with them the first one's effect.
        spaces = ["setpriv", "--pdeathsig", "KILL"]
        spaces += ["unshare", "--mount", "--propagation", "private", "--ipc"]
        spaces += [] if has_network else ["--net"]
        enter = ["sh", "-c", ENTER, "enter", str(self.root), str(folder)]
        if user_id == 0:
            return [*spaces, *enter, *ends, *(as_nobody if is_never_root else []), "--", program]
        # Root of a user namespace may mount; a second namespace makes it an ordinary user again,
        # whose name initdb finds in the root file system.
        mapped = [f"--map-user={nobody()}", f"--map-group={nobody()}"]
        again = ["unshare", "--user", *mapped] if is_never_root else []
        return [*spaces, "--user", "--map-root-user", *enter, *again, *ends, "--", program]


def nobody() -> int:
    """Return the ID of the user that runs a program which refuses root."""
    return pwd.getpwnam("nobody").pw_uid


@contextlib.contextmanager
def found(
    package: Package, cache: Path, release: str, *, build: bool = False
) -> Iterator[Programs]:
    """Find the programs on this machine, else in a cluster's root file system in `cache`.

    The root file system is not deleted while the block runs. One that is being built is waited for;
    with `build` a missing one is built, which takes minutes. Raises Unavailable if there is none.
    """
    if not shutil.which("setpriv"):
        raise Unavailable("no setpriv here, and the programs must end with the tests")
    folder = installed(package)
    if folder is not None:
        yield Programs(folder)
        return
    if build:
        try:
            root.build(release, cache)
        except machine.Unavailable as error:
            raise Unavailable(f"{package.name} is not installed here. {error}") from error
    with _kept(package, cache, release) as base:
        yield Programs(Path("/", newest(package, base).relative_to(base)), base)


def installed(package: Package) -> Path | None:
    """Return the folder of the programs of this machine, if it has them."""
    first, *others = package.programs
    executable = shutil.which(first)
    if executable and all(map(shutil.which, others)):
        return Path(executable).parent
    with contextlib.suppress(Unavailable):
        return newest(package, Path("/"))
    return None


def newest(package: Package, base: Path) -> Path:
    """Return the folder of the newest programs in a Debian system, which keeps some off PATH."""
    first, *others = package.programs
    folders = [
        path.parent
        for path in base.glob(f"{package.folder}/{first}")
        if all(path.with_name(other).exists() for other in others)
    ]
    if not folders:
        raise Unavailable(f"no {' and '.join(package.programs)} in {base}")
    return max(folders, key=_version)


def _version(folder: Path) -> int:
    # Debian's folders of several versions: /usr/lib/postgresql/17/bin.
    name = folder.parent.name
    return int(name) if name.isdecimal() else 0


@contextlib.contextmanager
def _kept(package: Package, cache: Path, release: str) -> Iterator[Path]:
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
                f"{' and '.join(package.programs)} are not installed here, and the test cluster,"
                " whose root file system has them, is not built. As root: apt-get install"
                f" {package.name}, or .venv/bin/python -m tests.cluster build"
            ) from error
        yield folder
