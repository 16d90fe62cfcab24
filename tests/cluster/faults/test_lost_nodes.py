"""Rows 32 and 33: a node is lost, its jobs start elsewhere, and its processes survive."""

from __future__ import annotations

import contextlib
import signal

import pytest

from tests.cluster import hosts
from tests.cluster import lab as cluster
from tests.cluster.faults import rows, training

#: Slurm takes n3 first; what is requeued goes to n4 when n3 is lost.
EITHER = "--exclude=n1,n2"


def processes(lab: cluster.Lab, host: str, token: str) -> list[hosts.Process]:
    """The trainer's processes of a job that live on a host."""
    result = lab.run(["pgrep", "-f", training.PROCESS], user="root", host=host).stdout.split()
    made = []
    for pid in result:
        process = hosts.seen_from_outside(lab.first_process(host), int(pid))
        environ = lab.path(f"/proc/{pid}/environ", host)
        # The process may end meanwhile; the kernel then reports ESRCH or ENOENT.
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            if process is not None and token in environ.read_text(errors="replace"):
                made.append(process)
    return made


@pytest.mark.early
def test_rows_32_and_33_lost_node_with_live_processes(row: rows.Row) -> None:
    lab = row.site.lab
    again = "requeue = true"
    small = "cpus_per_task = 1"
    ends = row.submit("ends", "sleep 300", EITHER, job="requeue = false", resources=small)
    moves = row.submit(
        "moves", '[ "$ORCHESTRATOR_ATTEMPT" = 1 ] || sleep 300', EITHER, job=again, resources=small
    )
    trains = training.submit(row, "trains", EITHER, last=1, job=again)
    frozen = training.submit(row, "frozen", EITHER, last=1, job=again)
    for job_id in (trains, frozen):
        training.wait_lines(row, job_id, 0)
    before = {job_id: row.site.job(job_id) for job_id in (ends, moves, trains, frozen)}
    assert {job["node_list"] for job in before.values()} == {"n3"}
    # The fault itself: the first attempts go on after the second ones began.
    row.overlapping.update(("moves", "trains", "frozen"))
    tokens = {job_id: job["run_dir"].rpartition(".")[2] for job_id, job in before.items()}
    sleepers = processes(lab, "n3", tokens[frozen])
    assert sleepers

    lab.cut("n3")
    # As a process that waits for a file system that is away.
    for process in sleepers:
        process.signal(signal.SIGSTOP)
    assert row.site.wait_state(ends, "NODE_FAIL", 120)["attempt"] == 0
    for job_id in (moves, trains, frozen):
        job = row.site.wait_state(job_id, ("PENDING", "RUNNING", "COMPLETED"), 120)
        assert job["attempt"] == 1
    for job_id in (trains, frozen):
        training.wait_lines(row, job_id, 1)
    # n3 is still cut off, so it was not Slurm that ended the old attempt.
    lab.wait_for(lambda: not processes(lab, "n3", tokens[trains]), 120, "the old attempt to end")
    assert processes(lab, "n3", tokens[frozen])
    for process in sleepers:
        process.signal(signal.SIGCONT)
    lab.wait_for(lambda: not processes(lab, "n3", tokens[frozen]), 120, "the frozen one to end")
    lab.heal("n3")

    for job_id in (trains, frozen):
        row.site.run("wait", job_id)
        job = row.site.job(job_id)
        assert (job["state"], job["exit_code"]) == ("COMPLETED", 0)
        training.check(row, job, ["NODE_FAIL", "COMPLETED"])
        assert [attempt["node_list"] for attempt in job["attempts"]] == ["n3", "n4"]
        assert "attempt 1 of this job has started" in lab.read(job["stdout_path"])
    row.site.run("wait", moves)
    job = row.site.job(moves)
    assert [attempt["state"] for attempt in job["attempts"]] == ["NODE_FAIL", "COMPLETED"]
    # No processes are left on the recovered node, and Slurm's records are unchanged.
    lab.wait_for(
        lambda: not lab.run(["pgrep", "sleep"], user="root", host="n3").stdout,
        120,
        "n3 to be clean",
    )
    row.site.run("refresh")
    assert row.site.job(ends)["state"] == "NODE_FAIL"
