"""`explain` names the cause of each failure of failures.py on a real cluster."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from _pytest.mark import ParameterSet

from tests.cluster import environment, failures
from tests.cluster import lab as cluster
from tests.cluster import site as sites

HOME = "/home/alice/failures"
#: Run as root before and after; what is undone must not be there at all.
PREPARED = (
    ("sacctmgr", "-iQ", "add", "qos", "small", "set", "MaxTRESPerJob=cpu=2", "MaxWall=00:10:00"),
    ("sacctmgr", "-iQ", "add", "qos", "single", "set", "GrpJobs=1"),
    ("sacctmgr", "-iQ", "modify", "user", "alice", "set", "qos+=small,single"),
    ("sacctmgr", "-iQ", "modify", "user", "bob", "set", "adminlevel=Operator"),
    (
        *("scontrol", "create", "reservation", "reservationname=later", "starttime=now+1hour"),
        *("duration=10", "users=alice", "nodes=n1"),
    ),
)
UNDONE = (
    ("scontrol", "update", "partitionname=spot", "state=up"),
    ("scontrol", "delete", "reservationname=later"),
    ("sacctmgr", "-iQ", "modify", "user", "bob", "set", "adminlevel=None"),
    ("sacctmgr", "-iQ", "modify", "user", "alice", "set", "qos-=small,single"),
    ("sacctmgr", "-iQ", "delete", "qos", "small,single"),
)
PROLOG = f"""\
#!/bin/sh
[ "$SLURM_JOB_PARTITION" != {failures.BAD_PROLOG} ]
"""
FILES = {
    "plain.sh": (0o644, "#!/bin/sh\necho here\n"),
    "interpreter.sh": (0o755, "#!/opt/anaconda3/bin/python\nprint(1)\n"),
    "syntax.py": (0o644, "def train(:\n    pass\n"),
    "cut.sif": (0o644, "#!/usr/bin/env run-singularity\nSIF_MAGIC\n"),
}


@dataclasses.dataclass(frozen=True)
class Crowd:
    """alice's failures, all run at the same time, and their explanations."""

    site: sites.Site
    cases: Sequence[failures.Case]
    #: job ID by name
    ids: dict[str, str]
    #: the item of `explain` by name
    explanations: dict[str, Mapping[str, Any]]

    def several(self, commands: Sequence[Sequence[str]]) -> list[str]:
        """Run commands of ours in one process; the last line of each."""
        done = self.site.lab.run(
            [sites.PYTHON, f"{environment.CHECKOUT_PLACE}/tests/cluster/several.py"],
            env=self.site.environ,
            cwd=HOME,
            input="".join(f"{json.dumps(command)}\n" for command in commands),
            timeout_seconds=300,
        )
        lines = done.stdout.splitlines()
        assert len(lines) == len(commands), done.stderr
        return lines

    def submit(self, cases: Sequence[failures.Case]) -> None:
        """Submit them in their order."""
        specs = [self.site.spec(case.name, self._filled(case)) for case in cases]
        argv = [
            ["submit", spec, *case.flags, "--parsable"]
            for spec, case in zip(specs, cases, strict=True)
        ]
        for case, line in zip(cases, self.several(argv), strict=True):
            code, _, word = line.partition(" ")
            is_accepted = self.site.lab.settings.release in case.accepted
            expected = "5" if case.end is failures.End.REFUSED and not is_accepted else "0"
            assert code == expected, (case.name, line)
            self.ids[case.name] = word

    def _filled(self, case: failures.Case) -> str:
        text = case.spec.replace("{home}", HOME)
        return text.replace("{parent}", self.ids.get("parent", ""))

    def in_group(self, end: failures.End) -> list[failures.Case]:
        return [case for case in self.cases if case.end is end]

    def by(self, user: str, *argv: str) -> None:
        self.site.lab.run(argv, user=user).check_returncode()

    def wait(self, name: str, *states: str) -> None:
        """Wait until Slurm has the job in one of the states, or has forgotten its end."""
        lab = self.site.lab
        lab.wait_for(
            lambda: lab.job(self.ids[name]).get("JobState") in (None, *states),
            120,
            f"{name}: {states}",
            0.3,
        )

    def wait_begun(self, name: str) -> None:
        """Wait until the program has printed `begun`."""
        runs = self.site.lab.path(f"{HOME}/runs")

        def has_begun() -> bool:
            return any("begun" in log.read_text() for log in runs.glob(f"{name}.*/*.out"))

        self.site.lab.wait_for(has_begun, 120, f"{name} to begin", 0.3)

    def explain(self, names: Sequence[str]) -> None:
        """Have them explained, with one command."""
        for item in self.site.items("explain", *names):
            self.explanations[item["name"]] = item


def helper(name: str, command: str, **tables: str) -> failures.Case:
    """A job that another one needs."""
    tables["launch"] = f'launcher = "python"\ncommand = "{command}"'
    return failures.Case(name=name, how="", cause=None, evidence="", tables=tables)


def marked(case: failures.Case) -> ParameterSet:
    return pytest.param(case, id=case.name, marks=pytest.mark.slow if case.long else ())


@pytest.fixture(scope="module")
def crowd(running_lab: cluster.Lab, pytestconfig: pytest.Config) -> Iterator[Crowd]:
    """All cases, submitted together so that they wait together, disturbed and explained."""
    running_lab.make_folder(HOME)
    long = pytestconfig.getoption("--long")
    cases = [case for case in failures.CASES if long or not case.long]
    made = Crowd(sites.Site.make(running_lab, HOME), cases, {}, {})
    extra = running_lab.settings.extra
    try:
        # In /home, which all hosts share.
        running_lab.write("/home/prolog.sh", PROLOG, user="root")
        running_lab.path("/home/prolog.sh").chmod(0o755)
        running_lab.reconfigure(extra=(*extra, "Prolog=/home/prolog.sh"))
        prepare(running_lab)
        produce(made)
        yield made
    finally:
        running_lab.mend()
        running_lab.reconfigure(extra=extra)
        for argv in UNDONE:
            running_lab.run(argv, user="root")
        small_disks(running_lab, "umount /tmp/small; mount -o remount,size=50% /dev/shm")
        running_lab.run(["rm", "-rf", failures.LOGIN_ONLY], user="root")


def small_disks(lab: cluster.Lab, command: str) -> None:
    lab.run(["sh", "-c", command], user="root", host=failures.SMALL)


def prepare(lab: cluster.Lab) -> None:
    for argv in PREPARED:
        lab.run(argv, user="root").check_returncode()
    small_disks(
        lab,
        "mkdir -p /tmp/small && mount -t tmpfs -o size=1m,mode=1777 tmpfs /tmp/small"
        " && mount -o remount,size=1m /dev/shm",
    )
    for name, (mode, text) in FILES.items():
        lab.write(f"{HOME}/{name}", text)
        lab.path(f"{HOME}/{name}").chmod(mode)
    lab.make_folder(f"{HOME}/closed")
    lab.make_folder(f"{failures.LOGIN_ONLY}/data")
    for name in ("secrets", "model.sif"):
        lab.write(f"{failures.LOGIN_ONLY}/{name}", "TOKEN=x\n")
        lab.path(f"{failures.LOGIN_ONLY}/{name}").chmod(0o600)


def produce(made: Crowd) -> None:
    """Let everything fail."""
    lab = made.site.lab
    made.submit(
        [
            helper("parent", "true", sbatch="hold = true"),
            helper("holder", "sleep 600", job='qos = "single"'),
            *made.in_group(failures.End.ENDED),
        ]
    )
    made.submit([*made.in_group(failures.End.WAITS), *made.in_group(failures.End.REFUSED)])
    ids = made.ids
    made.by("alice", "scancel", ids["parent"], ids["cancelled-while-waiting"])
    made.by("root", "scontrol", "hold", ids["held-by-root"])
    made.by("root", "scontrol", "update", f"jobid={ids['deadline']}", "deadline=now+2")
    # Before 23.11.4 only the scheduler compares deadlines, and it skips held jobs. Later releases
    # compare them once a minute, so the job may have ended already.
    lab.run(["scontrol", "release", ids["deadline"]], user="alice")
    for name in ("preempted", "node-lost"):
        made.wait(name, "RUNNING")
    made.wait_begun("preempted-step")
    seven = 'cpus_per_task = 7\nmem = "1G"'
    made.submit(
        [helper("better", "true", job=f'nodelist = "{failures.TROUBLED}"', resources=seven)]
    )
    made.by("root", "scontrol", "update", "partitionname=spot", "state=down")
    made.by("alice", "scontrol", "release", ids["partition-down"])
    made.site.run("wait", ids["preempted"], ids["better"], check=None)
    # A failed prolog drains its node: nothing else starts there any more.
    for name in ("full", "loader"):
        made.wait(name, "RUNNING", "COMPLETING", "FAILED")
    made.by("alice", "scontrol", "release", f"{ids['prolog']},{ids['prolog-requeued']}")
    made.wait("prolog", "CANCELLED")
    # Slurm takes SlurmdTimeout, 20 s, and up to as much again.
    lab.cut(failures.TROUBLED)

    made.wait("over-time", "RUNNING")
    made.by("root", "scontrol", "update", f"jobid={ids['over-time']}", "endtime=now+1")
    for name in ("hand", "root", "operator", "us"):
        made.wait(f"cancelled-by-{name}", "RUNNING")
    made.by("alice", "scancel", ids["cancelled-by-hand"])
    made.by("root", "scancel", ids["cancelled-by-root"])
    made.by("bob", "scancel", ids["cancelled-by-operator"])
    made.site.run("cancel", ids["cancelled-by-us"])

    lab.path(f"{HOME}/closed").chmod(0o500)
    (folder,) = lab.path(f"{HOME}/runs").glob("no-run-folder.*")
    folder.rename(f"{folder}.away")
    made.by("alice", "scontrol", "release", f"{ids['no-log']},{ids['no-run-folder']}")

    made.wait("node-lost", "NODE_FAIL")
    made.by("alice", "scontrol", "release", ids["node-is-gone"])

    def looked_at() -> bool:
        return lab.job(ids["node-is-gone"]).get("Reason") not in ("None", "JobHeldUser")

    lab.wait_for(looked_at, 60, "why the job with a lost node waits", 0.3)
    ended = made.in_group(failures.End.ENDED)
    made.site.run("wait", *(ids[case.name] for case in ended), check=None, timeout_seconds=300)
    made.explain([case.name for case in made.cases])


@pytest.mark.parametrize("case", [marked(case) for case in failures.CASES])
def test_the_cause_is_named(crowd: Crowd, case: failures.Case) -> None:
    explanation = crowd.explanations[case.name]
    assert explanation["cause"] == case.cause, explanation
    lines = [explanation["summary"], *(item["text"] for item in explanation["evidence"])]
    evidence = case.accepted.get(crowd.site.lab.settings.release, case.evidence)
    assert any(evidence in line for line in lines), explanation
    assert explanation["cures"] or case.cause is None
    if case.rank is not None:
        assert explanation["first_failing_rank"] == case.rank, explanation


@pytest.mark.parametrize("name", ["more-than-a-job-may", "too-long"])
def test_at_most_three_slurm_calls(crowd: Crowd, name: str) -> None:
    lab = crowd.site.lab
    with lab.faults() as seen:
        asking = crowd.site.with_env(**seen.env)
        (explanation,) = asking.items("explain", crowd.ids[name], "--no-refresh")
    assert explanation["cause"] == crowd.explanations[name]["cause"]
    assert 2 <= len(seen.calls()) <= 3, seen.calls()
