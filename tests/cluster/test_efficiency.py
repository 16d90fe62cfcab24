"""What jobs used of what they got, by real accounts: `show` and `usage`."""

from __future__ import annotations

import json
import pathlib

from tests.cluster import site as sites

#: Burns one CPU for as long as it is told, with so many MiB in memory.
WORK = (
    "import sys, time; kept = bytearray(int(sys.argv[2]) << 20);"
    " kept[::4096] = b'x' * len(kept[::4096]); end = time.time() + float(sys.argv[1]);"
    " [None for _ in iter(lambda: time.time() < end, False)]"
)
GPU_CSV = pathlib.Path(__file__).parents[1] / "data/gpu_usage_olivia.log"


def test_the_card_of_a_job(site: sites.Site) -> None:
    line = f"{sites.PYTHON} -c {json.dumps(WORK)} 12 300"
    with_csv = f"printf '%s' {json.dumps(GPU_CSV)} > gpu_$SLURM_JOB_ID.log; srun {line}"
    resources = 'nodes = 2\nntasks_per_node = 1\ncpus_per_task = 2\nmem = "1G"\ngpus_per_node = 1'
    spec = site.shell("card", with_csv, resources=resources, metrics='gpu_csv = ["gpu_%j.log"]')
    lazy = site.submit(site.shell("lazy", "sleep 5", resources="cpus_per_task = 2"))
    busy = site.submit(spec)
    job = site.wait_state(busy, "COMPLETED")
    site.lab.wait_for(lambda: _settled(site, busy), 60, "the accounts to be complete", 1)
    (job,) = site.items("show", busy)
    card = job["efficiency"]
    assert (job["cpus"], job["gpus"], card["cpus"]) == (4, 2, 4)
    print(json.dumps(card, indent=1), json.dumps(job["gpus_used"], indent=1))
    print(site.run("show", busy).stdout)
    print(site.run("show", lazy).stdout)
    assert 300 << 20 < card["memory_peak_bytes"] < 400 << 20
    assert card["memory_asked_bytes"] == 1 << 30
    assert 0.3 < card["cpu_share"] < 0.55, "two of four CPUs, less the start"


def _settled(site: sites.Site, reference: str) -> bool:
    (job,) = site.items("show", reference, "--refresh")
    return bool(job["efficiency"]["memory_peak_bytes"])
