"""The record of each attempt's environment on a real Slurm."""

from __future__ import annotations

import json
import pathlib
from typing import Any

from tests.cluster import environment, root
from tests.cluster import lab as cluster
from tests.cluster import site as sites

TWO_RANKS = """\
[job]
name = "ranks"
time_limit = "5"
[resources]
nodes = 2
ntasks_per_node = 2
[environment]
venv = "{venv}"
variables.NCCL_DEBUG = "INFO"
[launch]
launcher = "srun"
program = ["python3", "-c", "import torch, platform; print(platform.python_version())"]
"""
IN_IMAGE = """\
[job]
name = "image"
time_limit = "5"
[container]
runtime = "apptainer"
image = "{image}"
gpu = "none"
[launch]
launcher = "python"
program = ["python3", "-c", "import platform; print(platform.python_version())"]
"""
#: Its first attempt waits for a requeue, its second one ends.
TWICE = """\
[job]
name = "twice"
time_limit = "10"
requeue = true
[environment]
setup = "export NCCL_DEBUG=$ORCHESTRATOR_ATTEMPT"
[launch]
launcher = "python"
command = '[ "$ORCHESTRATOR_ATTEMPT" = 1 ] || sleep 600'
"""


def recorded(site: sites.Site, job_id: str) -> list[dict[str, Any]]:
    """Return the environments of a job's attempts from the database; the files are gone."""
    lab = site.lab
    run_dir = site.job(job_id)["run_dir"]
    lab.run(["sh", "-c", f"rm {run_dir}/environment.*"]).check_returncode()
    return site.items("show", job_id, "--environment", "--no-refresh")


def test_one_record_of_a_job_with_four_ranks(lab: cluster.Lab, site: sites.Site) -> None:
    job_id = site.submit(site.spec("ranks", TWO_RANKS.format(venv=environment.PLACE)))
    job = site.wait_state(job_id, ("COMPLETED", "FAILED"))
    assert job["state"] == "COMPLETED"
    version = lab.read(job["stdout_path"]).splitlines()[-1]
    text = lab.read(f"{job['run_dir']}/environment.0.0")
    assert text.count("\nend\tyes\n") == text.count("\npython_version\t") == 1
    (record,) = recorded(site, job_id)
    assert record["python"] == f"{environment.PLACE}/bin/python3"
    assert record["python_version"] == version
    assert "torch" in record["packages"] and record["libraries"]["pytorch"]
    assert record["variables"]["NCCL_DEBUG"] == "INFO"
    assert record["variables"]["SLURM_JOB_NUM_NODES"] == "2"
    assert record["placement"]["nodes"] == job["node_list"]
    assert record["kernel"] and record["os"].startswith("Debian")
    assert record["container"] is None


def test_the_record_in_an_image(lab: cluster.Lab, site: sites.Site) -> None:
    job_id = site.submit(site.spec("image", IN_IMAGE.format(image=root.IMAGE)))
    job = site.wait_state(job_id, ("COMPLETED", "FAILED"))
    assert job["state"] == "COMPLETED"
    (record,) = recorded(site, job_id)
    version = lab.read(job["stdout_path"]).splitlines()[-1]
    assert record["python_version"] in (version, version.rpartition(".")[0])
    assert not record["python"].startswith(environment.PLACE)
    done = lab.run(["sha256sum", root.IMAGE])
    assert record["container"]["sha256"] == done.stdout.split()[0]
    assert record["container"]["path"] == root.IMAGE
    # The next submission does not read the image.
    cache = json.loads(lab.read(f"{site.home}/state/images.json"))
    assert [each["sha256"] for each in cache.values()] == done.stdout.split()[:1]


def test_tasks_of_an_array_share_an_environment(lab: cluster.Lab, site: sites.Site) -> None:
    job_id = site.submit(site.shell("many", "true", array="size = 40"))
    site.run("wait", job_id)
    run_dir = pathlib.PurePosixPath(site.items("status", f"{job_id}_0", "--all")[0]["run_dir"])
    listing = lab.run(["ls", str(run_dir)]).stdout.split()
    assert len([name for name in listing if name.startswith("environment.")]) == 40
    program = "SELECT count(DISTINCT environment_id), count(*) FROM attempt_environments"
    code = (
        f"import sqlite3, sys; print(sqlite3.connect(sys.argv[1]).execute('{program}').fetchone())"
    )
    database = f"{site.home}/state/orchestrator.db"
    assert lab.run([sites.PYTHON, "-c", code, database]).stdout == "(1, 40)\n"


def test_each_attempt_has_its_own_record(lab: cluster.Lab, site: sites.Site) -> None:
    job_id = site.submit(site.spec("twice", TWICE))
    site.wait_state(job_id, "RUNNING")
    run_dir = site.job(job_id)["run_dir"]
    record = f"{run_dir}/environment.0.0"
    lab.wait_for(lambda: "end\tyes" in lab.read_lines(record), 120, "the first record")
    lab.run(["scontrol", "requeue", job_id]).check_returncode()
    assert site.wait_state(job_id, ("COMPLETED", "FAILED"), 300)["state"] == "COMPLETED"
    first, second = recorded(site, job_id)
    assert (first["attempt"], second["attempt"]) == (0, 1)
    assert first["variables"]["NCCL_DEBUG"] == "0"
    shown = site.run("show", job_id, "--environment").stdout
    assert "  variable NCCL_DEBUG: 0 (attempt 1: 1)\n" in shown


def test_a_batch_file(lab: cluster.Lab, site: sites.Site) -> None:
    path = f"{site.home}/old.sbatch"
    lab.write(path, "#!/bin/bash\n#SBATCH --time=5\nexport NCCL_DEBUG=WARN\ntrue\n")
    job_id = site.submit(path)
    assert site.wait_state(job_id, ("COMPLETED", "FAILED"))["state"] == "COMPLETED"
    (record,) = recorded(site, job_id)
    assert (record["python"], record["packages"]) == ("", {})
    assert record["kernel"] and record["placement"]["host"]
    assert "Python:      not recorded\n" in site.run("show", job_id, "--environment").stdout
