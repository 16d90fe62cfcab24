"""Rows 25 and 26: jobs cancelled by others, and our cancel of other jobs."""

from __future__ import annotations

from tests.cluster import lab as cluster
from tests.cluster import site as sites
from tests.cluster.faults import rows


def test_row_25_cancelled_by_admin_and_user(row: rows.Row) -> None:
    lab = row.site.lab
    ids = {}
    for user in ("root", "alice"):
        ids[f"waits-{user}"] = row.submit(f"waits-{user}", "true", sbatch="hold = true")
        ids[f"runs-{user}"] = row.submit(f"runs-{user}", "sleep 300")
    for user in ("root", "alice"):
        row.site.wait_state(ids[f"runs-{user}"], "RUNNING")
        mine = [job_id for name, job_id in ids.items() if name.endswith(user)]
        lab.run(["scancel", *mine], user=user).check_returncode()
    for name, job_id in ids.items():
        row.site.run("wait", job_id, check=1)
        job = row.site.job(job_id)
        actor = "0" if name.endswith("root") else "2001"
        assert (job["state"], job["raw_state"]) == ("CANCELLED", f"CANCELLED by {actor}"), name
        assert (job["started_at"] is None) == name.startswith("waits"), name
        assert (job["attempt"], len(job["attempts"])) == (0, 1)
    # Nothing was submitted again: I4 and I2 of the check after this test.


def test_row_26_cancel_of_unknown_and_reused_ids(lab: cluster.Lab, row: rows.Row) -> None:
    first = row.submit("first", "true")
    row.site.wait_state(first, "COMPLETED")
    for unknown in ("999999", "@99", "nosuch"):
        done = row.site.run("cancel", unknown, check=4)
        assert done.stderr.startswith(f"Error: job '{unknown}' not found: ")
    over = row.site.run("cancel", first)
    assert over.stdout == f"{first} had already ended: COMPLETED\n"
    saved = lab.save_slurmctld_state()
    lost = row.submit("lost", "true", sbatch="hold = true")
    lab.wipe_slurmctld_state(saved)
    other = lab.run(["sbatch", "--parsable", "--wrap", "sleep 300"], cwd=row.site.home)
    assert other.stdout.strip() == lost, "the ID is given again"
    lab.wait_for(lambda: lab.job_state(lost) == "RUNNING", 120, "the other job to run")
    done = row.site.run("cancel", lost, check=None)
    assert f"{lost} is CANCELLED" not in done.stdout
    assert lab.job_state(lost) == "RUNNING", "the other's job was hit"
    assert row.site.wait_state("lost", "LOST", 120)["reason"].startswith(
        f"Slurm has assigned job ID {lost} to another job"
    )
    lab.run(["scancel", lost]).check_returncode()
    reused = f"Slurm has assigned job ID {lost} to another job"
    assert sites.details(row.site.job("lost"))[-1].startswith(reused)
