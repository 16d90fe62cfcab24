"""Installs a driver for this user: a crontab, scrontab or systemd timer that runs passes."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import shlex
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from orchestrator import config, errors, files
from orchestrator.config import paths
from orchestrator.processes import process

BEGIN = "# >>> orchestrator tick >>>"
END = "# <<< orchestrator tick <<<"
_UNIT = "orchestrator-tick"
#: For crontab, scrontab and systemctl.
_TIMEOUT_SECONDS = 60.0
#: Each run is a Slurm job.
_SCRON_MINUTES = 5
#: Variables for Slurm, systemd and TLS.
_INHERITED = frozenset({"SLURM_CONF", "XDG_CONFIG_HOME", "SSL_CERT_FILE", "SSL_CERT_DIR"})
_USUAL_PATH = "/usr/local/bin:/usr/bin:/bin"
_OTHERS = "`orchestrator serve` needs none"
#: Package and alternatives of a command that is not installed.
_MISSING = {
    "crontab": f"Install cron, or use --systemd or --scrontab; {_OTHERS}.",
    "scrontab": f"It comes with Slurm: use a login node, or --cron or --systemd; {_OTHERS}.",
    "systemctl": f"This host has no systemd: use --cron or --scrontab; {_OTHERS}.",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Driver:
    #: with an absolute path, up to `tick --quiet`
    argv: tuple[str, ...]
    environ: Mapping[str, str]
    state_dir: Path
    #: where it runs; None: the home folder
    folder: Path | None = None


class ReadVariables(Mapping[str, str]):
    """Environment variables, and the names of those that were read."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> str:
        value = self._environ[name]
        self.names.add(name)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._environ)

    def __len__(self) -> int:
        return len(self._environ)


def driver(
    program: Sequence[str],
    overrides: Mapping[str, object],
    configuration: config.Configuration,
    environ: ReadVariables,
    folder: Path,
) -> Driver:
    """Return the driver that uses the same configuration as a command in `folder`.

    program: the command that starts orchestrator from any folder. overrides: options before the
    command's name. environ: with which `configuration` was loaded.

    Raises OrchestratorError if a crontab or unit cannot contain the driver.
    """
    absolute = {
        key: os.path.abspath(folder / str(value)) if key.endswith("_dir") else value
        for key, value in overrides.items()
    }
    options = [(f"--{key.replace('_', '-')}", str(value)) for key, value in absolute.items()]
    # A copy: reading all variables adds their names.
    variables = environment(environ, frozenset(environ.names))
    made = Driver(
        argv=(*program, *itertools.chain(*options), "tick", "--quiet"),
        environ=variables,
        state_dir=configuration.state_dir,
        folder=_folder_for(configuration, variables, absolute, folder),
    )
    for word in (*made.argv, *variables.values(), str(made.folder)):
        if "\n" in word:
            raise errors.OrchestratorError(f"a crontab cannot contain a newline (got {word!a})")
    return made


def _folder_for(
    configuration: config.Configuration,
    variables: Mapping[str, str],
    overrides: Mapping[str, object],
    folder: Path,
) -> Path | None:
    """Return a folder in which this configuration applies; None: it applies in the home folder.

    A project's file and relative paths in variables apply only in some folders.
    """
    home = paths.home(variables)
    project = configuration.project
    candidates = [home, folder if project is None else project.path.parent]
    wanted = dataclasses.replace(configuration, project=None)
    for candidate in candidates:
        with contextlib.suppress(errors.ConfigurationError):
            found = config.load(variables, candidate, overrides)
            if dataclasses.replace(found, project=None) == wanted:
                return None if candidate == home else candidate
    return folder


def environment(environ: Mapping[str, str], used: Collection[str]) -> dict[str, str]:
    """Return the variables that a driver needs: PATH, those of Slurm and TLS, ORCHESTRATOR_*.

    used: names of variables that the configuration depends on.
    """
    kept = {
        name: value
        for name, value in sorted(environ.items())
        if name.startswith("ORCHESTRATOR_") or name in _INHERITED or name in used
    }
    folders = [_folder_of(name, environ.get("PATH", "")) for name in ("sbatch", "git")]
    path = dict.fromkeys([*filter(None, folders), *_USUAL_PATH.split(":")])
    return {"PATH": ":".join(path), **kept}


def _folder_of(command: str, path: str) -> str:
    for folder in path.split(":"):
        if folder.startswith("/") and os.access(os.path.join(folder, command), os.X_OK):
            return folder
    return ""


def refuse_password(environ: Mapping[str, str]) -> None:
    """Raise OrchestratorError for a password: all users of a host see command lines."""
    if config.has_password(environ.get("ORCHESTRATOR_DATABASE", "")):
        raise errors.OrchestratorError(
            "ORCHESTRATOR_DATABASE contains a password, and all users of this host would see it: "
            "put the password into ~/.pgpass, or set database in the configuration"
        )


def text(driver: Driver, kind: str) -> str:
    """Return what `install` would write; kind: cron, scrontab or systemd."""
    if kind == "systemd":
        return "".join(f"# {path}\n{content}\n" for path, content in units(driver).items())
    return "\n".join(lines(driver, kind)) + "\n"


def lines(driver: Driver, kind: str) -> list[str]:
    """Return the lines for a crontab or scrontab, between their markers."""
    pairs = [f"{name}={value}" for name, value in driver.environ.items()]
    line = shlex.join(["env", *pairs, *driver.argv])
    if driver.folder is not None:
        line = f"{shlex.join(['cd', str(driver.folder)])} && {line}"
    if kind == "cron":
        # In a crontab % means a newline (man 5 crontab).
        line = line.replace("%", "\\%")
        return [BEGIN, f"* * * * * {line}", END]
    # scrontab puts the command unchanged into a script of /bin/sh: % is plain (tested on 24.11).
    # Without --output a file slurm-ID.out would be written to the home folder.
    options = ["--job-name=orchestrator-tick", "--time=10:00", "--output=/dev/null"]
    return [
        BEGIN,
        *(f"#SCRON {option}" for option in options),
        f"*/{_SCRON_MINUTES} * * * * {line}",
        END,
    ]


def units(driver: Driver) -> dict[Path, str]:
    base = driver.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    folder = Path(base) / "systemd" / "user"
    variables = "".join(
        f"Environment={_unit_word(f'{name}={value}')}\n" for name, value in driver.environ.items()
    )
    # In a command, unlike in Environment=, $ begins a variable.
    words = " ".join(_unit_word(word).replace("$", "$$") for word in driver.argv)
    folder_line = ""
    if driver.folder is not None:
        # It is not quoted (man systemd.exec).
        folder_line = f"WorkingDirectory={str(driver.folder).replace('%', '%%')}\n"
    service = (
        "[Unit]\nDescription=One pass of orchestrator's controller\n\n"
        f"[Service]\nType=oneshot\n{folder_line}{variables}ExecStart={words}\n"
    )
    timer = (
        "[Unit]\nDescription=One pass of orchestrator's controller each minute\n\n"
        "[Timer]\nOnCalendar=*:*:00\nAccuracySec=1s\n\n[Install]\nWantedBy=timers.target\n"
    )
    return {folder / f"{_UNIT}.service": service, folder / f"{_UNIT}.timer": timer}


def _unit_word(word: str) -> str:
    """Quote a word (man systemd.service, "Command lines")."""
    quoted = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{quoted}"' if quoted != word or any(c in word for c in " '") else word


def merged(before: str, ours: Sequence[str]) -> str:
    """Return a crontab in which our lines replace the old ones between the markers.

    Raises ConflictError if the markers are not in pairs.
    """
    kept: list[str] = []
    inside = False
    for line in before.splitlines():
        marker = line.strip()
        if marker in (BEGIN, END):
            if (marker == BEGIN) == inside:
                raise _unpaired(marker)
            inside = not inside
        elif not inside:
            kept.append(line)
    if inside:
        raise _unpaired(BEGIN)
    return "".join(f"{line}\n" for line in [*kept, *ours])


def _unpaired(marker: str) -> errors.ConflictError:
    return errors.ConflictError(f"the line {marker!r} has no counterpart: remove it first")


def install(
    driver: Driver, kind: str, environ: Mapping[str, str], *, remove: bool = False
) -> list[str]:
    """Install or remove the driver for this user; return messages."""
    if kind == "systemd":
        return _install_units(driver, environ, remove=remove)
    command = "crontab" if kind == "cron" else "scrontab"
    before = _run([command, "-l"], environ)
    after = merged(before, [] if remove else lines(driver, kind))
    if after == before:
        return [f"Nothing to change in your {command}"]
    # Not all versions accept "-" (scrontab: man page of Slurm 24.11).
    with tempfile.NamedTemporaryFile("w", suffix=f".{command}") as file:
        file.write(after)
        file.flush()
        _run([command, file.name], environ)
    if remove:
        return [f"Removed from your {command}"]
    messages = [f"Added to your {command}; `{command} -l` shows it"]
    kept = set(after.splitlines())
    messages += [f"It replaces: {line}" for line in before.splitlines() if line not in kept]
    if kind == "scrontab":
        messages.append(f"It runs on compute nodes, which need access to {driver.state_dir}")
    return messages


def _run(argv: Sequence[str], environ: Mapping[str, str]) -> str:
    """Run a command and return its output; "" if it prints a crontab and there is none."""
    try:
        answer = process.run(argv, timeout_seconds=_TIMEOUT_SECONDS, environ=environ)
    except process.CommandNotFound as exc:
        raise errors.OrchestratorError(f"{exc}. {_MISSING[argv[0]]}") from exc
    if answer.returncode == 0:
        return answer.stdout
    # "no crontab for alice" is on stderr of crontab, on stdout of scrontab (24.11).
    output = f"{answer.stderr}\n{answer.stdout}".strip()
    if "no crontab for" in output:
        return ""
    reason = output or f"exit code {answer.returncode}"
    raise errors.OrchestratorError(f"`{shlex.join(argv)}` failed: {reason}")


def _install_units(driver: Driver, environ: Mapping[str, str], *, remove: bool) -> list[str]:
    contents = units(driver)
    systemctl = ["systemctl", "--user"]
    if remove:
        existing = [path for path in contents if path.exists()]
        if not existing:
            return ["Nothing to remove: no systemd unit is installed"]
        _run([*systemctl, "disable", "--now", f"{_UNIT}.timer"], environ)
        for path in existing:
            path.unlink()
        _run([*systemctl, "daemon-reload"], environ)
        return [f"Removed {', '.join(map(str, existing))}"]
    for path, content in contents.items():
        try:
            files.make_private_folder(path.parent, setting="XDG_CONFIG_HOME")
        except files.PrivateFolderError as exc:
            raise errors.OrchestratorError(str(exc.strerror)) from exc
        path.touch(mode=0o600)
        path.write_text(content)
    _run([*systemctl, "daemon-reload"], environ)
    _run([*systemctl, "enable", "--now", f"{_UNIT}.timer"], environ)
    return [
        f"Wrote {', '.join(map(str, contents))}",
        "The timer runs while you are logged in; `loginctl enable-linger` lets it always run",
    ]
