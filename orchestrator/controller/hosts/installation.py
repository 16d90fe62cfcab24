"""setup --host: installs orchestrator on a host, for one user and without root."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import importlib.resources
import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import orchestrator
from orchestrator import errors, files
from orchestrator.controller.hosts import checks as host_checks
from orchestrator.controller.hosts import wheels
from orchestrator.controller.remote import connection as connections
from orchestrator.controller.remote.connection import Remote
from orchestrator.remote import explanations, probe


@dataclasses.dataclass(frozen=True, kw_only=True)
class Installation:
    """What was found or written on the host."""

    #: the host's own name
    host: str
    #: it was there before
    is_old: bool
    #: folder of this version
    folder: str
    #: folder of all versions
    base: str
    #: link to the command; "": a file that is not ours is there
    link: str
    #: what still prevents `--host` from using it; "" if nothing
    problem: str


def files_of(folder: Path | None, environ: Mapping[str, str]) -> dict[str, bytes]:
    """Return the wheels to send, by name: that of this version, and the others of the folder.

    folder: of --wheels; it is made, and gets the wheel of this version. Raises OrchestratorError.
    """
    if folder is None:
        return dict([wheels.of_this_version(environ)])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        ours = list(folder.glob(f"orchestrator-{orchestrator.__version__}-*.whl"))
        if not ours:
            name, data = wheels.of_this_version(environ)
            (folder / name).write_bytes(data)
            ours = [folder / name]
        others = [path for path in folder.glob("*.whl") if path.name[:13] != "orchestrator-"]
        return {
            path.name: files.read_bytes(path, limit_bytes=wheels.MAX_BYTES)
            for path in [ours[0], *sorted(others)]
        }
    except OSError as error:
        raise errors.OrchestratorError(f"{folder}: {error.strerror}") from error


def install(
    remote: Remote,
    environ: Mapping[str, str],
    *,
    sent: Mapping[str, bytes],
    python: str | None,
    extras: Sequence[str] | None,
    wheels_folder: Path | None,
) -> Installation:
    """Install these wheels on a host, and what they need. One call of ssh.

    python: path on the host; None: the best one. extras: None: those of the last installation.
    wheels_folder: where they are from, which are then all that is used; None: pip downloads
    the others there. Raises OrchestratorError, with the cure.
    """
    request = {
        "version": orchestrator.__version__,
        "digest": _digest(sent),
        "files": {name: base64.b64encode(data).decode() for name, data in sent.items()},
        "extras": None if extras is None else sorted(set(extras)),
        "offline": wheels_folder is not None,
    }
    installer = importlib.resources.files("orchestrator.remote").joinpath("installer.py")
    script = probe.script(
        remote.host.remote_command, installer.read_text(), python or "", json.dumps(request)
    )
    code, output = host_checks.ask(remote, environ, script)
    facts = probe.facts(output)
    if not facts.is_complete:
        check = next(iter(host_checks.checks(remote, code, facts, 0.0)))
        raise connections.ConnectionFailedError(f"{check.found}: {check.cure}")
    if failed := failure(remote.name, facts, python, wheels_folder):
        raise errors.OrchestratorError(failed)
    return Installation(
        host=facts.first("host"),
        is_old=facts.first("state") == "same",
        folder=facts.first("installed"),
        base=facts.first("base"),
        link=facts.first("linked"),
        problem=_problem(remote, facts),
    )


def report(remote: Remote, done: Installation) -> list[str]:
    """Return what was installed and how to remove it, as lines."""
    verb = "is already installed" if done.is_old else "is installed"
    lines = [f"orchestrator {orchestrator.__version__} {verb} on {done.host}: {done.folder}"]
    if done.link:
        lines.append(f"{done.link} starts it.")
    else:
        lines.append("~/.local/bin/orchestrator is not from setup, and was left as it is.")
    remove = shlex.join(["rm", "-r", done.base, *([done.link] if done.link else [])])
    return [*lines, f"To remove it: {shlex.join(['ssh', remote.address, remove])}"]


def _digest(sent: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name in sorted(sent):
        digest.update(f"{name} {hashlib.sha256(sent[name]).hexdigest()}\n".encode())
    return digest.hexdigest()


def failure(name: str, facts: probe.Facts, python: str | None, wheels_folder: Path | None) -> str:
    """Return why the installation failed and what to do; "" if it did not.

    name: of the host. python, wheels_folder: as for install().
    """
    code = facts.number("installer")
    if code == 0:
        return ""
    if code is None:
        check = host_checks.python_check(facts)
        return f"{name}: Python {check.found}: {check.cure}"
    match facts.first("failed"):
        case "pip" if wheels_folder is not None:
            return (
                f"pip on {name} cannot install these wheels, see its message above: fetch those "
                f"that are missing: `{_download(facts, python, wheels_folder)}`"
            )
        case "pip":
            again = shlex.join(["orchestrator", "setup", "--host", name, "--wheels", "wheels"])
            return (
                f"pip on {name} cannot install the dependencies, see its message above: if the "
                f"host has no access to a package index, `{again}` sends them from here"
            )
        case "venv":
            return (
                f"no virtual environment could be made on {name}, see the message above: name "
                "another Python there with --python"
            )
        case "":
            return (
                f"{python or 'Python'} on {name} ended with exit code {code}, see its message "
                "above: --python must be the path of a Python 3.11 or newer there"
            )
        case reason:
            return f"cannot install orchestrator on {name}: {reason}"


def _download(facts: probe.Facts, python: str | None, folder: Path) -> str:
    """Return the command that fetches the wheels that the host needs."""
    used = (each for each in facts.pythons if each.path == python or (not python and each.has_venv))
    version = next((each.version.rpartition(".")[0] for each in used), "3.11")
    machine = facts.first("machine").rpartition(" ")[2] or "x86_64"
    ours = next(folder.glob(f"orchestrator-{orchestrator.__version__}-*.whl"))
    words = ["pip", "download", "--only-binary=:all:", "--python-version", version]
    for libc in ("manylinux_2_28", "manylinux2014"):
        words += ["--platform", f"{libc}_{machine}"]
    return shlex.join([*words, "--dest", str(folder), str(ours)])


def _problem(remote: Remote, facts: probe.Facts) -> str:
    own = f'remote_command = ["{facts.first("base")}/current/bin/orchestrator", "agent", "--stdio"]'
    cure = f"set {own} in [hosts.{remote.name}]"
    if (greeting := facts.greeting) is None:
        code = facts.number("agent-exit") or 0
        found = explanations.no_agent(remote.name, remote.address, code).found
        return f"{found}: {cure}"
    if greeting.version != orchestrator.__version__:
        return (
            f"`--host {remote.name}` still starts orchestrator {greeting.version}, which is on "
            f"PATH there or named by remote_command: {cure}"
        )
    return ""
