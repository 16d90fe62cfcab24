"""drivers: what runs `orchestrator tick` regularly, as text and installed for this user."""

from __future__ import annotations

import dataclasses
import os
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from orchestrator import config, errors, files
from orchestrator.slurm import process

BEGIN = "# >>> orchestrator tick >>>"
END = "# <<< orchestrator tick <<<"
UNIT = "orchestrator-tick"
#: Of crontab, scrontab and systemctl.
TIMEOUT_SECONDS = 60.0
#: A run is a job of Slurm's: not each minute.
SCRON_MINUTES = 5
_HANDED_ON = frozenset({"SLURM_CONF", "XDG_CONFIG_HOME", "SSL_CERT_FILE", "SSL_CERT_DIR"})
#: Where commands are found whose folder is not known.
USUAL_PATH = "/usr/local/bin:/usr/bin:/bin"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Driver:
    """What is run."""

    #: absolute, up to `tick --quiet`
    argv: tuple[str, ...]
    #: variables that it needs
    environ: Mapping[str, str]
    home: Path
    state_dir: Path


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what a driver hands on: where Slurm is, whom TLS trusts, and ORCHESTRATOR_*."""
    kept = {
        name: value
        for name, value in sorted(environ.items())
        if name.startswith("ORCHESTRATOR_") or name in _HANDED_ON
    }
    folders = [_folder_of(name, environ.get("PATH", "")) for name in ("sbatch", "git")]
    path = dict.fromkeys([*filter(None, folders), *USUAL_PATH.split(":")])
    return {"PATH": ":".join(path), **kept}


def refuse_password(environ: Mapping[str, str]) -> None:
    """Raise OrchestratorError for a password: all users of a host see what a command is given."""
    if config.has_password(environ.get("ORCHESTRATOR_DATABASE", "")):
        raise errors.OrchestratorError(
            "ORCHESTRATOR_DATABASE holds a password, and what a driver calls is seen by all: leave "
            "it out there (it belongs into ~/.pgpass), or set database in the configuration"
        )


def _folder_of(command: str, path: str) -> str:
    for folder in path.split(":"):
        if folder.startswith("/") and os.access(os.path.join(folder, command), os.X_OK):
            return folder
    return ""


def text(driver: Driver, kind: str) -> str:
    """Return what is installed, as a person would write it: kind is cron, scrontab or systemd."""
    if kind == "systemd":
        return "".join(f"# {path}\n{content}\n" for path, content in units(driver).items())
    return "\n".join(lines(driver, kind)) + "\n"


def lines(driver: Driver, kind: str) -> list[str]:
    """Return the lines of a crontab, or of a scrontab, between their marks."""
    pairs = [f"{name}={value}" for name, value in driver.environ.items()]
    line = shlex.join(["env", *pairs, *driver.argv])
    if kind == "cron":
        # In a crontab % is a newline (man 5 crontab).
        escaped = line.replace("%", "\\%")
        return [BEGIN, f"* * * * * {escaped}", END]
    # scrontab puts the command into a script of /bin/sh as it stands (tried on 24.11): % is plain.
    # A file of the user's cannot be seen by all; what it prints would be slurm-ID.out in the home.
    options = ["--job-name=orchestrator-tick", "--time=10:00", "--output=/dev/null"]
    return [
        BEGIN,
        *(f"#SCRON {option}" for option in options),
        f"*/{SCRON_MINUTES} * * * * {line}",
        END,
    ]


def units(driver: Driver) -> dict[Path, str]:
    """Return the units of systemd, by the files that they belong into."""
    base = driver.environ.get("XDG_CONFIG_HOME") or str(driver.home / ".config")
    folder = Path(base) / "systemd" / "user"
    variables = "".join(
        f"Environment={_unit_word(f'{name}={value}')}\n" for name, value in driver.environ.items()
    )
    # In a command, and not in Environment=, $ begins a variable's name too.
    words = " ".join(_unit_word(word).replace("$", "$$") for word in driver.argv)
    service = (
        "[Unit]\nDescription=One pass of orchestrator's controller\n\n"
        f"[Service]\nType=oneshot\n{variables}ExecStart={words}\n"
    )
    timer = (
        "[Unit]\nDescription=One pass of orchestrator's controller each minute\n\n"
        "[Timer]\nOnCalendar=*:*:00\nAccuracySec=1s\n\n[Install]\nWantedBy=timers.target\n"
    )
    return {folder / f"{UNIT}.service": service, folder / f"{UNIT}.timer": timer}


def _unit_word(word: str) -> str:
    # man systemd.service, "Command lines": quotes, backslash and % mean something.
    quoted = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{quoted}"' if quoted != word or any(one in word for one in " '") else word


def merged(before: str, ours: Sequence[str]) -> str:
    """Return a crontab with our lines in place of those that were there; foreign ones stay.

    ConflictError where our marks do not come in pairs: somebody has changed them.
    """
    kept: list[str] = []
    inside = False
    for line in before.splitlines():
        if line.strip() == BEGIN and not inside:
            inside = True
        elif line.strip() == END and inside:
            inside = False
        elif line.strip() in (BEGIN, END):
            raise errors.ConflictError(f"a line {line.strip()!r} stands alone: take it out first")
        elif not inside:
            kept.append(line)
    if inside:
        raise errors.ConflictError(f"a line {BEGIN!r} stands alone: take it out first")
    every = [*kept, *ours]
    return "".join(f"{line}\n" for line in every)


def install(
    driver: Driver, kind: str, environ: Mapping[str, str], *, remove: bool = False
) -> list[str]:
    """Install the driver for this user, or take it out; return what was done."""
    if kind == "systemd":
        return _install_units(driver, environ, remove=remove)
    command = "crontab" if kind == "cron" else "scrontab"
    before = _table(command, environ)
    after = merged(before, [] if remove else lines(driver, kind))
    if after == before:
        return [f"Nothing to change: {command} is as it should be"]
    # Both take a file; "-" is not known to all (scrontab: man page of Slurm 24.11).
    with tempfile.NamedTemporaryFile("w", suffix=f".{command}") as file:
        file.write(after)
        file.flush()
        _run([command, file.name], environ)
    if remove:
        return [f"Taken out of the {command} of this user"]
    told = [f"Written into the {command} of this user; `{command} -l` shows it"]
    if kind == "scrontab":
        told.append(f"It runs on compute nodes: {driver.state_dir} has to be seen from there")
    return told


def _table(command: str, environ: Mapping[str, str]) -> str:
    answer = process.run([command, "-l"], timeout_seconds=TIMEOUT_SECONDS, environ=environ)
    if answer.returncode == 0:
        return answer.stdout
    # "no crontab for alice": crontab says so on stderr, scrontab (24.11) on stdout.
    said = f"{answer.stdout}\n{answer.stderr}"
    if "no crontab for" in said:
        return ""
    told = said.strip() or f"exit code {answer.returncode}"
    raise errors.OrchestratorError(f"`{command} -l` failed: {told}")


def _run(argv: Sequence[str], environ: Mapping[str, str]) -> None:
    answer = process.run(argv, timeout_seconds=TIMEOUT_SECONDS, environ=environ)
    if answer.returncode != 0:
        told = answer.stderr.strip() or answer.stdout.strip()
        raise errors.OrchestratorError(f"`{shlex.join(argv)}` failed: {told}")


def _install_units(driver: Driver, environ: Mapping[str, str], *, remove: bool) -> list[str]:
    wanted = units(driver)
    systemctl = ["systemctl", "--user"]
    if remove:
        there = [path for path in wanted if path.exists()]
        if not there:
            return ["Nothing to change: no unit of ours is there"]
        _run([*systemctl, "disable", "--now", f"{UNIT}.timer"], environ)
        for path in there:
            path.unlink()
        _run([*systemctl, "daemon-reload"], environ)
        return [f"Took out {', '.join(str(path) for path in there)}"]
    for path, content in wanted.items():
        try:
            files.make_private_folder(path.parent, setting="XDG_CONFIG_HOME")
        except files.PrivateFolderError as exc:
            raise errors.OrchestratorError(str(exc.strerror)) from exc
        path.touch(mode=0o600)
        path.write_text(content)
    _run([*systemctl, "daemon-reload"], environ)
    _run([*systemctl, "enable", "--now", f"{UNIT}.timer"], environ)
    return [
        f"Wrote {', '.join(str(path) for path in wanted)}",
        "It runs while you are logged in; `loginctl enable-linger` lets it run without",
    ]
