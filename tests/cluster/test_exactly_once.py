"""A submission happens once or not at all, with killed processes and false replies."""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.cluster import faults
from tests.cluster import lab as cluster
from tests.cluster import site as sites

KILL_AT = "/srv/orchestrator/tests/cluster/kill_at.py"
#: Window of the submission -> the points of kill_at.py in it.
WINDOWS = {
    "before the intent is committed": ("folder", "rowless", "intent"),
    "between intent and sbatch": ("committed",),
    "during sbatch": ("started", "sbatch", "wrapped"),
    "between sbatch's answer and the commit of the ID": ("answered", "storing"),
}
#: Here slurmctld always responds: three times MessageTimeout, not the two minutes of a site.
QUICK = "submit_grace_seconds = 15\n"
NOT_KNOWN_YET = ("SUBMITTING", "SUBMIT_UNKNOWN")


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of the intended jobs, by our own account and by Slurm's."""

    #: our rows by name
    rows: dict[str, dict[str, Any]]
    #: job IDs in Slurm by full name, NAME.TOKEN
    in_slurm: dict[str, set[str]]
    #: how often each full name ran
    runs: collections.Counter[str]


def journal_spec(site: sites.Site) -> str:
    return site.shell("job", f"echo $SLURM_JOB_NAME >>{site.home}/journal")


def settle(site: sites.Site, timeout_seconds: float = 240) -> None:
    """Refresh until nothing is left in doubt and all have ended."""

    def settled() -> bool:
        site.run("refresh", check=None)
        rows = site.items("status", "--all", "--limit", "1000", "--no-refresh")
        going = (*NOT_KNOWN_YET, "PENDING", "RUNNING", "COMPLETING", "CONFIGURING")
        return not [row for row in rows if row["state"] in going]

    site.lab.wait_for(settled, timeout_seconds, "every submission to be settled", 1)


def accounted(site: sites.Site) -> dict[str, set[str]]:
    """Return the job IDs that sacct has of each name."""
    answer = site.lab.run(
        ["sacct", "-X", "-n", "-P", "-S", "now-1hour", "-u", "alice", "-o", "JobID,JobName%200"]
    )
    result: dict[str, set[str]] = {}
    for line in answer.stdout.splitlines():
        job_id, name = line.split("|", 1)
        result.setdefault(name, set()).add(job_id)
    return result


def outcome(site: sites.Site) -> Outcome:
    rows = {row["name"]: row for row in site.items("status", "--all", "--limit", "1000")}
    in_slurm: dict[str, set[str]] = {}

    def shows_all() -> bool:
        in_slurm.clear()
        in_slurm.update(accounted(site))
        sent = [row for row in rows.values() if row["job_id"] is not None]
        return all(full_name(row) in in_slurm for row in sent)

    # A job in squeue or with an exit record is some seconds late in slurmdbd (22.05).
    site.lab.wait_for(shows_all, 120, "sacct to show every job that has an ID", 1)
    journal = site.lab.run(["cat", f"{site.home}/journal"]).stdout.split()
    return Outcome(rows, in_slurm, collections.Counter(journal))


def full_name(row: dict[str, Any]) -> str:
    return str(row["run_dir"]).rpartition("/")[2]


def check(result: Outcome) -> collections.Counter[str]:
    """Check that each job is in Slurm once or reported as not submitted; count by state."""
    for row in result.rows.values():
        name = full_name(row)
        ids = result.in_slurm.get(name, set())
        if row["state"] == "NOT_SUBMITTED":
            assert not ids, f"{name} is said not to be in Slurm, and is: {ids}"
            assert not result.runs[name]
        else:
            assert ids == {row["job_id"]}, f"{name} is {row['job_id']} here, {ids} in Slurm"
            assert row["state"] == "COMPLETED"
            assert result.runs[name] == 1
    assert not [name for name, count in result.runs.items() if count > 1]
    return collections.Counter(row["state"] for row in result.rows.values())


def submit_and_die(site: sites.Site, spec: str, name: str, point: str, delay: float) -> None:
    argv = ["submit", spec, "--name", name]
    if point == "wrapped":
        # sbatch is a site's wrapper script: the real sbatch outlives its caller.
        rule = faults.Rule(command="sbatch", kill_parent="during", kill_after_seconds=delay)
        with site.lab.faults(rule) as wrapped:
            killed = site.with_env(**wrapped.env).run(*argv, check=None)
    else:
        killed = site.lab.script(
            [KILL_AT, point, str(delay), *argv],
            env={"XDG_CONFIG_HOME": f"{site.home}/config"},
            cwd=site.home,
        )
    # A delay may be longer than sbatch takes: then it was not killed, and is submitted.
    assert killed.returncode in (-9, 137, 0), killed.stderr


def killed_submissions(site: sites.Site, count: int, tell: Callable[[str], None]) -> None:
    seed = random.randrange(2**32)
    random.seed(seed)
    tell(f"killed submissions: seed {seed}")
    sites.Site.make(site.lab, site.home, more=QUICK)
    spec = journal_spec(site)
    site.submit(spec, "--name", "first")
    plan = [
        (f"{points[number % len(points)]}-{number}", points[number % len(points)])
        for points in WINDOWS.values()
        for number in range(count)
    ]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        started = [
            pool.submit(submit_and_die, site, spec, name, point, random.uniform(0, 0.06))
            for name, point in plan
        ]
        for item in started:
            item.result()
    settle(site)
    result = outcome(site)
    total = check(result)
    for window, points in WINDOWS.items():
        states = collections.Counter(
            result.rows[name]["state"] if name in result.rows else "no intent"
            for name, point in plan
            if point in points
        )
        tell(f"killed {window}: {count} times, then {dict(states)}")
        assert states.total() == count
    before = [name for name, point in plan if point in WINDOWS["before the intent is committed"]]
    assert not set(before) & set(result.rows)
    assert total["COMPLETED"] > count, "those that sbatch had answered are all adopted"


def test_killed_in_each_window(site: sites.Site, tell: Callable[[str], None]) -> None:
    killed_submissions(site, 5, tell)


@pytest.mark.slow
def test_killed_in_each_window_often(site: sites.Site, tell: Callable[[str], None]) -> None:
    killed_submissions(site, 40, tell)


@pytest.mark.parametrize(
    "rule",
    [
        faults.Rule(command="sbatch", rc=1, stdout="", stderr=faults.SOCKET_TIMED_OUT, times=1),
        faults.Rule(command="sbatch", stdout="", times=1),
        faults.Rule(command="sbatch", stdout="Estimated 45 CPUs, 123 jobs before\n", times=1),
    ],
    ids=["socket timed out", "answer lost", "answer garbled"],
)
def test_unusable_sbatch_output(site: sites.Site, rule: faults.Rule) -> None:
    spec = journal_spec(site)
    with site.lab.faults(rule) as wrapped:
        job_id = site.with_env(**wrapped.env).submit(spec)
        assert len(wrapped.calls("sbatch")) == 1
    settle(site)
    result = outcome(site)
    assert check(result) == {"COMPLETED": 1}
    assert result.rows["job"]["job_id"] == job_id


def test_extra_output_before_the_job_id(site: sites.Site) -> None:
    rule = faults.Rule(command="sbatch", stdout_prefix="Welcome! 123000 jobs wait.\n45000\n\n")
    with site.lab.faults(rule) as wrapped:
        job_id = site.with_env(**wrapped.env).submit(journal_spec(site))
    settle(site)
    assert outcome(site).rows["job"]["job_id"] == job_id
    assert job_id not in ("123000", "45000")


def test_slurmctld_is_paused_during_the_call(site: sites.Site) -> None:
    spec = journal_spec(site)
    site.submit(spec, "--name", "first")
    site.lab.pause("slurmctld")
    try:
        refused = site.run("submit", spec, check=5, timeout_seconds=200)
    finally:
        site.lab.resume("slurmctld")
    (row,) = site.items("status", "--name", "job", "--no-refresh")
    assert f"The job is @{row['row']} in the database. Do not submit it again" in refused.stderr
    assert row["state"] == "SUBMIT_UNKNOWN"
    settle(site)
    assert check(outcome(site)) == {"COMPLETED": 2}


def test_slurmctld_loses_the_job_and_gives_its_id_to_another(
    lab: cluster.Lab, site: sites.Site
) -> None:
    site.submit(journal_spec(site), "--name", "first")
    settle(site)
    held = site.shell("job", "true", sbatch="hold = true")
    saved = lab.save_slurmctld_state()
    lost = site.submit(held)
    lab.wipe_slurmctld_state(saved)
    other = lab.run(["sbatch", "--parsable", "--wrap", "sleep 2"], cwd=site.home).stdout.strip()
    assert other == lost, "the ID is given again"
    job = site.wait_state("job", "LOST", 120)
    assert job["reason"].startswith(f"Slurm has assigned job ID {lost} to another job")
    lab.wait_for(lambda: lab.job_state(lost) == "COMPLETED", 120, "the other job's end")
    assert site.job("job")["state"] == "LOST"
