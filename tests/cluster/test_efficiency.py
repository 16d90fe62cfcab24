"""Efficiency of jobs with real accounts: `show` and `usage`."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest

from tests.cluster import faults
from tests.cluster import site as sites

#: Uses one CPU and some memory for a given time.
WORK = (
    "import sys, time; kept = bytearray(int(sys.argv[2]) << 20);"
    " kept[::4096] = b'x' * len(kept[::4096]); end = time.time() + float(sys.argv[1]);"
    " any(time.time() > end for _ in iter(int, 1))"
)
GPU_CSV = pathlib.Path(__file__).parents[1] / "data/gpu_usage_olivia.log"


def test_usage_of_a_job(site: sites.Site) -> None:
    line = f"{sites.PYTHON} -c {json.dumps(WORK)} 6 300"
    # In the format of the Olivia guide, in a separate file.
    watched = f"cat > gpu_$SLURM_JOB_ID.log <<'EOF'\n{GPU_CSV.read_text()}EOF\nsrun {line}"
    resources = 'nodes = 2\nntasks_per_node = 1\ncpus_per_task = 2\nmem = "1G"\ngpus_per_node = 1'
    csv = 'gpu_csv = ["gpu_%j.log"]'
    spec = site.shell("card", watched, job='labels = ["team=a"]', resources=resources, metrics=csv)
    busy = site.submit(spec)
    site.wait_state(busy, "COMPLETED")
    card: dict[str, Any] = {}

    def settled() -> bool:
        (job,) = site.items("show", busy, "--refresh")
        card.update(job["efficiency"])
        return not job["efficiency"]["unknown"] or site.lab.settings.release == "22.05"

    site.lab.wait_for(settled, 60, "the accounts to be complete", 1)
    (job,) = site.items("show", busy)
    card = job["efficiency"]
    assert (job["cpus"], job["gpus"], card["cpus"], card["gpus"]) == (4, 2, 4, 2)
    assert 0 < card["cpu_share"] < 0.7, "two of four CPUs, less the start"
    if site.lab.settings.release != "22.05":
        # 300 MiB and Python; this lab's 22.05 measures no memory.
        assert 300 << 20 < card["memory_peak_bytes"] < 340 << 20
        assert card["memory_asked_bytes"] == 1 << 30
    assert [(gpu["index"], round(gpu["idle_share"], 2)) for gpu in job["gpus_used"]] == [
        ("0", 0.25),
        ("1", 1.0),
    ]
    # What is settled is kept.
    with site.lab.faults(faults.Rule(command="sacct", run=False, rc=1)) as wrong:
        again = site.with_env(**wrong.env).items("show", busy)
    assert again[0]["efficiency"] == card
    (used,) = site.items("usage", "--by", "label:team")
    hours = job["elapsed_seconds"] / 3600
    assert used["label:team"] == "a"
    assert used["gpu_hours"] == pytest.approx(2 * hours)
    assert used["core_hours"] == pytest.approx(4 * hours)
