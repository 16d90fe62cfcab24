"""The web server while its disk is full, and while another process holds the database."""

from __future__ import annotations

import contextlib
import re
import sqlite3
import subprocess
from pathlib import Path

import pytest

from tests.flow import command_line, web_server
from tests.flow.conftest import FakeSlurm
from tests.flow.test_web_actions import asked, done, problem, result, send

# In a mount namespace of its own, which ends with the server.
SMALL_DISK = """\
mount -t tmpfs -o size=1m,mode=700 small "$1" || exit 99
shift
exec "$@"
"""


class Disk:
    """A small file system that only the server, and commands with this prefix, see."""

    def __init__(self, server: web_server.Server, folder: Path) -> None:
        pid = server.process.pid
        self.prefix = ["nsenter", "--target", str(pid), "--mount"]
        self._ballast = Path(f"/proc/{pid}/root{folder}/ballast")

    def fill(self) -> None:
        with self._ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))

    def free(self) -> None:
        self._ballast.unlink()


@pytest.fixture
def folder(cli: command_line.CommandLine) -> Path:
    """The state folder, which a small disk is mounted on."""
    cli.needs_file()
    made = cli.home / "small"
    made.mkdir()
    probe = ["unshare", "--mount", "mount", "-t", "tmpfs", "none", str(made)]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("a full disk needs a small tmpfs, and only root may mount one")
    cli.environ["ORCHESTRATOR_STATE_DIR"] = str(made)
    return made


def state(server: web_server.Server) -> str:
    """Return the state that the page of the job shows."""
    (shown,) = re.findall(r'<span class="state \w*">(\w+)</span>', server.get("/jobs/1").text)[:1]
    return shown


def test_a_full_disk(
    cli: command_line.CommandLine, fake_slurm: FakeSlurm, folder: Path, tmp_path: Path
) -> None:
    prefix = ["unshare", "--mount", "sh", "-c", SMALL_DISK, "sh", str(folder)]
    options = ("--socket", tmp_path / "web.sock", "--allow-actions")
    with web_server.started(cli, *options, prefix=prefix) as server:
        disk = Disk(server, folder)
        spec = cli.spec(web_server.JOB.format(name="demo"))
        assert cli("submit", spec, prefix=disk.prefix).code == 0
        assert state(server) == "PENDING"
        disk.fill()
        fake_slurm.set_state(1, "RUNNING")
        full = (
            f"No space left on device: {folder}/orchestrator.db. Nothing was stored. "
            "Free some space or move state_dir to another disk, then try again."
        )
        warning = f'<p class="message warning">Not updated: {full}</p>'
        cli.wait_until(lambda: warning in server.get("/").text, "the warning")
        for url in ("/jobs/1", "/controller"):
            assert warning in server.get(url).text, url
        for url in ("/compare?job=1", "/sweeps", "/graphs", "/schedules", "/nodes"):
            assert server.get(url).status == 200, url
        assert state(server) == "PENDING"
        page = result(server, send(server, asked(server, "/actions/hold?job=1")))
        assert (problem(page), done(page)) == (full, [])
        assert ["hold", "1"] not in fake_slurm.calls("scontrol")
        disk.free()
        cli.wait_until(lambda: state(server) == "RUNNING", "the state")
        page = result(server, send(server, asked(server, "/actions/cancel?job=1")))
        assert done(page) == ["1 is CANCELLED"]
        assert "Not updated" not in server.get("/").text
        checked = cli("db", "check", prefix=disk.prefix)
        assert (checked.code, checked.err) == (0, "The database is intact.\n")
        # Each page with the problem has it; the terminal has it once.
        assert server.stop() == (0, f"Not updated: {full}\n")


def test_a_locked_database(
    cli: command_line.CommandLine, fake_slurm: FakeSlurm, tmp_path: Path
) -> None:
    cli.needs_file()
    assert cli("submit", cli.spec(web_server.JOB.format(name="demo"))).code == 0
    with web_server.started(cli, "--socket", tmp_path / "web.sock", "--allow-actions") as server:
        question = asked(server, "/actions/hold?job=1")
        with contextlib.closing(sqlite3.connect(cli.location, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            for url in ("/", "/jobs/1", "/controller"):
                assert server.get(url).status == 200, url
            sent = send(server, question)
            assert server.get(sent.headers["Location"]).headers["Refresh"] == "2"
            assert ["hold", "1"] not in fake_slurm.calls("scontrol")
            other.execute("ROLLBACK")
        assert done(result(server, sent)) == ["1 is PENDING (JobHeldUser)"]
