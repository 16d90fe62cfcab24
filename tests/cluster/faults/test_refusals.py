"""Rows 17, 19, 21 and 24: jobs that Slurm rejects, or accepts and does not start."""

from __future__ import annotations

import re

from tests.cluster import lab as cluster
from tests.cluster.faults import rows

REFUSALS = (
    (("--partition=nosuch",), "Invalid partition name specified"),
    (("--account=nosuch",), "Invalid account or account/partition combination specified"),
    (("--qos=nosuch",), "Invalid qos specification"),
    (("--constraint=nosuch",), "Invalid feature specification"),
    (("--gres=nosuch:1",), "Invalid generic resource (gres) specification"),
    (("--reservation=nosuch",), "Requested reservation is invalid"),
    (("--set", 'sbatch.licenses="nosuch:1"'), "Invalid license specification"),
    (("--nodelist=nosuch",), "Invalid node name specified"),
    # Slurm keeps a FAILED record of this one under our name.
    (("--gpus-per-node=9",), "Requested node configuration is not available"),
)


def test_row_19_invalid_requests(row: rows.Row) -> None:
    for number, (flags, message) in enumerate(REFUSALS):
        output = row.refused(f"bad-{number}", *flags)
        # sbatch itself, or slurmctld.
        assert re.match("Error: (sbatch rejected|Slurm refused) the job: ", output), output
        assert message in output
        assert output.endswith(f"Correct it and submit again. (stored as @{number + 1})\n")
    good = row.submit("good", "true")
    assert row.site.wait_state(good, "COMPLETED")["job_id"] == good
    bad = [job for job in row.jobs() if job["name"] != "good"]
    assert [(job["state"], job["job_id"]) for job in bad] == [("NOT_SUBMITTED", None)] * len(
        REFUSALS
    )
    array = row.shell("array", "true")
    done = row.site.run("submit", array, "--set", 'sbatch.array="0-9999"', check=3)
    assert "sbatch.array" in done.stderr


def test_row_17_submit_limit(row: rows.Row) -> None:
    ids = [row.submit(f"held-{n}", "true", "--qos=tiny", sbatch="hold = true") for n in range(3)]
    output = row.refused("fourth", "--qos=tiny")
    assert output.startswith("Error: Slurm refused the job: QOSMaxSubmitJobPerUserLimit; "), output
    message = "You have reached your submit limit: submit again when some of your jobs have ended."
    assert output.endswith(
        f" {message} (stored as @4; `orchestrator resubmit --queue @4` "
        f"submits it as soon as Slurm accepts it)\n"
    )
    assert row.site.run("cancel", ids[0]).stdout == f"{ids[0]} is CANCELLED\n"
    again = row.submit("fifth", "true", "--qos=tiny")
    row.site.wait_state(again, "COMPLETED")


def test_row_24_partition_down_drained_or_inactive(row: rows.Row) -> None:
    lab = row.site.lab

    def put(state: str) -> None:
        lab.run(
            ["scontrol", "update", "partitionname=short", f"state={state}"], user="root"
        ).check_returncode()

    flags, minute = ("--partition=short",), 'time_limit = "1"'

    def refused(state: str) -> None:
        put(state)
        output = row.refused(state.lower(), *flags, job=minute)
        assert output.startswith("Error: Slurm refused the job for now: ")
        assert "Required partition not available (inactive or drain)" in output
        assert "Submit it again later." in output

    try:
        # First, because a drained partition does start what waits in it.
        refused("DRAIN")
        put("DOWN")
        waits = row.submit("down", "true", *flags, job=minute)
        lab.wait_for(
            lambda: row.site.job(waits)["reason"] == "PartitionDown", 120, "PartitionDown", 0.5
        )
        assert "needs action" in row.site.run("show", waits).stdout
        refused("INACTIVE")
        assert row.site.job(waits)["state"] == "PENDING"
    finally:
        put("UP")
    row.site.wait_state(waits, "COMPLETED")
    again = row.submit("again", "true", *flags, job=minute)
    row.site.wait_state(again, "COMPLETED")


def test_row_21_dependency_on_a_forgotten_job(lab: cluster.Lab, row: rows.Row) -> None:
    lab.reconfigure(min_job_age_seconds=2)
    failed = row.submit("failed", "exit 3")
    row.site.wait_state(failed, "FAILED")
    lab.forget(failed)
    for how in ("afterok", "afternotok"):
        job = f'time_limit = "1"\ndependency = "{how}:{failed}"'
        output = row.site.run("submit", row.shell("child", "true", job=job), check=6).stderr
        assert output.splitlines()[-1] == (
            f"Error: Slurm has forgotten job {failed} (state FAILED), so it cannot tell"
            f' whether "{how}:{failed}" is satisfied; some releases would start the job at once. If'
            " it ended as required, leave the dependency out. Nothing was submitted."
        )
    # That it ended is met however long ago it was.
    after = f'time_limit = "1"\ndependency = "afterany:{failed}"'
    row.site.wait_state(row.submit("after", "true", job=after), "COMPLETED")
    assert [job["name"] for job in row.jobs()] == ["after", "failed"]
