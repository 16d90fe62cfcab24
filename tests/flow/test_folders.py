"""Folders that another user can change are not trusted; a second user tries."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.files import run_folder
from tests import zygote
from tests.flow import command_line

EVE = 65534
LOCAL = ("--scheduler", "local", "--launcher", "python")
JOB = ("--name", "demo", "--", "train.py")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to act as a second user")


@pytest.fixture
def here(
    tmp_path: Path, path_without_slurm: str, pycache: Path, forking: zygote.Zygote
) -> Iterator[command_line.CommandLine]:
    """The orchestrator command on a machine without Slurm."""
    environ = {"PATH": path_without_slurm, "CUDA_VISIBLE_DEVICES": ""}
    yield command_line.CommandLine(tmp_path, environ, pycache, forking=forking)


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A folder as /scratch is: everybody may add to it, and change only what is their own."""
    with tempfile.TemporaryDirectory(prefix="scratch-") as folder:
        os.chmod(folder, 0o1777)
        yield Path(folder)


def as_eve(*command: str | Path) -> None:
    subprocess.run(list(map(str, command)), check=True, user=EVE, group=EVE, extra_groups=[])


def name_of(uid: int) -> str:
    done = subprocess.run(["id", "-un", str(uid)], capture_output=True, text=True, check=False)
    return done.stdout.strip() or f"ID {uid}"


def refusal(path: Path, exposed: Path, setting: str) -> str:
    return (
        f"{path} is not used: {exposed} belongs to user {name_of(EVE)}, so others could change "
        f'what your jobs run. Accept it with `shared_folders = ["{exposed}"]` in your own '
        f"configuration, or set {setting} to a folder of your own."
    )


def write_script(here: command_line.CommandLine, text: str) -> None:
    (here.folder / "train.py").write_text(text)


@needs_root
@pytest.mark.parametrize(
    "command",
    [
        ("status",),
        ("submit", *LOCAL, *JOB),
        ("tick",),
        ("db", "check"),
        ("wait", "1"),
        ("schedule", "list"),
    ],
)
def test_another_users_state_dir_is_refused(here, scratch, command) -> None:
    here.needs_file()
    state = scratch / "state"
    as_eve("mkdir", "-m", "0755", state, state / "local")
    done = here(*command, ORCHESTRATOR_STATE_DIR=str(state))
    assert (done.code, done.out) == (1, "")
    assert done.err == f"Error: {refusal(state, state, 'state_dir')}\n"
    assert sorted(path.name for path in state.rglob("*")) == ["local"]
    assert here.run_folders() == []


@needs_root
def test_a_state_dir_below_another_users_folder_is_refused(here, scratch) -> None:
    here.needs_file()
    as_eve("mkdir", "-m", "0755", scratch / "open")
    state = scratch / "open" / "state"
    os.mkdir(state, 0o700)
    done = here("status", ORCHESTRATOR_STATE_DIR=str(state))
    assert done.err == f"Error: {refusal(state, scratch / 'open', 'state_dir')}\n"
    assert list(state.iterdir()) == []


@needs_root
def test_a_spool_that_another_user_made_is_refused(here, scratch) -> None:
    # The database is elsewhere: the spool alone is eve's.
    as_eve("mkdir", "-m", "0755", scratch / "state")
    url = here.url or f"sqlite:///{here.home}/orchestrator.db"
    variables = {"ORCHESTRATOR_STATE_DIR": str(scratch / "state"), "ORCHESTRATOR_DATABASE": url}
    write_script(here, "print('ran')")
    done = here("submit", *LOCAL, *JOB, **variables)
    assert done.code == 1
    message = refusal(scratch / "state" / "local", scratch / "state", "state_dir")
    assert message in done.err
    assert list((scratch / "state").iterdir()) == []


@needs_root
def test_another_users_runs_dir_is_refused(here, scratch) -> None:
    as_eve("mkdir", "-m", "0755", scratch / "open")
    runs = scratch / "open" / "runs"
    done = here("submit", *LOCAL, *JOB, ORCHESTRATOR_RUNS_DIR=str(runs))
    assert done.code == 1
    message = refusal(runs, scratch / "open", "runs_dir")
    assert done.err.endswith(f"Error: {message} Nothing was submitted.\n")
    assert list((scratch / "open").iterdir()) == []


@needs_root
def test_another_users_templates_are_refused(here, scratch) -> None:
    templates = scratch / "templates"
    as_eve("mkdir", templates)
    as_eve("sh", "-c", f"echo 'touch /tmp/owned' > {templates}/job.sbatch.j2")
    done = here("submit", *LOCAL, *JOB, ORCHESTRATOR_TEMPLATES_DIR=str(templates))
    assert done.code == 3
    message = refusal(templates / "job.sbatch.j2", templates, "templates_dir")
    assert done.err == f"Error: {message}\n"


@needs_root
def test_a_database_in_a_folder_for_everybody_is_refused(here, scratch) -> None:
    # Beside it anybody could put a journal, which SQLite plays back.
    path = scratch / "jobs.db"
    done = here("status", ORCHESTRATOR_DATABASE=f"sqlite:///{path}")
    assert done.err == (
        f"Error: {scratch} is not used: {scratch} can be written by every user, so others could "
        f"change what your jobs run. Run `chmod go-w {scratch}`, or set database to a "
        "folder of your own.\n"
    )
    assert list(scratch.iterdir()) == []


@needs_root
def test_a_script_that_was_replaced_is_not_started(here, scratch) -> None:
    runs = scratch / "mine" / "runs"
    write_script(here, "print('ran')")
    (here.folder / "long.py").write_text("import time; time.sleep(600)")
    variables = {"ORCHESTRATOR_RUNS_DIR": str(runs)}
    # One slot: the second job waits for the first.
    assert here("submit", *LOCAL, "--name", "long", "--", "long.py", **variables).code == 0
    assert here("submit", *LOCAL, *JOB, **variables).code == 0
    # Its user opens the folder, and eve puts a job of hers in the place of the one that waits.
    os.chmod(scratch / "mine", 0o777)
    (folder,) = runs.glob("demo.*")
    as_eve("mv", runs, scratch / "mine" / "old")
    as_eve("mkdir", "-p", folder)
    script = folder / "script.sbatch"
    as_eve("sh", "-c", f"printf '#!/bin/sh\\ntouch {scratch}/owned\\n' > {script}")
    assert here("cancel", "local-1", **variables).code == 0
    ended = here("wait", "local-2", "--timeout", "30", "--json", **variables)
    (item,) = ended.items
    assert item["state"] == "FAILED"
    assert item["reason"] == (
        f"not started: {folder} belongs to another user, and submit did not create it"
    )
    assert not (scratch / "owned").exists()


@needs_root
def test_a_shared_project_folder(cli, fake_slurm, scratch) -> None:
    """The folder of a project: its head owns it, its group may write, and the user accepts it."""
    project = scratch / "nn1234k"
    as_eve("mkdir", "-m", "2770", project)
    config = cli.home / ".config" / "orchestrator" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(
        f'shared_folders = ["{project}"]\nruns_dir = "{project}/alice/runs"\n'
        f'state_dir = "{project}/alice/state"\ntemplates_dir = "{project}/templates"\n'
    )
    (project / "templates").mkdir()
    (project / "templates" / "job.sbatch.j2").write_text(
        '{% extends "orchestrator/job.sbatch.j2" %}\n'
    )
    os.chmod(project / "templates", 0o2770)
    write_script(cli, "print('loss: 1.0')")
    assert cli("submit", *LOCAL, *JOB).code == 0
    ended = cli("wait", "local-1", "--timeout", "30", "--json")
    assert [item["state"] for item in ended.items] == ["COMPLETED"]
    assert cli("tick").code == 0
    assert cli("logs", "local-1").code == 0
    outcomes = {item["check"]: item["outcome"] for item in cli("doctor", "--json").items}
    assert {outcomes[name] for name in ("runs_dir", "state_dir", "templates_dir")} == {"ok"}
    # And by Slurm.
    fake_slurm.run_jobs()
    done = cli("submit", "--launcher", "python", *JOB)
    assert done.code == 0, done.err
    ended = cli("wait", "@2", "--timeout", "30", "--json")
    assert [item["state"] for item in ended.items] == ["COMPLETED"]


@needs_root
def test_claims_and_records_in_an_open_folder_do_not_count(cli, fake_slurm) -> None:
    fake_slurm.configure(AccountingStorageType="accounting_storage/none")
    assert cli("submit", *JOB).code == 0
    job_id = fake_slurm.jobs()[0]["job_id"]
    (path,) = cli.run_folders()
    token = run_folder.split_name(path.name)[1]
    (path / "owner.0").write_text(f"{job_id}\n")
    (path / "attempt.0.0").write_text(f"{job_id}\n")
    (path / "exit.0.0.json").write_text(
        f'{{"token": "{token}", "job_id": "{job_id}", "task": 0, "attempt": 0, "rc": 0, '
        '"outcome": "end", "done": true}'
    )
    fake_slurm.forget(job_id, sacct=True)
    path.chmod(0o777)
    seen = cli("status", "--all", "--refresh", "--json")
    assert [item["state"] for item in seen.items] != ["COMPLETED"]
    assert (
        f"Its owner files and exit records are ignored: {path} is not used: {path} can be written "
        "by every user, so others could change what your jobs run. Run "
        f"`chmod go-w {path}`, or set runs_dir to a folder of your own.\n"
    ) in seen.err
    path.chmod(0o700)
    seen = cli("status", "--all", "--refresh", "--json")
    assert [item["state"] for item in seen.items] == ["COMPLETED"]


@needs_root
def test_doctor_names_folders_that_other_users_own(here, scratch) -> None:
    here.needs_file()
    as_eve("mkdir", "-m", "0755", scratch / "open")
    mine = scratch / "mine"
    mine.mkdir()
    mine.chmod(0o775)
    os.chown(mine, -1, EVE)
    group = subprocess.run(["stat", "-c", "%G", str(mine)], capture_output=True, text=True)
    variables = {
        "ORCHESTRATOR_STATE_DIR": str(scratch / "open" / "state"),
        "ORCHESTRATOR_RUNS_DIR": str(mine / "runs"),
        "ORCHESTRATOR_TEMPLATES_DIR": str(scratch / "open"),
    }
    done = here("doctor", **variables)
    assert done.code == 1
    who = f"belongs to user {name_of(EVE)}"
    accept = f'accept it with `shared_folders = ["{scratch}/open"]` in your own configuration'
    rows = [line.split("\t") for line in done.out.splitlines()]
    assert [row for row in rows if row[0].endswith("_dir")] == [
        [
            "runs_dir",
            "bad",
            f"{mine}/runs: {mine} can be written by group {group.stdout.strip()}",
            f'run `chmod g-w {mine}`, accept it with `shared_folders = ["{mine}"]` in your own '
            "configuration, or set runs_dir to a folder of your own",
        ],
        [
            "state_dir",
            "bad",
            f"{scratch}/open/state: {scratch}/open {who}",
            f"{accept}, or set state_dir to a folder of your own",
        ],
        [
            "templates_dir",
            "bad",
            f"{scratch}/open: {scratch}/open {who}",
            f"{accept}, or set templates_dir to a folder of your own",
        ],
    ]


@pytest.mark.parametrize("umask", ["000", "077"])
def test_everything_is_private_under_any_umask(cli, fake_slurm, umask) -> None:
    cli.needs_file()
    prefix = ["sh", "-c", f'umask {umask} && exec "$@"', "sh"]
    deep = {
        "ORCHESTRATOR_STATE_DIR": str(cli.home / "a" / "b" / "state"),
        "ORCHESTRATOR_RUNS_DIR": str(cli.home / "c" / "d" / "runs"),
    }
    (cli.folder / "train.py").write_text("")
    for command in (
        ("submit", *JOB),
        ("status", "--refresh"),
        ("submit", *LOCAL, *JOB),
        ("wait", "local-1", "--timeout", "30"),
        ("tick",),
        ("db", "backup", cli.home / "copy.db"),
    ):
        done = cli(*command, prefix=prefix, **deep)
        assert done.code == 0, (command, done.err)
    shutil.rmtree(cli.home / ".cache", ignore_errors=True)
    paths = [path for path in cli.home.rglob("*") if not path.is_symlink()]
    modes = {str(path): stat.S_IMODE(path.stat().st_mode) for path in paths}
    wrong = {
        path: oct(mode)
        for path, mode in modes.items()
        if mode != (0o700 if Path(path).is_dir() else 0o600)
        # A job's script has the umask of its user; its run folder is private.
        and not re.match(r"(attempt|exit|owner)\.", Path(path).name)
    }
    assert wrong == {}
    names = {path.name for path in paths}
    assert {"controller.json", "copy.db", "requests", "script.sbatch"} <= names
