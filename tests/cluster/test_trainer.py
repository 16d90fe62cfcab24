"""The trainer's other programs in real jobs; test_digits and test_examples have the trainings."""

from __future__ import annotations

import datetime
import re
import time

from tests.cluster import site as sites
from tests.cluster import test_digits as digits
from tests.cluster import test_resumed_training as resumed


def test_preflight_succeeds_on_two_hosts(site: sites.Site) -> None:
    changes = (
        *digits.ONE_RANK_A_HOST,
        "launch.module=trainers.tools.preflight",
        # The training's own arguments are left out.
        "args.batch_size=false",
        "args.epochs=false",
        "args.dataset=digits",
        # The hosts' GPUs are in Slurm's books only.
        "args.device=cpu",
        "args.largest_bytes=4096",
        'environment.variables.OMP_NUM_THREADS="1"',
    )
    words = [digits.BARE, *(word for change in changes for word in ("--set", change))]
    job, log = digits.train(site, words)
    assert (job["nodes"], job["gpus"]) == (2, 2)
    # Not the last line: torchrun of the host that ends last warns that the other's store is gone.
    assert "preflight: ready" in log.splitlines()
    assert "ok       data: digits, 1438 samples for training and 359 for testing" in log
    sums = re.findall(r"^ok       all-reduce: +(\S+) B ", log, re.MULTILINE)
    assert sums == ["4", "16", "64", "256", "1,024", "4,096"]


def test_dead_rank_ends_the_job_within_a_minute(site: sites.Site) -> None:
    lab = site.lab
    job_id = resumed.submit(site, "dying", 'time_limit = "00:05:00"', 100_000, 0.5)
    resumed.wait_epochs(site, site.job(job_id), 0, 1)
    second = lab.run(["scontrol", "show", "hostnames", site.job(job_id)["node_list"]]).stdout
    host = second.split()[1]
    # torchrun and the launcher's shells have the words as well; the rank began last.
    rank = lab.run(["pgrep", "-nf", "paced_training"], user="root", host=host).stdout.strip()
    lab.run(["kill", "-KILL", rank], user="root", host=host).check_returncode()
    died = time.time()
    site.run("wait", job_id, check=None)
    job, log = site.job(job_id), site.run("logs", job_id).stdout
    assert job["state"] == "FAILED"
    ended = datetime.datetime.fromisoformat(job["ended_at"]).timestamp()
    assert ended - died < 60
    assert re.search(r"rank      : 1 \(local_rank: 0\)\n.*  exitcode  : -9 ", log), log
    assert "rank 0 of 2 ends because another rank exited or cannot be reached" in log
