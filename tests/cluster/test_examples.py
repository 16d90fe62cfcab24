"""Each example with its spec unchanged, and with smaller arguments by --set."""

from __future__ import annotations

import dataclasses
import pathlib
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster import lab as cluster
from tests.cluster import root
from tests.cluster import site as sites
from tests.cluster import test_digits as digits

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
#: The hosts' GPUs are in Slurm's books only, and tests run on two cores.
SMALL = (
    "args.epochs=1",
    "args.device=cpu",
    "args.precision=fp32",
    "args.tensorboard=false",
    'environment.variables.OMP_NUM_THREADS="1"',
    "resources.cpus_per_task=1",
    "resources.mem=2G",
)
#: One step.
SYNTHETIC = ("args.dataset=synthetic", "args.synthetic_samples=32")
IMAGE = (
    f"container.image={root.IMAGE}",
    f'container.binds=["{sites.ENVIRONMENT}"]',
    f"environment.venv={sites.ENVIRONMENT}",
)
IN_IMAGE = (
    *SYNTHETIC,
    # The document's network takes a CPU a minute for a step.
    "args.model=cnn",
    "args.batch_size=32",
    "job.partition=gpu",
    *IMAGE,
)
#: What a site's shell start-up file brings. The lab has no modules and no conda: these two say what
#: they were asked for, and the environment is the lab's.
SITE_SHELL = """\
module() {{
  echo "module $*"
  case "$*" in "load miniconda") PATH={home}/conda/bin:$PATH ;; esac
}}
"""
CONDA = '#!/bin/sh\n[ "$*" = "info --base" ] && echo {home}/conda\n'
CONDA_SHELL = f'conda() {{ echo "conda $*"; . {sites.ENVIRONMENT}/bin/activate; }}\n'
TRAIN = """\
import os, sys
words = " ".join(("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], *sys.argv[1:]))
sys.stdout.write(f"{words}\\n")
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Try:
    """One example, and what a person changes to see it run."""

    #: the document
    source: str
    changes: tuple[str, ...]
    #: in the log
    printed: tuple[str, ...]
    nodes: int = 1
    gpus: int = 2


OLIVIA_MODULES = ("LIBFABRIC", "NCCL", "AWSMINOFIMINNCCL")

TRIES = {
    "sca_dataparallel": Try(
        source="S0",
        # The document's second log, its reservation, its modules and its conda are as they stand.
        # DataParallel needs GPUs.
        changes=(
            *(*SMALL, *SYNTHETIC, "args.synthetic_shape=1,28,28", "args.batch_size=32"),
            "args.mode=single",
        ),
        printed=("module purge", "module load miniconda", "conda activate tutorial"),
    ),
    "har": Try(
        source="S1",
        changes=(
            *(*SMALL, *SYNTHETIC, "args.synthetic_shape=9,128", "args.synthetic_classes=6"),
            *("resources.gpus_per_node=2", "args.per_device_batch_size=16"),
        ),
        printed=("Training started with 2 processes across 1 nodes.",),
    ),
    "olivia": Try(
        source="S2",
        changes=(*SMALL, *IN_IMAGE, "resources.gpus_per_node=1"),
        printed=("Training started with 1 processes across 1 nodes.",),
        gpus=1,
    ),
    "olivia_two_nodes": Try(
        source="S2",
        # The folders of Olivia's modules, which the fabric binds.
        changes=(
            *(*SMALL, *IN_IMAGE, "resources.gpus_per_node=1"),
            *(f"environment.variables.EBROOT{name}=/srv" for name in OLIVIA_MODULES),
        ),
        printed=(
            "module load NRIS/GPU",
            "Training started with 2 processes across 2 nodes.",
        ),
        nodes=2,
    ),
    "nci_dataparallel": Try(
        source="S3",
        changes=(
            *(*SMALL, *SYNTHETIC, "args.batch_size=32", "resources.gpus_per_node=2"),
            "args.mode=single",
        ),
        printed=("Using 0 GPUs per node.", "Total processes: 1"),
    ),
    "lesson05": Try(
        source="S4",
        changes=(
            *(*SMALL, "args.synthetic_samples=32", "args.per_device_batch_size=16"),
            "resources.gpus_per_node=2",
        ),
        printed=("Training started with 2 processes across 1 nodes.",),
    ),
    "own_script": Try(
        source="",
        changes=(
            *("resources.gpus_per_node=2", "resources.cpus_per_task=2", "resources.mem=2G"),
            f"environment.venv={sites.ENVIRONMENT}",
        ),
        printed=("module load Python/3.12", "rank 0 of 2 --lr 0.1 --amp", "rank 1 of 2 --lr 0.1"),
    ),
    "own_task/train": Try(
        source="",
        # tasks.py is in the folder of submission, which is bound into the container.
        changes=(*SMALL, *IMAGE, "container.runtime=apptainer", "args.steps_per_epoch=5"),
        printed=(
            "Training started with 2 processes across 1 nodes.",
            "NextByte (137,088 parameters)",
            " tokens/second",
            "Training completed successfully.",
        ),
    ),
    "shell_line": Try(source="", changes=(), printed=("45",), gpus=0),
}


@pytest.fixture
def reservation(lab: cluster.Lab) -> Iterator[None]:
    """The document's reservation, for alice."""
    named = "ReservationName=SCA"
    argv = ["scontrol", "create", "reservation", named, "StartTime=now", "Duration=60"]
    done = lab.run([*argv, "Users=alice", "Nodes=n4", "PartitionName=gpu"], user="root")
    done.check_returncode()
    yield
    lab.run(["scancel", "--reservation=SCA", "--user=alice"], user="root")
    lab.wait_for(
        lambda: lab.run(["scontrol", "delete", named], user="root").returncode == 0,
        60,
        "the end of the reservation",
    )


def test_each_example_runs(site: sites.Site, reservation: None) -> None:
    lab, home = site.lab, site.home
    lab.write(f"{home}/site.sh", SITE_SHELL.format(home=home))
    lab.write(f"{home}/conda/bin/conda", CONDA.format(home=home), mode=0o755)
    lab.write(f"{home}/conda/etc/profile.d/conda.sh", CONDA_SHELL)
    lab.write(f"{home}/train.py", TRAIN)
    lab.write(f"{home}/tasks.py", (EXAMPLES / "own_task/tasks.py").read_text())
    # bash reads it in each job (man bash), as it does on sites that set it so for modules.
    user = site.with_env(BASH_ENV=f"{home}/site.sh")
    ids = {
        name: user.submit(
            f"{digits.EXAMPLES}/{name}.toml",
            *(word for change in entry.changes for word in ("--set", change)),
        )
        for name, entry in TRIES.items()
    }
    done = site.run("wait", *ids.values(), timeout_seconds=400, check=None)
    items = {item["job_id"]: item for item in site.items("status", "--all", "--no-refresh")}
    logs = {name: site.lab.read(items[job_id]["stdout_path"]) for name, job_id in ids.items()}
    assert done.returncode == 0, f"{done.stderr}\n{logs}"
    ended = {name: items[job_id] for name, job_id in ids.items()}
    assert {
        name: (job["state"], job["nodes"], job["gpus"] or 0) for name, job in ended.items()
    } == {name: ("COMPLETED", entry.nodes, entry.gpus) for name, entry in TRIES.items()}
    missing = [
        (name, line)
        for name, entry in TRIES.items()
        for line in entry.printed
        if line not in logs[name]
    ]
    assert not missing, logs
    for name, entry in TRIES.items():
        if entry.source:
            assert_measured(site, ended[name], logs[name])
    assert_logs_and_reservation(site, ids, items)


def assert_measured(site: sites.Site, job: dict[str, Any], log: str) -> None:
    """The trainer's own lines became numbers."""
    pattern = r"^Epoch Throughput: ([\d.]+) (?:images|samples)/second$"
    (printed,) = re.findall(pattern, log, re.MULTILINE)
    read = site.items("metrics", job["job_id"], "--name", "throughput", "--source", "log")
    assert [item["value"] for item in read if item["epoch"] is not None] == [float(printed)]
    assert log.rstrip().endswith("Training completed successfully.")


def assert_logs_and_reservation(
    site: sites.Site, ids: dict[str, str], jobs_by_id: dict[str, dict[str, Any]]
) -> None:
    """Two logs where the document has two, in the folder of submission; and its reservation."""
    for name, stem in (("sca_dataparallel", "logs"), ("olivia", "multigpu")):
        job_id = ids[name]
        paths = {key: jobs_by_id[job_id][key] for key in ("stdout_path", "stderr_path")}
        assert paths == {
            "stdout_path": f"{site.home}/{stem}_{job_id}.out",
            "stderr_path": f"{site.home}/{stem}_{job_id}.err",
        }
        site.lab.read(paths["stderr_path"])
    job = jobs_by_id[ids["sca_dataparallel"]]
    # Tests that wipe the state of slurmctld make it use IDs again.
    name = job["run_dir"].rpartition("/")[2]

    def nodes() -> list[str]:
        rows = site.lab.sacct(job["job_id"], "-X")
        return [row["NodeList"] for row in rows if row["JobName"] == name]

    site.lab.wait_for(lambda: nodes() == ["n4"], 120, "sacct to have the reserved node")
    assert job["node_list"] == "n4"
    output = site.run("show", ids["sca_dataparallel"], "--script").stdout
    assert "#SBATCH --reservation=SCA\n" in output and "#SBATCH --gres=gpu:2\n" in output
