"""alice's jobs that the pages show, a sweep, a scaling study, a graph and a schedule."""

from __future__ import annotations

import dataclasses
import functools
import json

from tests.cluster import site as sites

#: It never ends, on one thread.
TRAIN = (
    f"OMP_NUM_THREADS=1 PACE_SECONDS=1 {sites.PYTHON} -m tests.cluster.paced_training"
    " --device cpu --epochs 1000000"
    ' --batch-size 4 --window-steps 100 --checkpoint-dir "$ORCHESTRATOR_RUN_DIR/checkpoints"'
)
FAIL = """\
for step in 100 200 300 400; do echo "step $step loss 2.$((900 - step))"; done
echo "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB." \
    "GPU 0 has a total capacity of 79.10 GiB of which 1.02 GiB is free."
exit 1
"""
METRICS = 'patterns = ["olivia"]'
#: Prints the lines of a file as they come, until one of them is `end`.
FOLLOW = """\
import sys, time
with open(sys.argv[1]) as file:
    while (line := file.readline()) != "end\\n":
        if line:
            print(line, end="", flush=True)
        else:
            time.sleep(0.02)
"""
#: Text that must not become a part of a page, a script, or a sequence of a terminal.
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'><svg onload=alert(3)>{{7*7}}"
PRINT_HOSTILE = f"""\
text = {HOSTILE!r}
print("\\x1b]0;owned\\x07\\x1b[31mred\\x1b[0m \\u202eright to left\\u2028javascript:alert(4)", text)
raise RuntimeError("CUDA out of memory. " + text)
"""
#: A run of a few milliseconds with the metrics of a long one.
POINT = """\
import json, math, os, sys
lr, width = float(sys.argv[2]), int(sys.argv[4])
with open(os.environ["ORCHESTRATOR_METRICS_FILE"], "a") as file:
    for epoch in range(1, 31):
        loss = 2.3 * math.exp(-epoch * lr * 3) + 8 / width + lr * (epoch % 3) / 10
        if lr > 0.5:
            loss = 2.3 + epoch * 128 / width
        record = {"rank": 0, "world_size": 1, "unit": "", "epoch": epoch, "step": 50 * epoch}
        for name, value in (("loss", loss), ("val_accuracy", 1 / (1 + loss / 4))):
            print(json.dumps({**record, "name": name, "value": value}), file=file)
if lr > 0.5:
    sys.exit("loss is NaN")
"""
SWEEP = """\
[job]
name = "vit-lr"
time_limit = "5"
[resources]
mem = "50M"
[launch]
launcher = "python"
script = "point.py"
[sweep]
kind = "grid"
[sweep.axes]
"args.lr" = [0.01, 0.03, 0.1, 1.0]
"args.width" = [64, 128, 256]
"""
#: 5 % serial; the second repeat is 1 % faster.
RUN = """\
import json, os
gpus, task = int(os.environ["SLURM_GPUS_ON_NODE"]), int(os.environ["SLURM_ARRAY_TASK_ID"])
speed = 1000 * gpus / (1 + 0.05 * (gpus - 1)) * (1 + 0.01 * task)
with open(os.environ["ORCHESTRATOR_METRICS_FILE"], "a") as file:
    for step in range(9):
        record = {"rank": 0, "world_size": gpus, "unit": "samples/s", "step": step}
        value = speed * (0.99 + 0.005 * (step % 3))
        print(json.dumps({**record, "name": "window_throughput", "value": value}), file=file)
"""
STUDY = """\
[job]
name = "vit-scaling"
time_limit = "5"
[resources]
mem = "50M"
[launch]
launcher = "python"
script = "run.py"
[args]
batch_size = 64
[sweep]
kind = "strong"
gpus = [1, 2, 4]
gpus_per_node = 4
repeats = 2
"""
GRAPH = """\
[graph]
name = "gpt-small"
[graph.nodes.tokenize]
spec = "tokenize.toml"
[graph.nodes.pretrain]
spec = "pretrain.toml"
after_ok = ["tokenize"]
[graph.nodes.summary]
spec = "summary.toml"
after_any = ["tokenize"]
"""


@dataclasses.dataclass(frozen=True)
class Shown:
    """The jobs, and where their pages are."""

    site: sites.Site
    #: job ID by name
    ids: dict[str, str]

    @property
    def followed(self) -> str:
        """The file whose lines the job `follow` prints."""
        return f"{self.site.home}/followed"

    @functools.cached_property
    def rows(self) -> dict[str, int]:
        """The number of each job's page, by name; of `vit-lr` also by point: `vit-lr-0`."""
        jobs = self.site.items("status", "--all", "--no-refresh")
        names = {job_id: name for name, job_id in self.ids.items()}
        named = {names[job["job_id"]]: job["row"] for job in jobs if job["job_id"] in names}
        points = [job for job in jobs if job["name"] == "vit-lr"]
        return named | {f"vit-lr-{job['job_id'].partition('_')[2]}": job["row"] for job in points}


def submit(site: sites.Site) -> Shown:
    """Submit them all; the training first, because it takes the longest to begin."""
    shown = Shown(site, {})
    site.lab.write(shown.followed, "")
    site.lab.write(f"{site.home}/follow.py", FOLLOW)
    follow = f"{sites.PYTHON} {site.home}/follow.py {shown.followed}"
    gpus = "gpus_per_node = 4"
    for name, command, tables in (
        ("vit-base", TRAIN, {"resources": f'{gpus}\nmem = "2G"', "metrics": METRICS}),
        ("vit-small", "sleep 3000", {"resources": "gpus_per_node = 2"}),
        ("bert-large", FAIL, {"resources": gpus}),
        ("vit-large", "true", {"resources": f"{gpus}\nnodes = 4", "sbatch": "hold = true"}),
        ("resnet50", follow, {}),
    ):
        job = 'time_limit = "01:00:00"\nlabels = ["team=vision"]'
        shown.ids[name] = site.submit(site.shell(name, command, job=job, **tables))
    site.lab.write(f"{site.home}/point.py", POINT)
    site.run("sweep", "submit", site.spec("sweep", SWEEP))
    site.lab.write(f"{site.home}/run.py", RUN)
    site.run("sweep", "submit", site.spec("study", STUDY), "--yes")
    for name in ("tokenize", "pretrain", "summary"):
        site.shell(name, "true", resources='mem = "50M"')
    site.run("graph", "submit", site.spec("graph", GRAPH))
    site.run("schedule", "add", "nightly", "--cron", "0 2 * * *", site.shell("nightly", "true"))
    return shown


def submit_hostile(site: sites.Site) -> str:
    """Run a job with hostile text in its log and label, and in its name; return its ID.

    The commands refuse such a name, so it is written into the database.
    """
    site.lab.write(f"{site.home}/hostile.py", PRINT_HOSTILE)
    label = json.dumps(f"note={HOSTILE}")
    job = f'time_limit = "00:05:00"\nlabels = [{label}]'
    command = f"{sites.PYTHON} {site.home}/hostile.py"
    job_id = site.submit(site.shell("hostile", command, job=job))
    site.run("wait", job_id, check=None)
    statement = "UPDATE submissions SET name = ? WHERE name = 'hostile'"
    code = (
        "import sqlite3; db = sqlite3.connect('state/orchestrator.db'); "
        f"db.execute({statement!r}, {(HOSTILE,)!r}); db.commit()"
    )
    site.lab.run([sites.PYTHON, "-c", code], cwd=site.home).check_returncode()
    return job_id
