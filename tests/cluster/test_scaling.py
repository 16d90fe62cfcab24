"""A strong and a weak scaling study of a training: from the command to the table and plots."""

from __future__ import annotations

import json

import pytest

from tests.cluster import lab as cluster
from tests.cluster import site as sites

#: One rank a host, one thread a rank: hosts share the machine's cores.
SPEC = """\
[job]
name = "{kind}"
time_limit = "30"
[resources]
cpus_per_task = 1
mem = "1500M"
{tasks}
[environment]
variables.OMP_NUM_THREADS = "1"
[launch]
launcher = "{launcher}"
module = "trainers.train"
[args]
{batch}
epochs = 3
window_steps = 5
device = "cpu"
[metrics]
patterns = ["olivia"]
[sweep]
kind = "{kind}"
nodes = [1, 2, 4]
repeats = 2
"""
#: Launcher and number of tasks. torchrun loads PyTorch too, which doubles the time of the study.
LAUNCHES = {"strong": ("srun", "ntasks_per_node = 1"), "weak": ("torchrun", "")}
BATCHES = {"strong": "batch_size = 64", "weak": "per_device_batch_size = 32"}
FIGURES = ("speedup", "efficiency", "throughput", "steps")


@pytest.mark.timeout(1500)
@pytest.mark.parametrize("kind", ["strong", pytest.param("weak", marks=pytest.mark.slow)])
@pytest.mark.early
def test_a_study_of_the_digits_trainer(lab: cluster.Lab, site: sites.Site, kind: str) -> None:
    launcher, tasks = LAUNCHES[kind]
    text = SPEC.format(kind=kind, launcher=launcher, tasks=tasks, batch=BATCHES[kind])
    spec = site.spec(kind, text)
    site.run("sweep", "submit", spec, "--wait", timeout_seconds=1200)
    done = site.run("sweep", "report", kind, "--to", f"{site.home}/report", "--json")
    (curve,) = json.loads(done.stdout)["items"]
    points = curve["points"]
    assert [(point["ranks"], point["nodes"], point["runs"]) for point in points] == [
        (1, "1", 2),
        (2, "2", 2),
        (4, "4", 2),
    ]
    for point in points:
        assert point["throughput_low"] < point["throughput"] < point["throughput_high"]
        assert point["interval_of"] == "repeats" and point["windows"] > 0
        assert point["accuracy"] > 0.5 and point["source"] == "jsonl"
        assert 0.0 <= point["data_wait_share"] < 1.0 and point["epoch_seconds"] > 0.0
    assert points[0]["speedup"] == 1.0
    assert curve["amdahl"] is not None and curve["usl"] is None
    # The hosts share two cores and the jobs run concurrently, so the efficiency is meaningless.
    assert f"{kind} scaling: the " in "\n".join(curve["notes"])
    held = ("batch_size", "64") if kind == "strong" else ("per_device_batch_size", "32")
    assert held in curve["common"].items()
    written = set(lab.run(["ls", f"{site.home}/report"]).stdout.split())
    assert written == {
        *(f"report.{kind}" for kind in ("md", "tex", "csv", "json", "html")),
        *(f"{name}.{kind}" for name in FIGURES for kind in ("svg", "png", "pdf", "csv")),
    }
