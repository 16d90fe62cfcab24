"""Rows 31, 34 and 38: jobs held, marked, stopped and resumed by hand, and jobs of many steps."""

from __future__ import annotations

from tests.cluster.faults import rows

#: The first attempt waits for ever, the next one ends.
TWO_ATTEMPTS = '[ "$ORCHESTRATOR_ATTEMPT" = 1 ] || sleep 300'


def test_row_31_requeued_and_held_by_hand(row: rows.Row) -> None:
    lab = row.site.lab
    asked = {"hold": ["requeuehold"], "special": ["requeuehold", "State=SpecialExit"]}
    ids = {name: row.submit(name, TWO_ATTEMPTS, job="requeue = true") for name in asked}
    for name, job_id in ids.items():
        row.site.wait_state(job_id, "RUNNING")
        lab.run(["scontrol", *asked[name], job_id], user="root").check_returncode()
    held = {
        name: row.site.wait_state(job_id, ("PENDING", "REQUEUE_HOLD", "SPECIAL_EXIT"))
        for name, job_id in ids.items()
    }
    assert held["special"]["state"] == "SPECIAL_EXIT"
    for name, job_id in ids.items():
        assert "needs action" in row.site.run("show", job_id).stdout, name
        assert row.site.job(job_id)["ended_at"] is None
        lab.run(["scontrol", "release", job_id], user="root").check_returncode()
    for job_id in ids.values():
        job = row.site.wait_state(job_id, "COMPLETED")
        assert [attempt["number"] for attempt in job["attempts"]] == [0, 1]


def test_row_34_suspended_and_stopped(row: rows.Row) -> None:
    lab, go = row.site.lab, f"{row.site.home}/go"
    job_id = row.submit("paused", f"until [ -e {go} ]; do sleep 0.2; done")
    row.site.wait_state(job_id, "RUNNING")
    waiting = row.site.popen("wait", job_id)
    changes = (
        (["scontrol", "suspend", job_id], "SUSPENDED"),
        (["scontrol", "resume", job_id], "RUNNING"),
        (["scancel", "-b", "-s", "STOP", job_id], "STOPPED"),
        (["scancel", "-b", "-s", "CONT", job_id], "RUNNING"),
    )
    for argv, state in changes:
        lab.run(argv, user="root").check_returncode()
        job = row.site.wait_state(job_id, state, 120)
        assert (job["ended_at"], job["attempt"], waiting.poll()) == (None, 0, None)
    lab.write(go, "")
    waiting.communicate(timeout=120)
    assert waiting.returncode == 0
    assert row.site.job(job_id)["state"] == "COMPLETED"


def test_row_38_steps_are_not_jobs(row: rows.Row) -> None:
    steps = "srun true; srun sh -c 'exit 3'; srun kill -9 0; true"
    job_id = row.submit("steps", steps)
    row.site.run("wait", job_id)
    job = row.site.job(job_id)
    assert (job["state"], job["exit_code"], len(job["attempts"])) == ("COMPLETED", 0, 1)
    assert [item["job_id"] for item in row.site.items("status", "--all")] == [job_id]
