"""A training that is stopped, preempted or out of time has the result of an undisturbed one."""

from __future__ import annotations

import datetime
import json
import math
import re
from typing import Any

import pytest

from tests.cluster import lab as cluster
from tests.cluster import site as sites

EPOCHS = 16
#: Two hosts; the job's own keys are put in.
SPEC = f"""\
[job]
name = "NAME"
requeue = true
JOB
[resources]
nodes = 2
cpus_per_task = 1
mem = "2G"
[environment]
venv = "{sites.ENVIRONMENT}"
variables = {{ OMP_NUM_THREADS = "1", PACE_SECONDS = "PACE" }}
[launch]
launcher = "torchrun"
nproc_per_node = 1
module = "MODULE"
[args]
device = "cpu"
batch_size = 16
epochs = EPOCHS
schedule = "cosine"
warmup_epochs = 1
"""
LONG = 'time_limit = "00:10:00"\npartition = "scavenge"\nsignal_seconds = 60'
NAMES = ("train_loss", "train_accuracy", "val_loss", "val_accuracy", "learning_rate")
LIMITED_EPOCHS = 60


def submit(
    site: sites.Site,
    name: str,
    job: str,
    epochs: int,
    epoch_seconds: float = 0.0,
    spec: str = SPEC,
) -> str:
    """Submit a training whose epochs last at least so long; its job ID."""
    values = {
        "NAME": name,
        "JOB": job,
        "MODULE": "tests.cluster.paced_training" if epoch_seconds else "trainers.train",
        '"PACE"': f'"{epoch_seconds}"',
        "EPOCHS": str(epochs),
    }
    for placeholder, value in values.items():
        spec = spec.replace(placeholder, value)
    return site.submit(site.spec(name, spec))


def lines(lab: cluster.Lab, job: dict[str, Any]) -> list[dict[str, Any]]:
    """What metrics.jsonl holds so far."""
    return [json.loads(line) for line in lab.read_lines(f"{job['run_dir']}/metrics.jsonl")]


def wait_epochs(site: sites.Site, job: dict[str, Any], attempt: int, number: int) -> None:
    """Wait until an attempt has reported some epochs."""

    def has_epochs() -> bool:
        mine = [line for line in lines(site.lab, job) if line["attempt"] == attempt]
        return sum(item["name"] == "throughput" for item in mine) >= number

    site.lab.wait_for(has_epochs, 300, f"{number} epochs of attempt {attempt}", 0.3)


def epochs(written: list[dict[str, Any]]) -> dict[tuple[str, int], float]:
    """The metrics of each epoch except times; the last report counts."""
    return {
        (item["name"], item["epoch"]): item["value"] for item in written if item["name"] in NAMES
    }


def stops(log: str) -> list[tuple[int, str]]:
    """Steps and reasons of the stops; the next attempt must have resumed at that step."""
    result = re.findall(
        r"^Stopped after step (\d+), because (.+): checkpoint saved\.$", log, re.MULTILINE
    )
    resumed = re.findall(r"^Resumed after step (\d+), in epoch \d+\.$", log, re.MULTILINE)
    assert [step for step, _ in result][: len(resumed)] == resumed
    return [(int(step), why) for step, why in result]


@pytest.mark.slow
def test_interrupted_training_equals_an_uninterrupted_one(site: sites.Site) -> None:
    lab = site.lab
    quiet = submit(site, "quiet", LONG, EPOCHS)
    site.run("wait", quiet, timeout_seconds=300)
    expected = epochs(lines(lab, site.job(quiet)))
    assert len(expected) == EPOCHS * len(NAMES)

    disturbed = submit(site, "disturbed", LONG, EPOCHS)
    job = site.job(disturbed)
    wait_epochs(site, job, 0, 2)
    # What Slurm does at --signal=B:USR1@60: the script asks, the ranks agree, save, are requeued.
    lab.run(["scancel", "--signal=USR1", "--batch", disturbed], user="alice")
    wait_epochs(site, job, 1, 2)
    # Killed immediately: the next attempt resumes from the last checkpoint.
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
    assert "because the stop file exists: checkpoint saved.\n" in log
    assert log.count("Resumed after step ") == 2
    # To the bit, though it was stopped in the middle of an epoch and killed later.
    assert epochs(lines(lab, job)) == expected
    result = json.loads(lab.read(f"{job['run_dir']}/result.json"))
    assert (result["finished"], result["num_samples"]) == (True, EPOCHS * 1438)


@pytest.mark.early
def test_time_limit_saves_and_requeues(site: sites.Site) -> None:
    # Slurm's signal: sent when Slurm checks limits, every half minute.
    job = 'time_limit = "00:03:00"\nsignal_seconds = 175'
    # At full speed it would keep both cores from other tests for a minute.
    limited = submit(site, "limited", job, 100_000, epoch_seconds=1.0)
    log: list[str] = []

    def resumed() -> bool:
        log[:] = [site.run("logs", limited).stdout]
        return "Resumed after step " in log[0]

    site.lab.wait_for(resumed, 450, "the second attempt's training", 1)
    step, why = stops(log[0])[0]
    assert why == "the stop file exists"
    run_dir = site.job(limited)["run_dir"]
    assert site.lab.read(f"{run_dir}/stop.0.0").startswith("USR1 ")
    assert site.lab.read(f"{run_dir}/requeue.0.0") == f"saved at step {step}\n"
    record = json.loads(site.lab.read(f"{run_dir}/exit.0.0.json"))
    assert (record["outcome"], record["rc"], record["done"]) == ("requeue", 0, True)
    site.run("cancel", limited)
    site.run("wait", limited, check=None)


def undisturbed(site: sites.Site, number: int) -> tuple[int, dict[tuple[str, int], float]]:
    """A time limit that leaves time to train, minutes, and the numbers of an undisturbed run."""
    quiet = submit(site, "quiet", 'time_limit = "01:00:00"', number)
    site.run("wait", quiet, timeout_seconds=1200)
    job = site.job(quiet)
    expected = epochs(lines(site.lab, job))
    assert len(expected) == number * len(NAMES)
    # A busy machine needs a minute to import PyTorch, and several trainings start at once. Of a
    # limit a third is left at the signal, and a tenth at the trainer's own end.
    began = datetime.datetime.fromisoformat(job["started_at"]).timestamp()
    first = datetime.datetime.fromisoformat(lines(site.lab, job)[0]["time"]).timestamp()
    return 2 + math.ceil((first - began) * 3 / 60), expected


@pytest.mark.timeout(3600)
@pytest.mark.slow
def test_training_over_several_time_limits_equals_an_uninterrupted_one(site: sites.Site) -> None:
    lab = site.lab
    minutes, expected = undisturbed(site, LIMITED_EPOCHS)
    limit = f'time_limit = "{minutes}"'
    whys = {f"{limit}\nsignal_seconds = {minutes * 20}": "the stop file exists"}
    if lab.settings.release != "22.05":  # its jobs do not know when they end
        whys[limit] = "the time limit is near"
    jobs = {
        submit(site, f"limited{number}", job, LIMITED_EPOCHS, minutes * 60 / LIMITED_EPOCHS): why
        for number, (job, why) in enumerate(whys.items())
    }
    site.run("wait", *jobs, timeout_seconds=2000)
    for job_id, why in jobs.items():
        job, stopped = site.job(job_id), stops(site.run("logs", job_id).stdout)
        assert stopped and {reason for _, reason in stopped} == {why}
        assert (job["state"], job["exit_code"], job["attempt"]) == ("COMPLETED", 0, len(stopped))
        assert epochs(lines(lab, job)) == expected
        result = json.loads(lab.read(f"{job['run_dir']}/result.json"))
        assert (result["finished"], result["num_samples"]) == (True, LIMITED_EPOCHS * 1438)
