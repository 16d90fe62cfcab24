"""Local jobs run only as submitted: changes of their queue entries and run folders are detected."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.flow import command_line, test_local

LINE = test_local.LINE
submit, running, ended, job = (
    test_local.submit,
    test_local.running,
    test_local.ended,
    test_local.job,
)

here = test_local.here
EVE = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to act as a second user")

Change = Callable[[dict], None]


def local(here: command_line.CommandLine) -> Path:
    return here.state_dir / "local"


def rewrite(path: Path, change: Change) -> None:
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


def request_of(here: command_line.CommandLine, job_id: str) -> Path:
    entry = test_local.entry_of(here, job_id)
    assert entry is not None
    return local(here) / "requests" / f"{entry.token}.json"


def until_go(here: command_line.CommandLine) -> str:
    """Submit a job that runs until `go`; return its ID."""
    return submit(here, f"echo ready; while [ ! -e {here.home}/go ]; do sleep 0.1; done")


def waiting(here: command_line.CommandLine, *options: str) -> tuple[str, str]:
    """Submit a job that runs until `go`, and one behind it; return their IDs."""
    first = until_go(here)
    second = submit(here, f"touch {here.home}/ran", *options)
    running(here, first)
    return first, second


def go(here: command_line.CommandLine) -> None:
    (here.home / "go").touch()


def refused(here: command_line.CommandLine, *job_ids: str) -> str:
    """Return why jobs were not started, a line each; the next one in the line runs nevertheless."""
    behind = submit(here, f"touch {here.home}/behind")
    go(here)
    assert ended(here, behind) == ("COMPLETED", "0:0")
    assert [ended(here, job_id) for job_id in job_ids] == [("FAILED", "0:53")] * len(job_ids)
    assert not (here.home / "ran").exists() and not (here.home / "evil").exists()
    return "\n".join(str(job(here, job_id)["reason"]) for job_id in job_ids)


def evil(here: command_line.CommandLine) -> str:
    """Return the path of a script that leaves a trace."""
    path = here.home / "evil.sh"
    path.write_text(f"#!/bin/bash\ntouch {here.home}/evil\n")
    return str(path)


def test_edited_requests(here):
    script = evil(here)
    changes: list[Change] = [
        lambda data: data.update(environ={**data["environ"], "BASH_ENV": script}),
        lambda data: data.update(arguments=[script]),
        lambda data: data.update(folder="/"),
        lambda data: data.update(script=script),
        lambda data: data.update(kill_wait_seconds=10**6),
        lambda data: data.update(of_tomorrow=script),
    ]
    until_go(here)
    job_ids = [submit(here, f"touch {here.home}/ran") for _ in changes]
    paths = [request_of(here, job_id) for job_id in job_ids]
    for path, change in zip(paths, changes, strict=True):
        rewrite(path, change)
    assert refused(here, *job_ids).splitlines() == [
        f"not started: {path} was changed after the submission" for path in paths
    ]


def test_edited_entries(here):
    keys = here.home / "authorized_keys"
    changes: dict[str, Change] = {
        "stdout_path": lambda data: data.update(stdout_path=str(keys)),
        "stderr_path": lambda data: data.update(stderr_path=str(keys)),
        "time_limit_seconds": lambda data: data.update(time_limit_seconds=1),
        "devices, given": lambda data: data.update(devices=["7"]),
        "name": lambda data: data.update(name=f"$(touch {keys}).{data['token']}"),
        "raw_number": lambda data: data.update(raw_number=999),
    }
    until_go(here)
    job_ids = [submit(here, f"touch {here.home}/ran") for _ in changes]
    queue = local(here) / "queue"
    paths = [queue / f"{job_id.removeprefix('local-')}.json" for job_id in job_ids]
    for path, change in zip(paths, changes.values(), strict=True):
        rewrite(path, change)
    assert refused(here, *job_ids).splitlines() == [
        f"not started: {path} was changed after the submission ({named})"
        for path, named in zip(paths, changes, strict=True)
    ]
    assert not keys.exists(), "nothing is written to a log that is not the job's"


@pytest.mark.parametrize(
    ("name", "value"),
    [("restart_count", "a[$(touch {})]"), ("given", ["0", 7]), ("keeper", {"pid": -1})],
)
def test_an_entry_of_wrong_types_is_named(here, name, value):
    _, job_id = waiting(here)
    path = local(here) / "queue" / f"{job_id.removeprefix('local-')}.json"
    before = path.read_text()
    rewrite(path, lambda data: data.update({name: value}))
    done = here("status", "--refresh")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(f"Error: {path} is damaged (")
    path.write_text(before)
    go(here)
    assert ended(here, job_id) == ("COMPLETED", "0:0")


def test_a_dropped_request(here):
    """What another user puts into the line is no job of the database."""
    _, job_id = waiting(here)
    source = request_of(here, job_id)
    token = f"{source.stem[:4]}evil0001"
    data = json.loads(source.read_text())
    folder = here.runs_dir / f"x.{token}"
    folder.mkdir(mode=0o700)
    shutil.copy(evil(here), folder / "script.sbatch")
    named = {"token": token, "name": f"x.{token}"}
    paths = {"run_dir": str(folder), "script": str(folder / "script.sbatch")}
    dropped = {**data, **named, **paths, "number": 50, "dependency": ""}
    source.with_name(f"{token}.json").write_text(json.dumps(dropped))
    entry = json.loads((local(here) / "queue" / "2.json").read_text())
    log = str(folder / "local-50.out")
    forged = {**entry, **named, "number": 50, "raw_number": 50, "stdout_path": log}
    (local(here) / "queue" / "50.json").write_text(json.dumps(forged))
    go(here)
    assert ended(here, job_id) == ("COMPLETED", "0:0")
    machine = test_local.machine_of(here)
    here.wait_until(lambda: machine.spool.ended_entry("50"), "the end of what was dropped")
    (how,) = machine.spool.ended_entry("50").ended
    assert (how.state, how.exit_signal) == ("FAILED", 53)
    database = here.database
    assert how.reason == (
        f"not started: the job is not in {database}; submit it again if it is yours"
    )
    assert not (here.home / "evil").exists() and not Path(log).exists()


def test_a_job_is_not_run_again_under_another_number(here):
    first = until_go(here)
    submit(here, f"echo again >>{here.home}/ledger")
    running(here, first)
    path = local(here) / "queue" / "2.json"
    copied = {**json.loads(path.read_text()), "number": 60, "raw_number": 60}
    (local(here) / "queue" / "60.json").write_text(json.dumps(copied))
    go(here)
    machine = test_local.machine_of(here)
    here.wait_until(lambda: machine.spool.ended_entry("60"), "the end of the copy")
    (how,) = machine.spool.ended_entry("60").ended
    assert how.reason == (
        f"not started: {path.with_name('60.json')} was changed after the submission "
        "(number, raw_number, stdout_path)"
    )
    here.wait_until(lambda: machine.spool.ended_entry("2"), "the end of the job")
    assert (here.home / "ledger").read_text() == "again\n"


@pytest.mark.both_databases
def test_changed_request_is_refused_in_either_database(here):
    _, job_id = waiting(here)
    third = submit(here, "true")
    rewrite(request_of(here, job_id), lambda data: data.update(folder="/"))
    path = request_of(here, job_id)
    assert refused(here, job_id) == f"not started: {path} was changed after the submission"
    assert ended(here, third) == ("COMPLETED", "0:0")


def test_a_replaced_script_and_another_interpreter(here):
    _, job_id = waiting(here)
    script = Path(job(here, job_id)["run_dir"], "script.sbatch")
    script.write_text(script.read_text().replace("#!/bin/bash", f"#!/bin/bash {evil(here)}", 1))
    message = f"not started: {script} is not the script that was submitted"
    assert refused(here, job_id) == message


def test_a_replaced_run_folder(here):
    """Another user may rename it where the folder above is theirs to write, and put one there."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to make a folder of another user's")
    _, job_id = waiting(here)
    folder = Path(job(here, job_id)["run_dir"])
    folder.rename(folder.with_name("away"))
    shutil.copytree(folder.with_name("away"), folder)
    os.chown(folder, 65534, 65534)
    assert refused(here, job_id) == (
        f"not started: {folder} belongs to another user, and submit did not create it"
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: folder.chmod(0o770), "can be written by others: chmod go-w it"),
        (
            lambda folder: folder.joinpath("script.sbatch").chmod(0o666),
            "/script.sbatch can be written by others: chmod go-w it",
        ),
    ],
    ids=["folder", "script"],
)
def test_a_run_folder_that_others_can_write(here, change, message):
    _, job_id = waiting(here)
    folder = Path(job(here, job_id)["run_dir"])
    change(folder)
    between = "" if message.startswith("/") else " "
    assert refused(here, job_id) == f"not started: {folder}{between}{message}"


def test_a_run_folder_that_is_a_link(here):
    _, job_id = waiting(here)
    folder = Path(job(here, job_id)["run_dir"])
    folder.rename(folder.with_name("away"))
    folder.symlink_to("away")
    assert refused(here, job_id) == f"not started: {folder}: Not a directory"


@needs_root
def test_a_log_that_is_a_link_of_another_user(here):
    bashrc = here.home / ".bashrc"
    bashrc.write_text("")
    _, job_id = waiting(here)
    log = Path(job(here, job_id)["stdout_path"])
    log.symlink_to(bashrc)
    os.lchown(log, EVE, EVE)
    assert refused(here, job_id) == (
        f"not started: its log {log} is a symbolic link of user {EVE}; remove it, or choose "
        "another folder for the log"
    )
    assert bashrc.read_text() == ""


def test_a_log_that_is_a_link_of_the_user(here):
    _, job_id = waiting(here)
    log = Path(job(here, job_id)["stdout_path"])
    log.symlink_to(here.home / "elsewhere")
    go(here)
    assert ended(here, job_id) == ("COMPLETED", "0:0")
    assert (here.home / "elsewhere").read_text().startswith("=== orchestrator ")


def test_a_database_whose_folder_others_can_write_meanwhile(here):
    here.needs_file()
    path = here.home / "elsewhere" / "o.db"
    settings = here.home / ".config" / "orchestrator" / "config.toml"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text(f'database = "sqlite:///{path}"\n')
    _, job_id = waiting(here)
    path.parent.chmod(0o777)
    go(here)
    here.wait_until(lambda: getattr(test_local.entry_of(here, job_id), "note", ""), "the note")
    entry = test_local.entry_of(here, job_id)
    assert entry is not None
    assert entry.note.startswith(f"waits for the database: {path.parent} is not used: ")
    path.parent.chmod(0o700)
    assert ended(here, job_id) == ("COMPLETED", "0:0")


def test_a_requeue_after_the_script_was_replaced(here):
    job_id = submit(here, f"touch {here.home}/ran")
    assert ended(here, job_id) == ("COMPLETED", "0:0")
    (here.home / "ran").unlink()
    script = Path(job(here, job_id)["run_dir"], "script.sbatch")
    good = script.read_text()
    script.write_text(f"#!/bin/bash\ntouch {here.home}/evil\n")
    assert here("requeue", job_id).code == 0
    assert refused(here, job_id) == f"not started: {script} is not the script that was submitted"
    script.write_text(good)
    assert here("requeue", job_id).code == 0
    assert ended(here, job_id) == ("COMPLETED", "0:0")
    assert (here.home / "ran").exists()
    again = here("resubmit", job_id, "--parsable")
    assert ended(here, again.out.strip()) == ("COMPLETED", "0:0")


def test_a_task_of_an_array(here):
    first = until_go(here)
    array = submit(here, "true", "--array-size", "3")
    running(here, first)
    number = array.removeprefix("local-")
    forged = local(here) / "queue" / f"{number}_1.json"
    rewrite(forged, lambda data: data.update(task=7))
    assert here("status", "--refresh").err.startswith(f"Error: {forged} is damaged (")
    forged.rename(forged.with_name(f"{number}_7.json"))
    go(here)
    for task in (0, 2):
        assert ended(here, f"{array}_{task}") == ("COMPLETED", "0:0")
    machine = test_local.machine_of(here)
    here.wait_until(lambda: machine.spool.ended_entry(f"{number}_7"), "the end of the forged task")
    (how,) = machine.spool.ended_entry(f"{number}_7").ended
    assert how.reason.endswith("submit it again if it is yours")


def test_a_script_reads_itself_and_knows_its_folder(here):
    line = 'tail -n 1 "$0" | wc -c; cd "$(dirname "$BASH_SOURCE")" && pwd -P; basename "$0"'
    job_id = submit(here, line)
    assert ended(here, job_id) == ("COMPLETED", "0:0")
    _, size, folder, name = here("logs", job_id).out.splitlines()
    assert int(size) > 1
    assert (folder, name) == (job(here, job_id)["run_dir"], "script.sbatch")


def test_a_job_that_an_earlier_version_put_into_the_line(here):
    """Earlier versions stored no hash and no umask."""
    _, job_id = waiting(here)
    with contextlib.closing(sqlite3.connect(here.database)) as connection, connection:
        connection.execute("UPDATE submissions SET request_sha256 = NULL")
    for path in (local(here) / "requests").glob("*.json"):
        data = json.loads(path.read_text())
        del data["umask"]
        path.write_text(json.dumps({**data, "format": 0}))
    go(here)
    assert ended(here, job_id) == ("COMPLETED", "0:0"), "nobody else can have written its request"


def test_the_job_waits_for_the_database(here):
    here.needs_file()
    _, job_id = waiting(here)
    away = here.database.with_name("away")
    here.database.rename(away)
    go(here)

    def note() -> str:
        entry = test_local.entry_of(here, job_id)
        assert entry is not None, "it started without the database"
        return entry.note

    here.wait_until(note, "the job to wait")
    assert note() == f"waits for the database: there is no database {here.database}"
    away.rename(here.database)
    assert ended(here, job_id) == ("COMPLETED", "0:0")


def test_a_job_that_waits_for_the_database_can_be_cancelled(here):
    here.needs_file()
    _, job_id = waiting(here)
    away = here.database.with_name("away")
    here.database.rename(away)
    go(here)
    machine = test_local.machine_of(here)
    here.wait_until(lambda: getattr(test_local.entry_of(here, job_id), "note", ""), "the note")
    away.rename(here.database)
    entry = test_local.entry_of(here, job_id)
    if entry is not None:
        machine.cancel(job_id, entry.name)
    assert ended(here, job_id) in (("CANCELLED", "0:15"), ("COMPLETED", "0:0"))


SECRETS = {
    "GITHUB_PAT": "planted-1",
    "OPENAI_KEY": "planted-2",
    "DATABASE_URL": "postgresql://u:planted-3@h/d",
    "SENTRY_DSN": "planted-4",
    "https_proxy": "http://u:planted-5@proxy:3128",
    "AWS_PROFILE_X": "planted-6",
    "BASH_FUNC_deploy%%": "() { echo planted-7; }",
    "APPTAINER_DOCKER_PASSWORD": "planted-8",
    "MY_OWN": "planted-9",
}
RETRY = """
[job]
name = "x"
[launch]
launcher = "python"
command = "true"
[retry]
max_retries = 2
"""


def planted(here: command_line.CommandLine) -> str:
    """Return which files hold a planted value."""
    folders = [str(folder) for folder in (here.state_dir, here.runs_dir) if folder.exists()]
    done = subprocess.run(
        ["grep", "-r", "-l", "-a", "planted-", *folders],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


def test_only_named_variables_of_the_shell_are_stored(here):
    spec = here.spec(RETRY)
    # Only what the program, or a library, plausibly reads is worth a message.
    message = (
        "Variables of this shell that are not passed on (a local job may start later): 3 "
        "(AWS_PROFILE_X, MY_OWN, OPENAI_KEY); pass one with --inherit NAME\n"
    )
    (here.folder / "read.py").write_text("import os\nprint(os.environ.get('MY_OWN'))\n")
    line = 'python read.py --key "$OPENAI_KEY"'
    done = here("submit", "--name", "x", *LINE, "--command", line, **SECRETS)
    assert (done.code, done.err) == (0, message)
    given = ("--inherit", "OPENAI_KEY", "--inherit", "AWS_PROFILE_X", "--set")
    given = (*given, "environment.variables={ MY_OWN = '1' }")
    done = here("submit", "--name", "x", *LINE, *given, "--command", line)
    assert (done.code, done.err) == (0, "")
    few = {name: SECRETS[name] for name in ("MY_OWN", "SENTRY_DSN", "OPENAI_KEY")}
    for program in ("true", "./read.sh"):
        done = here("submit", "--name", "x", *LINE, "--", program, **few)
        assert (done.code, done.err) == (0, "")
    assert here("submit", spec, "--scheduler", "local", **SECRETS).code == 0
    added = ("schedule", "add", "nightly", spec, "--cron", "0 2 * * *", "--scheduler", "local")
    done = here(*added, **SECRETS)
    assert done.code == 0, done.err
    graph = here.spec('[graph]\nname = "g"\n[graph.nodes.one]\nspec = "job.toml"\n', "graph.toml")
    done = here("graph", "submit", graph, **SECRETS)
    assert done.code == 0, done.err
    assert planted(here) == ""


def test_a_variable_that_the_spec_names_reaches_the_job(here):
    line = 'echo "$OPENAI_KEY $MY_OWN $GITHUB_PAT."'
    named = ("--inherit", "OPENAI_KEY", "--inherit", "MY_OWN")
    done = here("submit", "--name", "x", *LINE, *named, "--command", line, **SECRETS)
    assert done.code == 0, done.err
    assert ended(here, "local-1") == ("COMPLETED", "0:0")
    assert here("logs", "local-1").out.splitlines()[1] == "planted-2 planted-9 ."
