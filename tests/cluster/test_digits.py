"""The digits example on a real cluster: from the spec to stored throughput."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.cluster import lab as cluster
from tests.cluster import root
from tests.cluster import site as sites

EXAMPLES = "/srv/orchestrator/examples"
BARE = f"{EXAMPLES}/digits_ddp.toml"
IMAGE = f"{EXAMPLES}/digits_container.toml"
#: Fewer epochs than the example's ten, and one thread a rank: tests run on two cores.
SMALL = ("args.epochs=5", 'environment.variables.OMP_NUM_THREADS="1"')
TWO_HOSTS = ("resources.nodes=2", "resources.gpus_per_node=2")
#: Each rank costs seconds of both cores to import PyTorch.
ONE_RANK_A_HOST = ("resources.nodes=2", "resources.gpus_per_node=1")
IN_IMAGE = (
    f"container.image={root.IMAGE}",
    "container.gpu=none",
    f'container.binds=["{sites.ENVIRONMENT}"]',
    f"environment.venv={sites.ENVIRONMENT}",
)
PRINTED = re.compile(r"^(?:Epoch )?Throughput: ([\d.]+) images/second$", re.MULTILINE)


def options(spec: str, *changes: str) -> list[str]:
    return [spec, *(word for change in (*SMALL, *changes) for word in ("--set", change))]


def train(site: sites.Site, words: list[str]) -> tuple[dict[str, Any], str]:
    """Submit, wait for a good end; the job and its log."""
    done = site.run("submit", *words, "--wait", timeout_seconds=400, check=None)
    announced = re.fullmatch(r"Submitted batch job (\d+) \(@\d+, ([\w-]+)\)\n", done.stdout)
    assert announced is not None, done.stderr
    log = site.run("logs", announced[1]).stdout
    assert done.returncode == 0, f"{done.stderr}\n{log}"
    (job,) = site.items("show", announced[1], "--no-refresh")
    assert (job["state"], job["exit_code"], job["name"]) == ("COMPLETED", 0, announced[2])
    return job, log


def assert_two_hosts(job: dict[str, Any], log: str, ranks: int) -> None:
    assert (job["nodes"], job["gpus"], job["node_list"]) == (2, ranks, "n[1-2]")
    assert f"Training started with {ranks} processes across 2 nodes.\n" in log
    assert f"Total processes: {ranks}\n" in log and "\nTraining completed successfully.\n" in log


def assert_numbers(site: sites.Site, job: dict[str, Any], log: str) -> None:
    """What the log prints is in the database, and `metrics` gives what metrics.jsonl holds."""
    job_id = job["job_id"]
    printed = [float(number) for number in PRINTED.findall(log)]
    assert len(printed) == 5 + 1
    from_log = site.items("metrics", job_id, "--source", "log")
    throughput = [item for item in from_log if item["name"] == "throughput"]
    # The last one is of the whole run.
    assert [(item["epoch"], item["value"]) for item in throughput] == [
        *enumerate(printed[:-1], start=1),
        (None, printed[-1]),
    ]
    assert {(item["unit"], item["source"], item["attempt"]) for item in throughput} == {
        ("images/second", "log:olivia", 0)
    }
    lines = site.lab.read(f"{job['run_dir']}/metrics.jsonl").splitlines()
    written = [json.loads(line) for line in lines]
    read = site.items("metrics", job_id, "--source", "jsonl")
    keys = ("name", "value", "unit", "step", "epoch", "rank", "world_size", "attempt")
    assert [[item[key] for key in keys] for item in read] == [
        [item[key] for key in keys] for item in written
    ]
    # The trainer's own file has each name that the log has, unrounded, and is preferred.
    best = site.items("metrics", job_id, "--name", "throughput")
    assert best == [item for item in read if item["name"] == "throughput"]
    assert [round(item["value"], 3) for item in best] == printed[:-1]
    (accuracy,) = site.items("metrics", job_id, "--name", "val_accuracy", "--last", "1")
    assert accuracy["value"] > 0.9 and accuracy["epoch"] == 5


def test_two_hosts_bare(lab: cluster.Lab, site: sites.Site) -> None:
    words = options(BARE, *TWO_HOSTS)
    job, log = train(site, words)
    assert_two_hosts(job, log, 4)
    assert_numbers(site, job, log)
    # One text: what is shown, what Slurm was given, what is kept.
    rendered = site.run("render", *words).stdout
    assert "--rdzv-backend=c10d" in rendered and "--standalone" not in rendered
    held = lab.run(["scontrol", "write", "batch_script", job["job_id"], "-"]).stdout
    assert held == rendered
    assert site.run("show", job["job_id"], "--script").stdout == rendered
    assert site.run("submit", *words, "--dry-run").stdout == rendered
    assert lab.read(f"{job['run_dir']}/script.sbatch") == rendered
    provenance = job["provenance"]
    assert provenance["argv"][1:] == ["submit", *words, "--wait"]
    assert (provenance["spec"], provenance["host"], provenance["user"]) == (BARE, "ctl", "alice")
    # Submitted from alice's home, which is no repository.
    assert (provenance["folder"], provenance["git_commit"]) == (site.home, None)
    assert json.loads(lab.read(f"{job['run_dir']}/provenance.json")) == provenance


def test_two_hosts_in_the_image(site: sites.Site) -> None:
    job, log = train(site, options(IMAGE, *ONE_RANK_A_HOST, *IN_IMAGE))
    assert_two_hosts(job, log, 2)
    assert_numbers(site, job, log)
    script = site.run("show", job["job_id"], "--script").stdout
    assert re.search(rf"\n  apptainer exec\n(  .*\n)+  {root.IMAGE}\n\)", script)


def test_two_hosts_one_task_per_rank(site: sites.Site) -> None:
    words = options(BARE, *ONE_RANK_A_HOST, "launch.launcher=srun", "resources.cpus_per_task=1")
    assert "exec torchrun" not in site.run("render", *words).stdout
    job, log = train(site, words)
    assert_two_hosts(job, log, 2)
    assert_numbers(site, job, log)


def test_one_host(site: sites.Site) -> None:
    words = options(BARE, "resources.gpus_per_node=2")
    rendered = site.run("render", *words).stdout
    assert "torchrun --standalone " in rendered and "c10d" not in rendered
    job, log = train(site, words)
    assert (job["nodes"], job["gpus"]) == (1, 2)
    assert "Training started with 2 processes across 1 nodes.\n" in log
    assert_numbers(site, job, log)
