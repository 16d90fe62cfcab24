"""FIFOs, devices and huge files where files are read: no command hangs or fills the memory.

A command that hangs is ended by command_line.TIMEOUT_SECONDS, as an error.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

JOB = ("--name", "demo", "--", "train.py")
KINDS = ("FIFO", "device", "huge", "socket", "folder")
#: Commands get so much memory: a line of /dev/zero does not fit.
MEMORY_KIB = 3 * 1024 * 1024
BOUNDED = ["sh", "-c", f'ulimit -v {MEMORY_KIB} && exec "$@"', "sh"]


def put(path: Path, kind: str) -> None:
    """Put something that is no small regular file in the place of a file."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    match kind:
        case "FIFO":
            os.mkfifo(path, 0o600)
        case "device":
            path.symlink_to("/dev/zero")
        case "huge":
            path.touch(0o600)
            os.truncate(path, 1 << 40)
        case "socket":
            import socket

            with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as made:
                made.bind(path.name)
        case "folder":
            path.mkdir()


@pytest.mark.parametrize("kind", KINDS)
def test_files_of_a_run_folder(cli, fake_slurm, kind: str) -> None:
    fake_slurm.configure(AccountingStorageType="accounting_storage/none")
    assert cli("submit", *JOB).code == 0
    (folder,) = cli.run_folders()
    job_id = fake_slurm.jobs()[0]["job_id"]
    # The claim shows that the attempt has started; its record and owner are read.
    (folder / "attempt.0.0").write_text(f"{job_id}\n")
    for name in ("owner.0", "exit.0.0.json", "environment.0.0", "result.json", "gpu.n1.csv"):
        put(folder / name, kind)
    for name in ("spec.json", "provenance.json", "script.sbatch"):
        put(folder / name, kind)
    fake_slurm.forget(job_id, sacct=True)
    for command in (
        ("status", "--all", "--refresh"),
        ("show", "@1"),
        ("show", "@1", "--environment"),
        ("explain", "@1"),
        ("metrics", "@1"),
        ("tick",),
        ("resubmit", "@1"),
        ("sweep", "report", "--jobs", "@1"),
        ("usage",),
    ):
        done = cli(*command, prefix=BOUNDED)
        assert "Traceback" not in done.err, (command, done.err)
    assert cli.rows()[0][1] != "COMPLETED"


@pytest.mark.parametrize("kind", KINDS)
def test_result_that_is_no_file_is_reported_and_left_out(cli, fake_slurm, kind: str) -> None:
    assert cli("submit", *JOB).code == 0
    (folder,) = cli.run_folders()
    fake_slurm.set_state(fake_slurm.jobs()[0]["job_id"], "COMPLETED")
    assert cli("status", "--refresh").code == 0
    put(folder / "result.json", kind)
    done = cli("baseline", "set", "b", "@1", prefix=BOUNDED)
    why = {
        "FIFO": "it is not a regular file but a FIFO",
        "device": "it is not a regular file but a character device",
        "huge": "it is larger than 16777216 bytes",
        "folder": "it is not a regular file but a folder",
    }
    if kind in why:
        assert f"{folder}/result.json is left out: {why[kind]}\n" in done.err


@pytest.mark.parametrize("kind", ["FIFO", "device", "huge", "folder"])
def test_files_of_the_state_folder(cli, fake_slurm, kind: str) -> None:
    cli.needs_file()
    assert cli("submit", *JOB).code == 0
    assert cli("tick").code == 0
    for name in ("controller.json", "orchestrator.db.lock", "local"):
        path = cli.state_dir / name
        if path.is_dir():
            shutil.rmtree(path)
        put(path, kind)
        for command in (("status",), ("tick",), ("serve", "--status"), ("db", "check")):
            done = cli(*command, prefix=BOUNDED)
            assert "Traceback" not in done.err, (name, command, done.err)
        if path.is_dir():
            path.rmdir()
        else:
            path.unlink()


@pytest.mark.parametrize("kind", ["FIFO", "device", "huge"])
def test_files_of_the_spool(cli, kind: str) -> None:
    local = ("--scheduler", "local", "--launcher", "python")
    (cli.folder / "train.py").write_text("")
    assert cli("submit", *local, *JOB).code == 0
    assert cli("wait", "local-1", "--timeout", "30").code == 0
    spool = cli.state_dir / "local"
    for path in (spool / "queue" / "7.json", spool / "last", spool / "requests" / "x.json"):
        before = path.read_bytes() if path.exists() else None
        put(path, kind)
        for command in (("status", "--refresh"), ("submit", *local, *JOB), ("tick",)):
            done = cli(*command, prefix=BOUNDED)
            assert "Traceback" not in done.err, (path.name, command, done.err)
        path.unlink()
        if before is not None:
            path.write_bytes(before)
    put(spool / "queue" / "7.json", kind)
    why = {
        "FIFO": "not a regular file but a FIFO",
        "device": "not a regular file but a character device",
        "huge": "larger than 16777216 bytes",
    }
    done = cli("submit", *local, *JOB)
    assert f"{spool}/queue/7.json is damaged ({why[kind]}); move it away\n" in done.err


@pytest.mark.parametrize("kind", ["FIFO", "device", "huge", "folder"])
@pytest.mark.parametrize(
    "command",
    [
        ("explain", "--log", "log", "--rules", "FILE"),
        ("sweep", "report", "--from", "FILE"),
        ("baseline", "set", "b", "--from", "FILE"),
        ("submit", "FILE.sbatch"),
        ("submit", "--name", "x", "--secrets", "FILE", "--", "x.py"),
    ],
)
def test_files_that_are_named(cli, fake_slurm, command: tuple[str, ...], kind: str) -> None:
    (cli.folder / "log").write_text("x\n")
    put(cli.folder / ("FILE.sbatch" if "FILE.sbatch" in command else "FILE"), kind)
    done = cli(*command, prefix=BOUNDED)
    assert done.code != 0
    assert "Traceback" not in done.err, done.err
    assert done.err.count("\n") < 10


def test_a_pipe_that_is_named_is_read(cli) -> None:
    rules = '[[cause]]\nname = "mine"\nregex = "boom"\nsummary = "it went boom"\n'
    csv = "job,gpus,nodes,throughput\n1,1,1,100\n2,2,1,190\n"
    (cli.folder / "log").write_text("boom\n")
    (cli.folder / "rules.toml").write_text(rules)
    (cli.folder / "study.csv").write_text(csv)
    done = cli("explain", "--log", "log", "--rules", "rules.toml")
    script = 'exec "$@" --rules <(cat rules.toml)'
    piped = cli("explain", "--log", "log", prefix=["bash", "-c", script, "bash"])
    assert (piped.code, piped.out) == (done.code, done.out)
    done = cli("sweep", "report", "--from", "study.csv", "--json")
    for script in (
        'exec "$@" --from <(sleep 0.2; cat study.csv) --json',
        'cat study.csv | "$@" --from /dev/stdin --json',
        'cat study.csv | "$@" --from - --json',
        'mkfifo made; cat study.csv >made & "$@" --from made --json',
    ):
        piped = cli("sweep", "report", prefix=["bash", "-c", script, "bash"])
        assert piped.code == done.code
        assert piped.err.replace("/dev/fd/63", "study.csv").count("\n") == done.err.count("\n")


def test_log_is_a_fifo_without_a_reader(cli) -> None:
    local = ("--scheduler", "local", "--launcher", "python")
    (cli.folder / "train.py").write_text("")
    os.mkfifo(cli.folder / "local-1.log")
    done = cli("submit", *local, "--output", str(cli.folder / "%j.log"), *JOB)
    assert done.code == 0, done.err
    ended = cli("wait", "local-1", "--timeout", "30", "--json")
    (item,) = ended.items
    assert item["reason"] == f"not started: {cli.folder}/local-1.log: No such device or address"


def test_a_database_that_is_a_fifo(cli) -> None:
    cli.needs_file()
    cli.state_dir.mkdir(parents=True, mode=0o700)
    os.mkfifo(cli.state_dir / "orchestrator.db", 0o600)
    done = cli("status")
    assert done.code == 1
    assert "Traceback" not in done.err
    assert subprocess.run(["test", "-p", cli.state_dir / "orchestrator.db"]).returncode == 0


def test_patterns_test_does_not_hang_on_a_fifo(cli) -> None:
    os.mkfifo(cli.folder / "silent", 0o600)
    done = cli("patterns", "test", "silent")
    message = "Invalid value for 'FILE': 'silent': a FIFO to which nothing was written for 5 s"
    assert (done.code, message in done.err) == (2, True), done.err
