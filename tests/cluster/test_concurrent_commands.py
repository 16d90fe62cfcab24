"""Concurrent commands of one user on one SQLite file, with a real Slurm."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import time

import pytest

from tests.cluster import lab as cluster
from tests.cluster import site as sites

#: Until the file `stop` is there: run a command, note how it ended.
LOOP = """\
until [ -e stop ]; do
  orchestrator {words} >>{name}.out 2>>{name}.err
  echo $? >>{name}.rc
done
"""
#: A job of about five seconds whose numbers two processes read while it writes them.
TICKS = """\
for second in 1 2 3 4 5; do
  echo "Epoch $second/5 completed in 1.000 seconds"
  echo "Epoch Throughput: $second.25 images/second"
  sleep 1
done
"""
#: How often these must have submitted, however slow the machine is.
LEAST = {"submits": 2, "plain": 5}
#: The site's profile.
FLOOR_SECONDS = 1


@pytest.mark.parametrize(
    "seconds", [12, pytest.param(600, marks=[pytest.mark.slow, pytest.mark.timeout(900)])]
)
def test_two_status_and_a_submit(lab: cluster.Lab, site: sites.Site, seconds: int) -> None:
    site.submit(site.shell("first", "true"))
    site.shell("plain", "true")
    site.shell("tick", TICKS, metrics='patterns = ["olivia"]')
    with lab.faults() as seen:
        watched = site.with_env(**seen.env)
        begun = time.monotonic()
        loops = [
            loop(watched, "left", "status --all --limit 9999 --format jsonl"),
            loop(watched, "right", "status --all --limit 9999 --format jsonl"),
            loop(watched, "numbers", "metrics --source log --format jsonl tick"),
            loop(watched, "submits", "submit tick.toml --wait"),
            # Its process is gone when the next refresh judges the job.
            loop(watched, "plain", "submit plain.toml --parsable"),
        ]
        lab.wait_for(lambda: time.monotonic() - begun > seconds, seconds + 5, "the time", 0.5)
        lab.wait_for(
            lambda: all(len(codes(site, name)) >= least for name, least in LEAST.items()),
            120,
            "enough submissions",
            0.5,
        )
        lab.write(f"{site.home}/stop", "")
        for process in loops:
            assert process.communicate(timeout=120) == ("", "")
        lasted_seconds = time.monotonic() - begun
        questions = len(seen.calls("squeue"))
    names = ("left", "right", "numbers", "submits", "plain")
    ended = {name: codes(site, name) for name in names}
    talk = "".join(read(site, f"{name}.err") for name in names)
    assert not re.search("locked|busy|Traceback", talk), talk
    # It may ask for the first tick before there is one.
    ended["numbers"] = [code for code in ended["numbers"] if code != "4"]
    assert {name: set(ended[name]) for name in names} == {name: {"0"} for name in names}, talk
    assert 2 <= questions <= lasted_seconds / FLOOR_SECONDS + 1
    submitted = re.findall(r"^Submitted batch job (\d+) ", read(site, "submits.out"), re.MULTILINE)
    assert len(submitted) == len(ended["submits"])
    for name in ("left", "right"):
        assert_never_backwards(read(site, f"{name}.out"))
    plain = read(site, "plain.out").split()
    assert len(plain) == len(ended["plain"])
    going = ("--state", "PENDING,RUNNING,COMPLETING,SUBMITTING,SUBMIT_UNKNOWN", "--refresh")
    lab.wait_for(lambda: not site.items("status", *going), 120, "the end of all jobs", 1)
    jobs = site.items("status", "--all", "--limit", "9999")
    for name, job_ids in (("plain", plain), ("tick", submitted)):
        states = {job["job_id"]: job["state"] for job in jobs if job["name"] == name}
        assert states == dict.fromkeys(job_ids, "COMPLETED")
    for job_id in submitted:
        assert_once(site, job_id)


def loop(site: sites.Site, name: str, words: str) -> subprocess.Popen[str]:
    script = LOOP.format(name=name, words=words)
    return site.lab.popen(["sh", "-c", script], env=site.environ, cwd=site.home)


def read(site: sites.Site, name: str) -> str:
    return site.lab.read(f"{site.home}/{name}")


def codes(site: sites.Site, name: str) -> list[str]:
    """The exit codes so far."""
    path = site.lab.path(f"{site.home}/{name}.rc")
    return path.read_text().split() if path.exists() else []


def assert_never_backwards(text: str) -> None:
    """No later output lacks a job of an earlier one, or shows an earlier state."""
    order = ["SUBMITTING", "PENDING", "RUNNING", "COMPLETING", "COMPLETED"]
    reached: dict[int, int] = {}
    answers = [json.loads(line) for line in text.splitlines()]
    # Newest first: a row number higher than the previous one begins the next output.
    for before, job in itertools.pairwise([{"row": 0}, *answers]):
        if job["row"] > before["row"]:
            assert before["row"] <= 1, "an answer without the first job"
            assert job["row"] >= max(reached, default=0)
        position = order.index(job["state"])
        assert position >= reached.get(job["row"], 0), f"{job['name']} went back to {job['state']}"
        reached[job["row"]] = position
        assert job["stale_since"] is None


def assert_once(site: sites.Site, job_id: str) -> None:
    """Each step of the job and each number of its log was stored once."""
    (job,) = site.items("show", job_id, "--no-refresh")
    details = [event["detail"] for event in job["events"]]
    assert len(set(details)) == len(details)
    assert details[:2] == ["intent stored", f"sbatch answered {job_id}"]
    assert details[-1].endswith("-> COMPLETED, exit code 0:0")
    numbers = site.items("metrics", job_id, "--name", "throughput")
    assert [number["value"] for number in numbers] == [1.25, 2.25, 3.25, 4.25, 5.25]
