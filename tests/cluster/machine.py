"""Properties and requirements of the machine that the lab runs on."""

from __future__ import annotations

import configparser
import ctypes
import dataclasses
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence

DEBIAN_KEYRING = pathlib.Path("/usr/share/keyrings/debian-archive-keyring.gpg")
#: Variables for network access; no other variables of the environment are passed on.
NETWORK_VARIABLES = re.compile(
    r"(?i)(https?|ftp|no|all)_proxy|(SSL_CERT|PIP|UV)_[A-Z_]+|(REQUESTS|CURL)_CA_BUNDLE"
)


# Dies with us, and takes its mounts along: a build that is killed must leave nothing behind.
CONTAINED = (
    *("setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--propagation", "private"),
    *("--pid", "--fork", "--kill-child", "--mount-proc"),
)


class LabError(Exception):
    """The test cluster could not do what was asked; the message names the cure."""


class Unavailable(LabError):
    """This machine cannot run a test cluster; the message explains what is missing."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class AptSource:
    """One archive of the machine's apt configuration."""

    #: Address of the archive, as apt has it.
    uri: str
    #: Its suites, such as `bookworm`.
    suites: tuple[str, ...]
    #: Its components, such as `main`.
    components: tuple[str, ...]
    #: Keyring file, or None when the source names none.
    signed_by: pathlib.Path | None


def lab_dir() -> pathlib.Path:
    """Default folder of caches and running labs."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    named = os.environ.get("ORCHESTRATOR_LAB")
    return pathlib.Path(named or f"{cache}/orchestrator/lab").expanduser().absolute()


def slurm_release() -> str:
    """Default Slurm release of labs."""
    return os.environ.get("ORCHESTRATOR_LAB_RELEASE") or "24.11"


def command(
    argv: Sequence[str | os.PathLike[str]],
    *,
    action: str,
    env: Mapping[str, str] | None = None,
    cwd: pathlib.Path | None = None,
    downloads: bool = False,
) -> str:
    """Run a command and return its stdout; `LabError` with its last lines if it fails.

    `downloads`: it needs the network; then errors are `Unavailable`.
    """
    done = subprocess.run(
        argv, stdin=subprocess.DEVNULL, env=env, cwd=cwd, capture_output=True, text=True
    )
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
        text = f"{action} failed (exit code {done.returncode}):\n{tail}"
        if downloads:
            raise Unavailable(f"{text}\nIs there a network? What was built once needs none.")
        raise LabError(text)
    return done.stdout


def require(tools: Iterable[str] = ()) -> None:
    """Raise `Unavailable` unless this is Linux as root with namespaces and apt; install `tools`."""
    if os.geteuid() != 0:
        raise Unavailable("The test cluster needs root (namespaces, mounts). Run it with sudo.")
    if not shutil.which("apt-get"):
        raise Unavailable("The test cluster needs Debian 12 or 13 (no apt-get here).")
    probe = subprocess.run(
        ["unshare", "--mount", "--net", "--pid", "--uts", "--ipc", "--fork", "true"],
        capture_output=True,
        text=True,
    )
    if probe.returncode:
        raise Unavailable(
            f"This machine allows no namespaces ({probe.stderr.strip()}). In a container, start it"
            " with CAP_SYS_ADMIN (docker run --privileged)."
        )
    missing = [name for name in tools if not shutil.which(name)]
    if missing:
        install([{"ip": "iproute2"}.get(name, name) for name in missing])


def require_library(name: str, package: str) -> None:
    """Install a shared library, unless this machine has it; `Unavailable` when apt cannot."""
    try:
        ctypes.CDLL(name)
    except OSError:
        install([package])


def install(packages: Sequence[str]) -> None:
    """Install Debian packages on this machine; `Unavailable` when apt cannot."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for argv in (
        ["apt-get", "update", "-q"],
        ["apt-get", "install", "-y", "-q", "--no-install-recommends", *packages],
    ):
        done = subprocess.run(argv, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise Unavailable(
                f"apt-get could not install {' '.join(packages)}; is there a network?"
                f" Install them by hand and try again.\n{done.stderr.strip()[-800:]}"
            )


def parse_deb822(text: str) -> list[AptSource]:
    """Archives of a `.sources` file (sources.list(5), DEB822-STYLE FORMAT)."""
    result: list[AptSource] = []
    for stanza in re.split(r"\n[ \t]*\n", text):
        fields: dict[str, str] = {}
        key = ""
        for line in stanza.splitlines():
            if line.startswith("#"):
                continue
            if line[:1] in (" ", "\t") and key:
                fields[key] += "\n" + line.strip()
            elif ":" in line:
                key, _, value = line.partition(":")
                key = key.strip().lower()
                fields[key] = value.strip()
        if "deb" not in fields.get("types", "").split():
            continue
        if fields.get("enabled", "yes").lower() in ("no", "false", "0"):
            continue
        result.extend(
            AptSource(
                uri=uri,
                suites=tuple(fields.get("suites", "").split()),
                components=tuple(fields.get("components", "").split()),
                signed_by=_keyring(fields.get("signed-by", "")),
            )
            for uri in fields.get("uris", "").split()
        )
    return result


def parse_one_line(text: str) -> list[AptSource]:
    """Archives of a `sources.list` file (sources.list(5), ONE-LINE-STYLE FORMAT)."""
    result = []
    for line in text.splitlines():
        match = re.match(r"\s*deb\s+(?:\[([^\]]*)\]\s+)?(\S+)\s+(\S+)\s*([^#]*)", line)
        if match is None:
            continue
        options, uri, suite, components = match.groups()
        signed = re.search(r"signed-by=(\S+)", options or "")
        result.append(
            AptSource(
                uri=uri,
                suites=(suite,),
                components=tuple(components.split()),
                signed_by=_keyring(signed[1] if signed else ""),
            )
        )
    return result


def _keyring(value: str) -> pathlib.Path | None:
    return pathlib.Path(value) if value.startswith("/") and "\n" not in value else None


def debian_archive(etc_apt: pathlib.Path = pathlib.Path("/etc/apt")) -> AptSource:
    """The archive that this machine gets Debian's main component from; `Unavailable` if none."""
    named = os.environ.get("ORCHESTRATOR_LAB_MIRROR")
    if named:
        return AptSource(uri=named, suites=(), components=("main",), signed_by=DEBIAN_KEYRING)
    sources: list[AptSource] = []
    for path in sorted(etc_apt.glob("sources.list.d/*.sources")):
        sources += parse_deb822(path.read_text())
    for path in [etc_apt / "sources.list", *sorted(etc_apt.glob("sources.list.d/*.list"))]:
        if path.exists():
            sources += parse_one_line(path.read_text())
    own = _codename()
    for source in sources:
        # A suite with a dash (bookworm-updates, bookworm-security) is an addition, not the archive.
        if "main" in source.components and own in source.suites:
            return dataclasses.replace(source, signed_by=source.signed_by or DEBIAN_KEYRING)
    raise Unavailable(
        "The apt sources of this machine name no Debian archive. Set ORCHESTRATOR_LAB_MIRROR to"
        " the address of one, and install debian-archive-keyring."
    )


def _codename() -> str:
    text = pathlib.Path("/etc/os-release").read_text()
    identity = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', text, re.M))
    # Only Debian's own archive holds the suites that the lab is built from.
    return identity.get("VERSION_CODENAME", "sid") if identity.get("ID") == "debian" else "-"


def index_variables(environ: Mapping[str, str], home: pathlib.Path) -> dict[str, str]:
    """The environment in which pip and uv reach the index that this machine's pip is set up for.

    pip's configuration files are read here, because uv does not read them. Extra indexes and
    find-links stay out: a lock file with hashes belongs to one index.
    """
    settings: dict[str, str] = {}
    files = [
        pathlib.Path("/etc/pip.conf"),
        home / ".pip/pip.conf",
        home / ".config/pip/pip.conf",
    ]
    if environ.get("PIP_CONFIG_FILE"):
        files.append(pathlib.Path(environ["PIP_CONFIG_FILE"]))
    for path in files:
        parser = configparser.RawConfigParser()
        parser.read(path)
        for section in ("global", "install"):
            if parser.has_section(section):
                settings.update(parser.items(section))
    variables = {
        name: value for name, value in environ.items() if NETWORK_VARIABLES.fullmatch(name)
    }
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_CONFIG_FILE", "PIP_CACHE_DIR"):
        variables.pop(name, None)
    for name in [name for name in variables if name.startswith("UV_") and name.endswith("_DIR")]:
        variables.pop(name)
    for option in ("index-url", "cert", "trusted-host", "proxy"):
        if option in settings:
            variables.setdefault("PIP_" + option.upper().replace("-", "_"), settings[option])
    if "PIP_INDEX_URL" in variables:
        variables.setdefault("UV_DEFAULT_INDEX", variables["PIP_INDEX_URL"])
    bundle = variables.get("PIP_CERT", "/etc/ssl/certs/ca-certificates.crt")
    if pathlib.Path(bundle).exists():
        variables.setdefault("SSL_CERT_FILE", bundle)
    return variables


def digest(*parts: str | bytes) -> str:
    """Sixteen hex digits that change when any part does."""
    whole = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        whole.update(len(data).to_bytes(8, "big") + data)
    return whole.hexdigest()[:16]


def cgroup_controllers() -> list[pathlib.Path]:
    """The mounted cgroup v1 hierarchies that Slurm's cgroup/v1 plugin uses; empty without them."""
    base = pathlib.Path("/sys/fs/cgroup")
    names = ("memory", "freezer", "cpuset", "cpu", "cpuacct", "devices")
    folders = [base / name for name in names]
    result = [folder for folder in folders if (folder / "cgroup.procs").exists()]
    writable = all(os.access(folder, os.W_OK) for folder in result)
    return result if len(result) == len(names) and writable else []
