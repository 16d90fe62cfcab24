"""States of jobs on a real Slurm (ended, pending, requeued), and their histories."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster import lab as cluster
from tests.cluster import site as sites

PYTHON = f"{sites.ENVIRONMENT}/bin/python"
#: Rank 1 is killed, as the kernel kills one for its memory.
KILLED_RANK = """\
import os
import signal

print(f"rank {os.environ['RANK']} is here", flush=True)
if os.environ["RANK"] == "1":
    os.kill(os.getpid(), signal.SIGKILL)
"""
RANKS = """\
[job]
name = "rank"
time_limit = "5"
[resources]
gpus_per_node = 2
cpus_per_task = 2
[launch]
script = "{home}/killed_rank.py"
"""
#: Its first attempt waits to be requeued, its second one ends.
TWO_ATTEMPTS = """\
echo "Epoch Throughput: $((ORCHESTRATOR_ATTEMPT + 1)).5 images/second"
[ "$ORCHESTRATOR_ATTEMPT" = 1 ] || sleep 3000
"""
MEMORY_HOG = f"srun {PYTHON} -c 'x = bytearray(400 << 20)'"


@dataclasses.dataclass(frozen=True)
class Crowd:
    """alice's jobs, all at the same time and in one database."""

    site: sites.Site
    #: job ID by name
    ids: dict[str, str]

    def add(self, name: str, command: str, **tables: str) -> None:
        self.ids[name] = self.site.submit(self.site.shell(name, command, **tables))

    def ended(self, name: str) -> dict[str, Any]:
        """Wait for the end with all its details."""
        self.site.run("wait", self.ids[name], check=None, timeout_seconds=240)
        return self.now(name)

    def now(self, name: str) -> dict[str, Any]:
        (job,) = self.site.items("show", self.ids[name], "--no-refresh")
        return dict(job)


@pytest.fixture(scope="module")
def crowd(running_lab: cluster.Lab) -> Iterator[Crowd]:
    """The jobs of the first tests below, submitted together so that they wait together."""
    home = "/home/alice/crowd"
    running_lab.make_folder(home)
    made = Crowd(sites.Site.make(running_lab, home), {})
    made.add("over-time", "echo begun; sleep 300", job='time_limit = "00:01:00"')
    hour = 'time_limit = "01:00:00"'
    made.add("requeued", TWO_ATTEMPTS, job=f"{hour}\nrequeue = true")
    made.add("by-hand", "echo begun; sleep 3000", job=hour)
    made.add("by-us", "echo begun; sleep 3000", job=hour)
    made.add("renamed", "echo under another name", sbatch="hold = true")
    made.add("too-long", "true", job='partition = "short"\ntime_limit = "00:05:00"')
    made.add("hog", MEMORY_HOG, resources='mem = "100M"')
    made.add("good", "echo done")
    made.add("three", "echo no; exit 3")
    made.add("shot", "kill -9 $$")
    made.add("step", "srun sh -c 'exit 7'; echo and on")
    running_lab.write(f"{home}/killed_rank.py", KILLED_RANK)
    made.ids["rank"] = made.site.submit(made.site.spec("rank", RANKS.format(home=home)))
    yield made
    running_lab.mend()


def states(job: dict[str, Any]) -> list[str]:
    """The states that the history leads through; each event begins where the last one ended."""
    events = [event for event in job["events"] if event["state"]]
    assert [event["detail"] for event in events[:2]] == [
        "intent stored",
        f"sbatch answered {job['job_id']}",
    ]
    arrows = [re.match(r"(\w+) -> (\w+)", event["detail"]) for event in events[2:]]
    path = [(arrow[1], arrow[2]) for arrow in arrows if arrow]
    assert len(path) == len(events) - 2
    for (_, arrived), (left, _) in itertools.pairwise([("", "PENDING"), *path]):
        assert left == arrived, path
    assert [event["state"] for event in events[2:]] == [arrived for _, arrived in path]
    return ["PENDING", *(arrived for _, arrived in path)]


def assert_end(job: dict[str, Any], state: str, code: int, signal: int) -> None:
    """The row, its only attempt and the last line of its history have the same final state."""
    assert (job["state"], job["exit_code"], job["exit_signal"]) == (state, code, signal)
    way = states(job)
    assert way[-1] == state
    assert set(way[1:-1]) <= {"RUNNING", "COMPLETING"}
    (attempt,) = job["attempts"]
    assert (attempt["state"], attempt["exit"]) == (state, f"{code}:{signal}")
    # Of a log that could not be opened slurmctld 22.05 says 15:53, and the accounting 0:53.
    codes = f"(?:{code}|15)" if signal == 53 else f"{code}"
    assert re.search(rf"-> {state}, exit code {codes}:{signal}$", sites.details(job)[-1])
    assert job["started_at"] <= job["ended_at"]
    assert job["stale_since"] is None


def log_of(crowd: Crowd, name: str) -> list[str]:
    return crowd.site.run("logs", crowd.ids[name]).stdout.splitlines()


def test_successful_job(crowd: Crowd) -> None:
    job = crowd.ended("good")
    assert_end(job, "COMPLETED", 0, 0)
    assert (job["node_list"], job["partition"], job["time_limit_seconds"]) == (
        job["attempts"][0]["node_list"],
        "gpu",
        300,
    )
    banner, *rest = log_of(crowd, "good")
    assert re.fullmatch(
        rf"=== orchestrator good job {job['job_id']} task 0 attempt 0"
        rf" on {job['node_list']} at \d{{4}}-\d\d-\d\dT[\d:]{{8}}\+00:00 ===",
        banner,
    )
    assert rest == ["done"]
    done = crowd.site.run("wait", job["job_id"])
    assert (done.returncode, done.stdout) == (0, "")


def test_job_exits_with_3(crowd: Crowd) -> None:
    job = crowd.ended("three")
    assert_end(job, "FAILED", 3, 0)
    done = crowd.site.run("wait", job["job_id"], check=1)
    assert done.stderr.endswith(
        f"Error: job {job['job_id']} ended FAILED, exit code 3:0; "
        f"see `orchestrator explain {job['job_id']}`\n"
    )


def test_the_script_itself_is_killed(crowd: Crowd) -> None:
    job = crowd.ended("shot")
    assert_end(job, "FAILED", 0, 9)
    assert not list(crowd.site.lab.path(job["run_dir"]).glob("exit.*"))


def test_failed_step_in_a_script_that_continues(crowd: Crowd) -> None:
    job = crowd.ended("step")
    assert (job["state"], job["exit_code"], job["exit_signal"]) == ("COMPLETED", 0, 0)
    message = "a step ended with exit code 7:0, the script itself with 0:0"
    assert sites.details(job).count(message) == 1


def test_a_rank_is_killed(crowd: Crowd) -> None:
    job = crowd.ended("rank")
    assert_end(job, "FAILED", 1, 0)
    text = "\n".join(log_of(crowd, "rank"))
    assert "rank 0 is here" in text and "rank 1 is here" in text
    # torchrun's own words; -9 is SIGKILL.
    assert re.search(r"Signal 9 \(SIGKILL\)|exitcode\s*: -9", text), text


def test_scancel_by_the_user(crowd: Crowd) -> None:
    crowd.site.wait_state(crowd.ids["by-hand"], "RUNNING")
    crowd.site.lab.run(["scancel", crowd.ids["by-hand"]]).check_returncode()
    job = crowd.ended("by-hand")
    # 0:0 is no success: the signal is in the row of its batch step only.
    assert_end(job, "CANCELLED", 0, 0)
    assert job["raw_state"] == "CANCELLED by 2001"


def test_cancel_is_confirmed(crowd: Crowd) -> None:
    job_id = crowd.ids["by-us"]
    crowd.site.wait_state(job_id, "RUNNING")
    done = crowd.site.run("cancel", job_id)
    assert done.stdout == f"{job_id} is CANCELLED\n"
    job = crowd.ended("by-us")
    assert_end(job, "CANCELLED", 0, 0)
    assert "cancellation requested" in sites.details(job)
    again = crowd.site.run("cancel", job_id)
    assert again.stdout == f"{job_id} had already ended: CANCELLED\n"


def assert_never_starts(crowd: Crowd, name: str, reason: str, explanation: str) -> None:
    job_id = crowd.ids[name]
    crowd.site.lab.wait_for(
        lambda: crowd.site.job(job_id)["reason"] == reason, 120, f"{name} to wait for {reason}", 0.5
    )
    job = crowd.now(name)
    assert (job["state"], job["started_at"], job["node_list"]) == ("PENDING", None, None)
    shown = crowd.site.run("show", job_id).stdout
    assert f"\nReason:      can never start: {explanation} ({reason})\n" in shown
    assert crowd.site.run("cancel", job_id).stdout == f"{job_id} is CANCELLED\n"


def test_more_time_than_the_partition_allows(crowd: Crowd) -> None:
    message = "its time limit is longer than the partition allows"
    assert_never_starts(crowd, "too-long", "PartitionTimeLimit", message)


def test_dependency_never_satisfied(crowd: Crowd) -> None:
    crowd.add("parent", "true", sbatch="hold = true")
    after = f'time_limit = "1"\ndependency = "afterok:{crowd.ids["parent"]}"'
    crowd.add("child", "true", job=after)
    crowd.site.run("cancel", crowd.ids["parent"])
    message = "a job it depends on did not end as required; cancel it"
    assert_never_starts(crowd, "child", "DependencyNeverSatisfied", message)


def test_more_nodes_than_the_partition_has(crowd: Crowd) -> None:
    spec = crowd.site.shell("many", "true", resources="nodes = 99")
    if crowd.site.lab.settings.release == "24.11":
        # Only this one refuses it at once.
        assert "Requested node configuration" in crowd.site.run("submit", spec, check=5).stderr
        return
    crowd.ids["many"] = crowd.site.submit(spec)
    message = "the partition cannot provide what it requests, such as the number of nodes"
    assert_never_starts(crowd, "many", "PartitionConfig", message)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--partition=nosuch",), "invalid partition specified: nosuch"),
        # Slurm refuses it and keeps a FAILED record with reason BadConstraints under its name.
        (("--gpus-per-node=9",), "Requested node configuration is not available"),
    ],
)
def test_job_rejected_by_sbatch(crowd: Crowd, flags: tuple[str, ...], message: str) -> None:
    command = ("--name=refused", "--launcher=python", "--time-limit=1", *flags, "--", "x.py")
    crowd.site.lab.write(f"{crowd.site.home}/x.py", "")
    done = crowd.site.run("submit", *command, check=5)
    kept = re.search(r"\(stored as (@\d+)\)$", done.stderr.strip())
    assert kept is not None, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("Error: Slurm refused the job: ") and message in done.stderr
    job = crowd.site.job(kept[1])
    assert (job["state"], job["job_id"]) == ("NOT_SUBMITTED", None)
    assert message in job["reason"]
    token = job["run_dir"].rpartition(".")[2]
    assert not [
        row
        for row in crowd.site.lab.squeue()
        if token in row["Name"] and (row["State"], row["Reason"]) != ("FAILED", "BadConstraints")
    ]


def test_unwritable_log(crowd: Crowd) -> None:
    folder = f"{crowd.site.home}/closed"
    crowd.site.lab.make_folder(folder)
    output = f'time_limit = "1"\noutput = "{folder}/%j.out"'
    crowd.add("no-folder", "true", job=output, sbatch="hold = true")
    # Not removed: Slurm 24.11 makes a folder that is missing.
    crowd.site.lab.path(folder).chmod(0o500)
    crowd.site.lab.run(["scontrol", "release", crowd.ids["no-folder"]]).check_returncode()
    job = crowd.ended("no-folder")
    assert_end(job, "FAILED", 0, 53)
    shown = crowd.site.run("show", job["job_id"], "--format", "table").stdout
    assert (
        f"Exit code:   0:53 (Slurm could not open the log ({folder}/{job['job_id']}.out) or the "
        f"working directory on {job['node_list']}, so there is no log)\n"
    ) in shown
    done = crowd.site.run("logs", job["job_id"])
    assert done.stdout == ""
    assert done.stderr == f"no log: {folder}/{job['job_id']}.out does not exist (FAILED)\n"


def test_out_of_memory_kill(crowd: Crowd) -> None:
    if not crowd.site.lab.settings.cgroups:
        pytest.skip("no cgroup v1 on this machine: Slurm polls memory instead of limiting it")
    job = crowd.ended("hog")
    assert job["state"] == "OUT_OF_MEMORY"
    assert states(job)[-1] == "OUT_OF_MEMORY"
    assert re.search("oom.kill", "\n".join(log_of(crowd, "hog")), re.IGNORECASE)


def test_pending_job_is_renamed(crowd: Crowd) -> None:
    job_id = crowd.ids["renamed"]
    job = crowd.site.wait_state(job_id, "PENDING")
    assert job["reason"] == "JobHeldUser"
    assert "needs action: you or one of your tools held it" in crowd.site.run("show", job_id).stdout
    for change in ("name=other", "name=other.name"):
        rename = ["scontrol", "update", f"jobid={job_id}", change]
        crowd.site.lab.run(rename).check_returncode()
        assert crowd.site.job(job_id)["state"] == "PENDING"
    crowd.site.lab.run(["scontrol", "release", job_id]).check_returncode()
    job = crowd.ended("renamed")
    assert_end(job, "COMPLETED", 0, 0)
    assert job["name"] == "renamed"
    assert log_of(crowd, "renamed")[1:] == ["under another name"]


def test_requeued_job_has_two_attempts(crowd: Crowd) -> None:
    job_id, lab = crowd.ids["requeued"], crowd.site.lab
    crowd.site.wait_state(job_id, "RUNNING")
    lab.wait_for(lambda: len(log_of(crowd, "requeued")) == 2, 120, "the first attempt's line")
    lab.run(["scontrol", "requeue", job_id]).check_returncode()
    crowd.site.wait_state(job_id, "PENDING")
    job = crowd.ended("requeued")
    assert (job["state"], job["attempt"], job["restart_count"]) == ("COMPLETED", 1, 1)
    way = [state for state in states(job) if state not in ("COMPLETING", "REQUEUED")]
    assert way in (
        ["PENDING", "RUNNING", "PENDING", "RUNNING", "COMPLETED"],
        ["PENDING", "RUNNING", "PENDING", "COMPLETED"],
    )
    assert "attempt 1 starts: the job was requeued" in sites.details(job)
    first, second = job["attempts"]
    assert (first["number"], first["state"]) == (0, "REQUEUED")
    assert (second["number"], second["state"], second["exit"]) == (1, "COMPLETED", "0:0")
    assert first["started_at"] < first["ended_at"] <= second["started_at"]
    banners = [line for line in log_of(crowd, "requeued") if line.startswith("=== orchestrator ")]
    assert [re.search(r"attempt (\d)", line)[1] for line in banners] == ["0", "1"]  # type: ignore[index]
    throughput = crowd.site.items("metrics", job_id, "--name", "throughput")
    assert [(item["attempt"], item["value"]) for item in throughput] == [(0, 1.5), (1, 2.5)]
    folder = lab.path(job["run_dir"])
    record = json.loads((folder / "exit.0.1.json").read_text())
    assert (record["attempt"], record["rc"], record["outcome"]) == (1, 0, "end")
    # Slurm ended it: not a success, regardless of the exit code.
    assert json.loads((folder / "exit.0.0.json").read_text())["rc"] == 143


def test_the_time_limit(crowd: Crowd) -> None:
    job = crowd.ended("over-time")
    # Slurm's own words for it: 0:0 is no success.
    assert_end(job, "TIMEOUT", 0, 0)
    assert job["elapsed_seconds"] >= 60
    assert any("DUE TO TIME LIMIT" in line for line in log_of(crowd, "over-time"))
    assert crowd.site.run("wait", job["job_id"], check=1).stdout == ""


def test_job_requeued_after_its_end(crowd: Crowd) -> None:
    crowd.add("again", "echo attempt $ORCHESTRATOR_ATTEMPT; exit $ORCHESTRATOR_ATTEMPT")
    assert_end(crowd.ended("again"), "COMPLETED", 0, 0)
    crowd.site.lab.run(["scontrol", "requeue", crowd.ids["again"]]).check_returncode()
    crowd.site.wait_state(crowd.ids["again"], ("PENDING", "RUNNING", "FAILED"))
    job = crowd.ended("again")
    assert (job["state"], job["exit_code"], job["attempt"]) == ("FAILED", 1, 1)
    ends = [(attempt["number"], attempt["state"], attempt["exit"]) for attempt in job["attempts"]]
    # sacct's word for an attempt that was followed by another; the history keeps its own end, and
    # so does sacct from 26.05 on.
    first = "COMPLETED" if crowd.site.lab.settings.release == "26.05" else "REQUEUED"
    assert ends == [(0, first, "0:0"), (1, "FAILED", "1:0")]
    assert any(line.endswith("-> COMPLETED, exit code 0:0") for line in sites.details(job))
    assert states(job)[-1] == "FAILED"
    assert [line for line in log_of(crowd, "again") if not line.startswith("===")] == [
        "attempt 0",
        "attempt 1",
    ]


def test_jobs_purged_from_slurm(lab: cluster.Lab, alice_home: str) -> None:
    lab.reconfigure(accounting=False, min_job_age_seconds=2)
    site = sites.Site.make(lab, alice_home, more="submit_grace_seconds = 4\n")
    crowd = Crowd(site, {})
    crowd.add("good", "echo done")
    crowd.add("three", "exit 3")
    crowd.add("shot", "kill -9 $$")
    for job_id in crowd.ids.values():
        lab.forget(job_id)
    good = site.job(crowd.ids["good"])
    # Its end is unknown: not decided at the first refresh, and never a success.
    assert crowd.now("shot")["state"] == "PENDING"
    assert (good["state"], good["exit_code"], good["raw_state"]) == (
        "COMPLETED",
        0,
        "exit record, rc 0",
    )
    assert sites.details(good)[-1] == "PENDING -> COMPLETED, exit code 0:0"
    three = crowd.ended("three")
    assert (three["state"], three["exit_code"]) == ("FAILED", 3)
    assert three["events"][-2]["source"] == "record"
    assert three["events"][-1]["kind"] == "cause"
    shot = site.wait_state(crowd.ids["shot"], "LOST")
    why = (
        r"\d+ results of squeue over \d+ s did not list it; this cluster has no accounting,"
        r" and there is no exit record"
    )
    assert re.fullmatch(why, shot["reason"])
    assert sites.details(shot)[-1] == shot["reason"]
    assert f"\nReason:      {shot['reason']}\n" in site.run("show", crowd.ids["shot"]).stdout
    done = site.run("wait", *crowd.ids.values(), check=1)
    assert (
        f"2 of 3 jobs did not complete: {crowd.ids['three']} FAILED, {crowd.ids['shot']} LOST"
        in (done.stderr)
    )
