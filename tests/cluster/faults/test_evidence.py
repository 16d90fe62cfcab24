"""Rows 36, 46 and 47: a job gone between two refreshes, and files about the end of another job."""

from __future__ import annotations

import json

import pytest

from tests.cluster import lab as cluster
from tests.cluster import site as sites
from tests.cluster.faults import rows

STALE = "Epoch Throughput: {number} images/second\n"
BANNER = (
    "=== orchestrator other job {job_id} task 0 attempt 0 on n1 at 2026-01-01T00:00:00+00:00 ===\n"
)
#: What to write over fields of a record that would be believed; None: not written as JSON at all.
FORGERIES = {
    "other-id": {"job_id": "999999"},
    "other-token": {"token": "zzzzzzzzzzzz"},
    "other-attempt": {"attempt": 1},
    "not-done": {"done": False},
    "empty": "",
    "torn": '{"token":"',
}


def test_row_36_job_gone_between_two_refreshes(lab: cluster.Lab, row: rows.Row) -> None:
    lab.reconfigure(min_job_age_seconds=2)
    ends = {
        row.submit("good", "true"): ("COMPLETED", 0, 0),
        row.submit("three", "exit 3"): ("FAILED", 3, 0),
        row.submit("shot", "kill -9 $$"): ("FAILED", 0, 9),
    }
    for job_id in ends:
        lab.forget(job_id)
    for job_id, end in ends.items():
        row.site.run("wait", job_id, check=None)
        job = row.site.job(job_id)
        assert (job["state"], job["exit_code"], job["exit_signal"]) == end
        (attempt,) = job["attempts"]
        assert attempt["state"] == end[0]
        assert job["started_at"] <= job["ended_at"]
    assert len(row.seen.calls("squeue")) <= 3 + len(row.seen.calls("sacct"))


def test_row_46_stale_log_under_the_same_id(row: rows.Row) -> None:
    first = int(row.submit("first", "true"))
    output = f'time_limit = "5"\noutput = "{row.site.home}/log-%j.out"'
    # Slurm appends to it: that is how a requeue keeps the log.
    stale = STALE.format(number=97.5) + BANNER.format(job_id=first + 1) + STALE.format(number=99.5)
    row.site.lab.write(f"{row.site.home}/log-{first + 1}.out", stale)
    job_id = row.submit(
        "second",
        "echo Epoch Throughput: 5.5 images/second",
        job=output,
        sbatch="hold = true",
        metrics='patterns = ["olivia"]',
    )
    assert job_id == str(first + 1)
    assert row.site.items("metrics", job_id) == [], "it has not begun"
    row.site.lab.run(["scontrol", "release", job_id]).check_returncode()
    row.site.run("wait", job_id)
    items = row.site.items("metrics", job_id, "--name", "throughput")
    assert [item["value"] for item in items] == [5.5]
    assert "97.5" in row.site.lab.read(f"{row.site.home}/log-{job_id}.out")


@pytest.mark.slow
def test_row_47_exit_records_of_other_jobs(lab: cluster.Lab, row: rows.Row) -> None:
    # Without accounts the exit record is the only evidence of an end.
    lab.reconfigure(accounting=False, min_job_age_seconds=2)
    sites.Site.make(lab, row.site.home, more="submit_grace_seconds = 4\n")
    running = row.submit("running", "sleep 300")
    ids = {name: row.submit(name, "kill -9 $$") for name in FORGERIES}
    good = row.submit("good", "exit 3")
    for job_id in (*ids.values(), good):
        lab.forget(job_id)

    def write_record(name: str, job_id: str, change: dict[str, object] | str) -> None:
        (job,) = row.site.items("show", job_id, "--no-refresh")
        token = job["run_dir"].rpartition(".")[2]
        whole = {"token": token, "job_id": job_id, "task": 0, "attempt": 0, "rc": 0}
        whole |= {"outcome": "end", "done": True}
        text = change if isinstance(change, str) else json.dumps({**whole, **change})
        lab.write(f"{job['run_dir']}/exit.0.0.json", text)

    for name, job_id in ids.items():
        write_record(name, job_id, FORGERIES[name])
    # Slurm's own word beats even a record in which all fits.
    row.site.wait_state(running, "RUNNING")
    write_record("running", running, {})
    for job_id in ids.values():
        assert row.site.wait_state(job_id, "LOST")["exit_code"] is None
    job = row.site.job(good)
    assert (job["state"], job["exit_code"]) == ("FAILED", 3)
    assert row.site.job(running)["state"] == "RUNNING"
