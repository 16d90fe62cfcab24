"""What commands say to people who begin, and what they do not say twice."""

from __future__ import annotations

import re

import pytest

from tests.flow import command_line, test_local
from tests.flow.conftest import FakeSlurm

here = test_local.here
NO_JOBS = "No jobs yet. Submit one: `orchestrator submit train.py`"
SPEC = """
[job]
name = "small"
time_limit = "00:30:00"
[resources]
mem = "4G"
gpus_per_node = 2
[launch]
launcher = "python"
command = "true"
"""
SWEEP = """
[sweep]
kind = "grid"
axes.job.time_limit = ["00:10:00", "00:20:00"]
"""


def on_terminal(cli: command_line.CommandLine, *argv: str) -> tuple[str, str]:
    """Return the last line of stdout, without colours, and stderr."""
    code, out, err = cli.on_terminal(*argv, COLUMNS="100")
    assert code == 0
    lines = re.sub(r"\x1b\[[0-9;]*m", "", out.decode()).split()
    return " ".join(lines[:3]), err.decode().replace("\r\n", "\n")


def test_an_empty_status_on_this_machine(here: command_line.CommandLine) -> None:
    assert on_terminal(here, "status") == ("JOB_ID NAME STATE", f"{NO_JOBS}\n")
    assert on_terminal(here, "status", "--all", "--name", "x")[1] == f"{NO_JOBS}\n"
    for form in ("--format=table", "--json", "--format=tsv"):
        assert here("status", form).err == ""
    assert on_terminal(here, "status", "--json")[1] == ""
    test_local.submit(here, "true")
    assert on_terminal(here, "status", "--name", "y")[1] == "No job matches.\n"


def test_an_empty_status_on_a_login_node(
    cli: command_line.CommandLine, fake_slurm: FakeSlurm
) -> None:
    draft = "First draft a profile for this cluster: `orchestrator config init`"
    assert on_terminal(cli, "status")[1] == f"{NO_JOBS}. {draft}\n"
    profile = cli.home / ".config" / "orchestrator" / "config.toml"
    profile.parent.mkdir(parents=True, exist_ok=True)
    profile.write_text('[profiles.default]\naccount = "a"\n')
    profile.chmod(0o600)
    assert on_terminal(cli, "status")[1] == f"{NO_JOBS}\n"


def test_old_jobs_only(cli: command_line.CommandLine, fake_slurm: FakeSlurm) -> None:
    fake_slurm.run_jobs()
    assert cli("submit", "--name", "x", "--", "train.py").code == 0
    assert cli("wait", "x").code in (0, 1)
    later = "No job is live or ended within the last day: `orchestrator status --all` lists all.\n"
    assert on_terminal(cli, "status", "--no-refresh")[1] == ""
    age(cli)
    assert on_terminal(cli, "status", "--no-refresh")[1] == later


def age(cli: command_line.CommandLine) -> None:
    """Make all jobs two days older."""
    import sqlite3

    with sqlite3.connect(cli.database) as connection:
        for column in ("created_at", "ended_at"):
            connection.execute(f"UPDATE jobs SET {column} = datetime({column}, '-2 days')")
    connection.close()


def ignored(err: str) -> list[str]:
    return [line for line in err.splitlines() if line.startswith("Ignored")]


def test_ignored_keys_are_named_once_for_each_spec(here: command_line.CommandLine) -> None:
    spec = here.spec(SPEC)
    first = ["Ignored without Slurm: resources.mem"]
    assert ignored(here("submit", spec).err) == first
    assert ignored(here("submit", spec).err) == []
    assert ignored(here("submit", spec, "--set", "job.time_limit='00:05:00'").err) == []
    more = ["Ignored without Slurm: job.account, resources.mem"]
    assert ignored(here("submit", spec, "--account", "a").err) == more
    assert ignored(here("submit", spec, "--name", "other").err) == first
    sweep = here.spec(SPEC + SWEEP, "sweep.toml")
    assert ignored(here("sweep", "submit", sweep, "--name", "both").err) == first
    assert ignored(here("sweep", "rerun", "both", "--point", "1").err) == []


@pytest.mark.parametrize(
    ("gpus", "hours", "stored"),
    [("", "0.5 node-hours", 0.0), ("0,1", "1 GPU-hours and 0.5 node-hours", 1.0)],
)
def test_gpu_hours_need_a_gpu(
    here: command_line.CommandLine, gpus: str, hours: str, stored: float
) -> None:
    sweep = here.spec(SPEC + SWEEP, "sweep.toml")
    for extra in (("--dry-run",), ()):
        done = here("sweep", "submit", sweep, *extra, CUDA_VISIBLE_DEVICES=gpus)
        plan = f"small (grid): 2 points, 2 submissions, at most {hours}"
        assert done.err.splitlines()[0] == plan
    (item,) = here("sweep", "list", "--json").items
    assert item["gpu_hours"] == stored
    extra = ("--set", "sweep.axes.job.time_limit=['00:10:00', '00:20:00', '00:30:00']")
    done = here("sweep", "add", "small", sweep, *extra, CUDA_VISIBLE_DEVICES=gpus)
    assert done.code == 0, done.err
    (item,) = here("sweep", "list", "--json").items
    assert item["gpu_hours"] == 2 * stored
