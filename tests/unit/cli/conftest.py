"""Commands in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click import testing

from orchestrator import cli, errors
from tests.flow import command_line

#: Runs a command; returns its exit code, and what it writes to stdout and stderr.
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def home(tmp_path: Path, database_file: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with an empty database, which is the current folder."""
    for name, value in {
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "XDG_CONFIG_DIRS": str(tmp_path / "none"),
        "ORCHESTRATOR_STATE_DIR": str(tmp_path),
        "TZ": "UTC",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(home: Path) -> Run:
    def call(*argv: object) -> tuple[int, str, str]:
        done = testing.CliRunner().invoke(cli.cli, list(map(str, argv)), prog_name="orchestrator")
        if isinstance(done.exception, errors.OrchestratorError):
            return done.exception.exit_code, done.stdout, f"Error: {done.exception}\n"
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        # On a busy machine commands report what takes long.
        return done.exit_code, done.stdout, command_line.PROGRESS.sub("", done.stderr)

    return call
