"""A training that is stopped and preempted ends as one that nobody disturbed, on two hosts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cluster import lab as cluster
from tests.cluster import site as sites

EPOCHS = 16
SPEC = f"""\
[job]
name = "NAME"
time_limit = "00:10:00"
partition = "scavenge"
requeue = true
signal_seconds = 60
[resources]
nodes = 2
cpus_per_task = 1
mem = "2G"
[environment]
venv = "{sites.ENVIRONMENT}"
variables = {{ OMP_NUM_THREADS = "1" }}
[launch]
launcher = "torchrun"
nproc_per_node = 1
module = "trainers.train"
[args]
device = "cpu"
batch_size = 16
epochs = {EPOCHS}
schedule = "cosine"
warmup_epochs = 1
"""
NAMES = ("train_loss", "train_accuracy", "val_loss", "val_accuracy", "learning_rate")


def lines(lab: cluster.Lab, job: dict[str, Any]) -> list[dict[str, Any]]:
    """What metrics.jsonl holds so far."""
    place = lab.path(f"{job['run_dir']}/metrics.jsonl")
    return [json.loads(line) for line in place.read_text().splitlines()] if place.exists() else []


def wait_epochs(site: sites.Site, job: dict[str, Any], attempt: int, number: int) -> None:
    """Wait until an attempt has told of some epochs."""

    def told() -> bool:
        mine = [one for one in lines(site.lab, job) if one["attempt"] == attempt]
        return sum(one["name"] == "throughput" for one in mine) >= number

    site.lab.wait_for(told, 150, f"{number} epochs of attempt {attempt}", 0.3)


def epochs(written: list[dict[str, Any]]) -> dict[tuple[str, int], float]:
    """The numbers of each epoch that no clock decides; what was told last counts."""
    return {(one["name"], one["epoch"]): one["value"] for one in written if one["name"] in NAMES}


@pytest.mark.slow
def test_disturbed_training_ends_as_an_undisturbed_one(site: sites.Site) -> None:
    lab = site.lab
    quiet = site.submit(site.spec("quiet", SPEC.replace("NAME", "quiet")))
    site.run("wait", quiet, timeout_seconds=300)
    expected = epochs(lines(lab, site.job(quiet)))
    assert len(expected) == EPOCHS * len(NAMES)

    disturbed = site.submit(site.spec("disturbed", SPEC.replace("NAME", "disturbed")))
    job = site.job(disturbed)
    wait_epochs(site, job, 0, 2)
    # What Slurm does at --signal=B:USR1@60: the script asks, the ranks agree, save, are requeued.
    lab.run(["scancel", "--signal=USR1", "--batch", disturbed], user="alice")
    wait_epochs(site, job, 1, 2)
    # Killed where it stands: the next attempt goes on from the last checkpoint.
    better = site.shell("better", "sleep 2", job='exclusive = true\ntime_limit = "00:05:00"')
    site.submit(better, "--nodelist=n1")
    wait_epochs(site, job, 2, 1)
    site.run("wait", disturbed, timeout_seconds=300)

    job = site.job(disturbed)
    assert (job["state"], job["exit_code"], job["attempt"]) == ("COMPLETED", 0, 2)
    assert job["attempts"][1]["state"] == "PREEMPTED"
    record = json.loads(lab.read(f"{job['run_dir']}/exit.0.0.json"))
    assert (record["outcome"], record["rc"], record["done"]) == ("requeue", 0, True)
    log = site.run("logs", disturbed).stdout
    assert "because the stop file is there: saved.\n" in log
    assert log.count("Resumed after step ") == 2
    # To the bit, though it was stopped in the middle of an epoch and killed later.
    assert epochs(lines(lab, job)) == expected
    result = json.loads(lab.read(f"{job['run_dir']}/result.json"))
    assert (result["finished"], result["num_samples"]) == (True, EPOCHS * 1438)
