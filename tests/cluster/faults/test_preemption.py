"""Rows 29 and 30: a job with a higher priority takes the nodes."""

from __future__ import annotations

from tests.cluster.faults import rows, training


def test_rows_29_and_30_preempted(row: rows.Row) -> None:
    spot = row.submit(
        "spot", "sleep 300", "--partition=spot", "--nodelist=n1", resources="cpus_per_task = 1"
    )
    twice = training.submit(
        row, "twice", "--partition=scavenge", "--nodelist=n1", last=2, job="requeue = true"
    )
    for number in range(2):
        training.wait_lines(row, twice, number)
        better = row.submit(f"better-{number}", "sleep 2", "--nodelist=n1", job="exclusive = true")
        row.site.wait_state(better, "COMPLETED", 120)
    row.site.run("wait", twice)
    job = row.site.job(twice)
    assert (job["state"], job["exit_code"], job["attempt"]) == ("COMPLETED", 0, 2)
    training.check(row, job, ["PREEMPTED", "PREEMPTED", "COMPLETED"])
    assert row.site.run("wait", spot, check=1).stdout == ""
    job = row.site.job(spot)
    assert (job["state"], job["exit_code"], job["attempt"]) == ("PREEMPTED", 0, 0)
    (attempt,) = job["attempts"]
    assert attempt["state"] == "PREEMPTED"
