"""The Python API on a real Slurm."""

from __future__ import annotations

import json

from tests.cluster import site as sites

PROGRAM = """
import json
import orchestrator as orc

seen = {}
job = orc.submit(
    {"launch": {"command": "for i in 1 2 3; do echo step $i loss 0.$i; sleep 1; done"}},
    name="api", time_limit="00:05:00", set={"resources.nodes": 2},
)
seen["id"] = job.id
banner, *seen["lines"] = job.logs(follow=True)
seen["ended"] = job.wait(timeout=120).record
seen["losses"] = [row["value"] for row in job.metrics("loss")]

failing = orc.submit(["bash", "-c", "exit 7"], name="fails", time_limit="00:05:00")
try:
    failing.wait(timeout=120)
except orc.errors.JobFailedError as error:
    seen["error"] = str(error)
seen["failing"] = failing.id
seen["cause"] = failing.explain()[0]["cause"]

running = orc.submit(["sleep", "300"], name="runs", time_limit="00:05:00", requeue=True)
while running.refresh().state != "RUNNING":
    pass
seen["requeued"] = str(running.requeue(hold=True).state)
seen["released"] = str(running.release().state)
seen["cancelled"] = str(running.cancel().state)
seen["history"] = running.id

sweep = orc.sweep(
    {
        "job": {"name": "points", "time_limit": "00:05:00"},
        "launch": {"command": "echo $0 loss 1"},
        "sweep": {"kind": "grid", "axes": {"job.comment": ["a", "b"]}},
    }
)
seen["sweep"] = sweep.wait(timeout=120).state
seen["points"] = [point["state"] for point in sweep.points]
seen["listed"] = sorted(job.name for job in orc.jobs())
print(json.dumps(seen))
"""


def test_jobs_are_submitted_followed_and_controlled_from_python(site: sites.Site) -> None:
    site.lab.write(f"{site.home}/api.py", PROGRAM)
    done = site.lab.run(
        [sites.PYTHON, "api.py"], env=site.environ, cwd=site.home, timeout_seconds=400
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["lines"] == [f"step {step} loss 0.{step}" for step in (1, 2, 3)]
    assert (seen["ended"]["state"], seen["ended"]["nodes"]) == ("COMPLETED", 2)
    assert seen["losses"] == [0.1, 0.2, 0.3]
    failing = seen["failing"]
    assert seen["error"] == (
        f"job {failing} ended FAILED, exit code 7:0; see `orchestrator explain {failing}`"
    )
    assert seen["cause"] == "nonzero_exit"
    # Slurm starts it again ten seconds after its requeue, which may be at once after the release.
    assert seen["requeued"] == "PENDING" and seen["released"] in ("PENDING", "RUNNING")
    assert seen["cancelled"] == "CANCELLED"
    assert (seen["sweep"], seen["points"]) == ("ended", ["COMPLETED", "COMPLETED"])
    assert seen["listed"] == ["api", "fails", "points", "points", "runs"]
    # The commands show the same jobs, and by what they were changed.
    assert site.job(seen["id"])["state"] == "COMPLETED"
    sources = {event["source"] for event in site.job(seen["history"])["events"]}
    assert "user, through Python" in sources
