"""Runs the orchestrator command as a process with its own home folder."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import pytest

from tests import contract, postgresql, zygote

CHECKOUT = Path(__file__).resolve().parents[2]
#: A process that takes longer hangs.
TIMEOUT_SECONDS = 120.0
#: In front of a command: it is killed when this process ends, however that happens.
TIED = ("setpriv", "--pdeathsig", "KILL", "--")
PROGRESS = re.compile(
    r"^(?:Asking Slurm|Submitting|Looking at the working tree|Taking a snapshot of the code|"
    r"Reading the log of \S+|Sending the code to \S+|"
    r"Looking for what may be removed|Removing|"
    r"(?:Checking|Copying|Upgrading) the (?:backup|database))(?: \(\w+\))? [.]{3}(?: \d+ s)?\n",
    re.MULTILINE,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Done:
    """How a process ended and what it wrote."""

    code: int
    out: str
    #: less the progress, which depends on how busy the machine is
    err: str
    #: lines such as "Asking Slurm (squeue) ..."
    progress: list[str]

    @property
    def items(self) -> list[dict[str, Any]]:
        """The items of a JSON envelope."""
        envelope = json.loads(self.out)
        assert envelope["schema"] == "orchestrator/v1"
        assert list(envelope) == ["schema", "kind", "items"]
        contract.check(envelope)
        return envelope["items"]


class CommandLine:
    """Runs `orchestrator ARGV` as a user with an empty home would, with the fake Slurm on PATH."""

    def __init__(
        self,
        folder: Path,
        environ: Mapping[str, str],
        pycache: Path,
        url: str | None = None,
        forking: zygote.Zygote | None = None,
    ) -> None:
        """Take the URL of an empty database; none: a file in the home, as a user has it."""
        self._forking = forking
        self.home = folder / "home"
        self.folder = folder / "work"
        self.runs_dir = self.home / "orchestrator-runs"
        self.state_dir = self.home / ".local" / "state" / "orchestrator"
        self._file = self.state_dir / "orchestrator.db"
        self.url = url
        self.home.mkdir(mode=0o700)
        self.folder.mkdir()
        self.environ = {
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "USER": "alice",
            "XDG_CONFIG_DIRS": str(folder / "no-site"),
            "PYTHONPATH": str(CHECKOUT),
            # Half of a short command's time is compiling, where bytecode is not kept.
            "PYTHONPYCACHEPREFIX": str(pycache),
            "ORCHESTRATOR_POLL_FLOOR_SECONDS": "1",
            **({"ORCHESTRATOR_DATABASE": url} if url else {}),
            **environ,
        }

    @property
    def database(self) -> Path:
        """The database file, for tests of what only a file has."""
        self.needs_file()
        return self._file

    def needs_file(self) -> None:
        """Skip what only a database in the state folder shows."""
        if self.url:
            pytest.skip("looks into the database file")

    @property
    def location(self) -> str | Path:
        """Where the database is, for a Store."""
        return self.url or self._file

    def start(
        self,
        *argv: str | Path,
        prefix: Sequence[str] = (),
        cwd: Path | None = None,
        **environ: str,
    ) -> subprocess.Popen[str]:
        """Start the command; the caller ends it. Its stdout and stderr are pipes."""
        command = [*prefix, sys.executable, "-m", "orchestrator", *map(str, argv)]
        return self.start_program(command, cwd, **environ)

    def run(self, command: Sequence[str], **environ: str) -> Done:
        """Run another command in the same environment."""
        return finish(self.start_program(command, **environ))

    def start_program(
        self, command: Sequence[str], cwd: Path | None = None, **environ: str
    ) -> subprocess.Popen[str]:
        """Start another command in the same environment; the caller ends it."""
        return subprocess.Popen(
            [*TIED, *command],
            cwd=cwd or self.folder,
            env={**self.environ, **environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            start_new_session=True,
        )

    def __call__(
        self,
        *argv: str | Path,
        prefix: Sequence[str] = (),
        cwd: Path | None = None,
        **environ: str,
    ) -> Done:
        """Run the command to its end."""
        if self._forking is None or prefix or not zygote.can_fork(environ):
            return finish(self.start(*argv, prefix=prefix, cwd=cwd, **environ))
        return self._fork(self._request(argv, cwd, environ))

    def bounded(self, *argv: str | Path, memory_bytes: int) -> Done:
        """Run the command to its end in so much address space."""
        request = self._request(argv, None, {})
        return self._fork(dataclasses.replace(request, memory_bytes=memory_bytes))

    def _fork(self, request: zygote.Request) -> Done:
        assert self._forking is not None
        code, out, err = self._forking.run(request, TIMEOUT_SECONDS)
        return _done(code, *(text.decode(errors="surrogateescape") for text in (out, err)))

    def on_terminal(self, *argv: str | Path, **environ: str) -> tuple[int, bytes, bytes]:
        """Run the command to its end; what it wrote to a terminal as stdout, and as stderr."""
        assert self._forking is not None
        request = self._request(argv, None, {"TERM": "xterm", **environ})
        return self._forking.run(request, TIMEOUT_SECONDS, terminal=True)

    def _request(
        self, argv: Sequence[str | Path], cwd: Path | None, environ: Mapping[str, str]
    ) -> zygote.Request:
        return zygote.Request(
            argv=[str(CHECKOUT / "orchestrator" / "__main__.py"), *map(str, argv)],
            environ={**self.environ, **environ},
            folder=str(cwd or self.folder),
        )

    def spec(self, text: str, name: str = "job.toml") -> Path:
        """Write a spec file."""
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return path

    def rows(self, statement: str = "SELECT row, state FROM jobs ORDER BY row") -> list[tuple]:
        """Ask the database behind the command's back; no database has no rows."""
        if self.url:
            return postgresql.ask(self.url, statement)
        if not self.database.exists():
            return []
        with sqlite3.connect(f"file:{self.database}?mode=ro", uri=True) as connection:
            result = connection.execute(statement).fetchall()
        connection.close()
        return result

    def wait_until(self, happened: Callable[[], object], what: str = "it") -> None:
        """Look again and again until it happened."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not happened():
            assert time.monotonic() < deadline, f"waited in vain for {what}"
            time.sleep(0.05)

    def run_folders(self) -> list[Path]:
        """Return the run folders there are."""
        return sorted(self.runs_dir.iterdir()) if self.runs_dir.is_dir() else []


def finish(process: subprocess.Popen[str]) -> Done:
    """Wait for a process and return what it wrote."""
    try:
        out, err = process.communicate(timeout=TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        raise AssertionError(f"still running after {TIMEOUT_SECONDS} s: {out}\n{err}") from None
    return _done(process.returncode, out, err)


def _done(code: int, out: str, err: str) -> Done:
    return Done(
        code=code,
        out=out,
        err=PROGRESS.sub("", err),
        progress=[item[0] for item in PROGRESS.finditer(err)],
    )


def read_to(stream: IO[str], text: str) -> str:
    """Return the next line that holds `text`; those before it are dropped."""
    for line in stream:
        if text in line:
            return line
    raise AssertionError(f"ended without {text!r}")
