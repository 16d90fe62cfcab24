"""The root file system of the hosts: Debian with Slurm and the programs that tests need."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import pathlib
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tests.cluster import configuration, machine

#: Slurm release -> the Debian suite that has it.
SUITES = {"22.05": "bookworm", "24.11": "trixie", "26.05": "sid"}
PACKAGES = (
    *("slurm-wlm", "slurm-wlm-basic-plugins", "slurmdbd", "munge", "mariadb-server"),
    *("postgresql", "prometheus", "openssh-server", "libpam-oath", "tcsh", "tmux"),
    *("chromium-headless-shell", "fonts-dejavu-core"),
    *("python3", "python3-venv", "ca-certificates", "procps", "iproute2", "iputils-ping"),
    *("squashfuse", "fuse2fs", "fuse3", "uidmap", "squashfs-tools", "git", "less", "faketime"),
    "charliecloud-runtime",
)
#: What is in the image beside Debian's essential packages; the Python environment is bound in.
IMAGE_PACKAGES = ("python3", "libstdc++6", "libgomp1", "procps", "hostname")
#: Marks a folder that is complete; written last.
STAMP = "lab.stamp"
#: Path of the image on the hosts.
IMAGE = "/srv/images/python.sif"
#: MariaDB's first tables, below the root folder.
TABLES = "srv/mysql"
#: Empty folders that the hosts mount things on; their root is read-only.
MOUNT_POINTS = (
    "srv/orchestrator",
    "srv/requirements",
    "srv/images",
    "opt/orchestrator-env",
    "var/lab",
    "mnt",
    "home",
)

# Runs a command in a root folder that is made the root of a mount namespace: `apptainer build`
# wants / to be a mount point, which it is not after a bare chroot.
ENTER = """
set -e
root=$1; binds=$2; shift 2
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/tmp"
for pair in $binds; do
  mkdir -p "$root${pair#*=}" 2>/dev/null || [ -e "$root${pair#*=}" ]
  mount --rbind "${pair%%=*}" "$root${pair#*=}"
done
cd "$root"; pivot_root . mnt; umount -l /mnt; cd /
exec "$@"
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Root:
    """A finished root file system."""

    #: Slurm release in it.
    release: str
    #: Its folder.
    folder: pathlib.Path


def say(text: str) -> None:
    """Print a progress message."""
    print(f"lab: {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def exclusive(path: pathlib.Path) -> Iterator[None]:
    """Hold a lock file while the block runs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def enter(
    folder: pathlib.Path,
    argv: Sequence[str],
    *,
    action: str,
    binds: Mapping[pathlib.Path, str] | None = None,
    env: Mapping[str, str] | None = None,
    downloads: bool = False,
) -> str:
    """Run a command as root with `folder` as its root and the machine's own network."""
    pairs = " ".join(f"{source}={target}" for source, target in (binds or {}).items())
    environment = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root",
        "LANG": "C.UTF-8",
        **(env or {}),
    }
    words = ["sh", "-c", ENTER, "enter", str(folder), pairs, *argv]
    argv = [*machine.CONTAINED, *words]
    return machine.command(argv, action=action, env=environment, downloads=downloads)


def key(release: str) -> str:
    """Names the recipe: another release, package or line of this file gives another root."""
    source = pathlib.Path(__file__).read_bytes()
    return machine.digest(release, source, json.dumps(configuration.USERS))


def build(release: str, cache: pathlib.Path, *, fresh: bool = False) -> Root:
    """Return the root file system of a release, building it when the cache lacks it.

    About 60 s, most of it unpacking packages; `machine.Unavailable` without root or network.
    """
    if release not in SUITES:
        raise machine.LabError(f"No Slurm release {release!r}. Known: {', '.join(SUITES)}.")
    suite = SUITES[release]
    folder = cache / f"root-{suite}-{key(release)}"
    with exclusive(cache / f"root-{suite}.lock"):
        if fresh or not (folder / STAMP).exists():
            machine.require(["mmdebstrap", "ip"])
            started = time.monotonic()
            say(f"building the root file system, Debian {suite} with Slurm {release}")
            partial = cache / f"root-{suite}.partial"
            remove(partial)
            _bootstrap(release, cache, partial)
            (partial / STAMP).touch()
            replace(partial, folder, cache.glob(f"root-{suite}-*"))
            say(f"root file system built in {time.monotonic() - started:.0f} s")
    return Root(release=release, folder=folder)


def has_cgroup_v1(folder: pathlib.Path) -> bool:
    """This root's Slurm still has the plugin for cgroup v1."""
    return any(folder.glob("usr/lib/*/slurm-wlm/cgroup_v1.so"))


def in_use(folder: pathlib.Path) -> bool:
    """A running cluster's hosts hold this folder: they keep its stamp locked."""
    try:
        with (folder / STAMP).open() as stamp:
            fcntl.flock(stamp, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False


def replace(made: pathlib.Path, folder: pathlib.Path, others: Iterable[pathlib.Path]) -> None:
    """Move the result into place; delete unused results of earlier recipes."""
    if in_use(folder):
        raise machine.LabError(f"A running cluster uses {folder}. Take it down first.")
    remove(folder)
    made.rename(folder)
    for other in others:
        if other != folder and not in_use(other):
            remove(other)


def remove(folder: pathlib.Path) -> None:
    """Delete a folder that was built, refusing while something is mounted below it."""
    text = pathlib.Path("/proc/self/mounts").read_text()
    below = [line.split()[1] for line in text.splitlines()]
    if any(mount.startswith(f"{folder}/") for mount in below):
        raise machine.LabError(f"Something is mounted below {folder}. Unmount it first.")
    # A root without its stamp is ignored: an incomplete root must not look complete.
    (folder / STAMP).unlink(missing_ok=True)
    if folder.exists():
        shutil.rmtree(folder)


def _bootstrap(release: str, cache: pathlib.Path, target: pathlib.Path) -> None:
    suite = SUITES[release]
    archive = machine.debian_archive()
    _mmdebstrap(archive, suite, target, packages=PACKAGES, variant="minbase")
    _install_apptainer(archive, suite, cache, target)
    _settle(target)
    _build_image(archive, suite, cache, target)


def _mmdebstrap(
    archive: machine.AptSource,
    suite: str,
    target: pathlib.Path,
    *,
    packages: Sequence[str],
    variant: str,
) -> None:
    if archive.signed_by is not None and not archive.signed_by.exists():
        machine.install(["debian-archive-keyring"])
    signed = f"[signed-by={archive.signed_by}] " if archive.signed_by else ""
    excluded = ("doc/*", "man/*", "locale/*", "info/*")
    environment = {
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "DEBIAN_FRONTEND": "noninteractive",
        **{n: v for n, v in os.environ.items() if n.lower().endswith("_proxy")},
    }
    machine.command(
        [
            *machine.CONTAINED,
            *("mmdebstrap", "--quiet", f"--variant={variant}", f"--include={','.join(packages)}"),
            # A mirror may serve a Release file of sid that is out of date.
            '--aptopt=Acquire::Check-Valid-Until "false"',
            *(f"--dpkgopt=path-exclude=/usr/share/{pattern}" for pattern in excluded),
            *(suite, str(target), f"deb {signed}{archive.uri} {suite} main"),
        ],
        action=f"mmdebstrap of Debian {suite}",
        env=environment,
        downloads=True,
    )


def _install_apptainer(
    archive: machine.AptSource, suite: str, cache: pathlib.Path, target: pathlib.Path
) -> None:
    """Unpack apptainer, which only sid has; the libraries it needs are in the other suites too.

    All but one: it wants glibc 2.38, and bookworm has 2.36. A newer glibc serves old programs.
    """
    apt = cache / "apt"
    for name in ("lists/partial", "cache/archives/partial", "debs"):
        (apt / name).mkdir(parents=True, exist_ok=True)
    signed = f"[signed-by={archive.signed_by}] " if archive.signed_by else ""
    (apt / "sources.list").write_text(f"deb {signed}{archive.uri} sid main\n")
    options = {
        "Dir::Etc::sourcelist": apt / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::lists": apt / "lists",
        "Dir::Cache": apt / "cache",
        "Acquire::Check-Valid-Until": "false",
        "APT::Sandbox::User": "root",
    }
    get = [
        "apt-get",
        "-q",
        *(w for name, value in options.items() for w in ("-o", f"{name}={value}")),
    ]
    machine.command([*get, "update"], action="apt-get update for sid", downloads=True)
    shutil.rmtree(apt / "debs")
    (apt / "debs").mkdir()
    names = ["apptainer", "containernetworking-plugins"]
    if suite == "bookworm":
        names.append("libc6")
    fetch = [*get, "download", *names]
    machine.command(fetch, action="apt-get download", cwd=apt / "debs", downloads=True)
    debs = sorted(str(path) for path in (apt / "debs").glob("*.deb"))
    binds = {apt / "debs": "/debs"}
    inside = [f"/debs/{pathlib.Path(path).name}" for path in debs]
    force = ["--force-depends", "--force-breaks"]
    enter(target, ["dpkg", "-i", *force, *inside], action="dpkg -i apptainer", binds=binds)
    enter(target, ["apptainer", "--version"], action="apptainer --version")


def _settle(target: pathlib.Path) -> None:
    """Users, folders and files that are the same for every cluster made from this root."""
    for name in MOUNT_POINTS:
        (target / name).mkdir(parents=True, exist_ok=True)
    for user, number in configuration.USERS.items():
        # sshd refuses a user whose account is locked, which it is without a password.
        words = ["useradd", "-M", "-u", str(number), "-s", "/bin/bash", "-p", "*", user]
        enter(target, words, action="useradd")
    # From 2026 on the package leaves this to systemd. --force: the host name need not be known.
    shutil.rmtree(target / "var/lib/mysql", ignore_errors=True)
    install = ["mariadb-install-db", "--no-defaults", "--user=mysql", f"--datadir=/{TABLES}"]
    enter(target, [*install, "--skip-test-db", "--force"], action="mariadb-install-db")
    (target / "etc/hosts").write_text(configuration.hosts_file())
    # The hosts have no way out: a name that /etc/hosts lacks must fail at once, not time out.
    (target / "etc/resolv.conf").unlink(missing_ok=True)
    (target / "etc/resolv.conf").write_text("")
    (target / "etc/gitconfig").write_text("[safe]\n\tdirectory = *\n")
    (target / "etc/slurm").mkdir(exist_ok=True)


def _build_image(
    archive: machine.AptSource, suite: str, cache: pathlib.Path, target: pathlib.Path
) -> None:
    """Build the SIF image from a small folder; the same suite, so the environment's Python runs."""
    folder = cache / f"image-{suite}"
    remove(folder)
    _mmdebstrap(archive, suite, folder, packages=IMAGE_PACKAGES, variant="essential")
    for name in ("dev", "proc", "sys"):
        shutil.rmtree(folder / name, ignore_errors=True)
        (folder / name).mkdir()
    fast = ["--mksquashfs-args", "-comp zstd -Xcompression-level 1"]
    enter(
        target,
        ["apptainer", "--silent", "build", "--force", *fast, IMAGE, "/image"],
        action="apptainer build",
        binds={folder: "/image"},
        env={"APPTAINER_TMPDIR": "/tmp", "APPTAINER_CACHEDIR": "/tmp/cache"},
    )
    (target / "image").rmdir()
    (target / IMAGE.lstrip("/")).chmod(0o644)
    remove(folder)
