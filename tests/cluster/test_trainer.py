"""The trainer's other programs in real jobs; test_digits and test_examples have the trainings."""

from __future__ import annotations

import re

from tests.cluster import site as sites
from tests.cluster import test_digits as digits

TWO_HOSTS = ("resources.nodes=2", "resources.gpus_per_node=2")


def test_preflight_of_two_hosts_is_ready(site: sites.Site) -> None:
    changes = (
        *TWO_HOSTS,
        "launch.module=trainers.preflight",
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
    assert (job["nodes"], job["gpus"]) == (2, 4)
    assert log.endswith("preflight: ready\n")
    assert "ok       clock: 2 node(s) within a second\n" in log
    assert "ok       data: digits, 1438 samples for training and 359 for testing" in log
    sums = re.findall(r"^ok       all-reduce: +(\S+ \S+) ", log, re.MULTILINE)
    assert sums == ["1 B", "4 B", "16 B", "64 B", "256 B", "1 KiB", "4 KiB"]
