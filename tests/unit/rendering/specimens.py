"""Specs that between them use every template, for the golden scripts."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any
from unittest import mock

from orchestrator import fabrics, jobs
from orchestrator.config import profiles
from orchestrator.rendering import batch_file, job_script, templates

PROFILE = profiles.Profile(
    name="site",
    account="nn9999k",
    partition="accel",
    modules=("SiteDefaults/1",),
    binds=("/cluster/software:/cluster/software:ro",),
    variables={"NCCL_DEBUG": "WARN"},
)
BARE = profiles.Profile(name="bare")

_TRAIN = jobs.Launch(module="trainers.train")
_ARGS = {"batch_size": 64, "epochs": 5, "amp": True, "verbose": False, "tags": ("a", "b c")}
_ONE = jobs.Resources(nodes=1, gpus_per_node=4, cpus_per_task=16)
_TWO = jobs.Resources(nodes=2, gpus_per_node=4, cpus_per_task=72, mem="440G")


def _launch(**changes: object) -> jobs.Launch:
    return jobs.Launch(**{"module": "trainers.train", **changes})  # type: ignore[arg-type]


def _program(*words: str, **changes: object) -> jobs.Launch:
    return jobs.Launch(program=words, **changes)  # type: ignore[arg-type]


def _container(runtime: str, gpu: str = "nv") -> jobs.Container:
    image = "nvcr.io#nvidia/pytorch:25.01-py3" if runtime == "pyxis" else "/images/torch.sif"
    return jobs.Container(
        runtime=runtime,  # type: ignore[arg-type]
        image=image,
        gpu=gpu,  # type: ignore[arg-type]
        binds=("/cluster/my data:/data:ro",),
    )


RUNS_DIR = Path("/cluster/work/alice/runs")
SPECS: dict[str, tuple[jobs.JobSpec, profiles.Profile]] = {
    "standalone": (
        jobs.JobSpec(name="digits", resources=_ONE, launch=_TRAIN, args=_ARGS),
        BARE,
    ),
    "standalone_found_gpus_venv": (
        jobs.JobSpec(
            name="digits",
            environment=jobs.Environment(venv="/envs/torch", setup="ulimit -c 0\nnvidia-smi -L"),
            launch=jobs.Launch(launcher="torchrun", script="train.py"),
        ),
        BARE,
    ),
    "standalone_modules_gres": (
        jobs.JobSpec(
            name="digits",
            resources=jobs.Resources(gres="gpu:a100:2,nvme:1"),
            environment=jobs.Environment(modules=("NRIS/GPU", "PyTorch/2.6")),
            launch=_program("python", "-u", "train.py", "--lr", "1e-3"),
        ),
        PROFILE,
    ),
    "standalone_conda": (
        jobs.JobSpec(
            name="digits",
            environment=jobs.Environment(conda="torch", module_purge=True, export="none"),
            launch=_program("./train", "--fast", launcher="torchrun", nproc_per_node=2),
        ),
        BARE,
    ),
    "c10d": (
        jobs.JobSpec(name="digits", resources=_TWO, launch=_TRAIN, args=_ARGS),
        BARE,
    ),
    "c10d_modules_venv": (
        jobs.JobSpec(
            name="digits",
            resources=jobs.Resources(nodes=4, gpus_per_node=4, gpu_type="h100"),
            environment=jobs.Environment(modules=("NRIS/GPU",), venv="/envs/torch"),
            launch=_launch(),
        ),
        PROFILE,
    ),
    "c10d_apptainer": (
        jobs.JobSpec(
            name="digits",
            resources=_TWO,
            environment=jobs.Environment(
                modules=("apptainer",),
                variables={"NCCL_SOCKET_IFNAME": "hsn0,hsn1"},
                secrets_file="/home/alice/.secrets",
            ),
            container=_container("apptainer"),
            launch=_launch(),
            args=_ARGS,
            retry=jobs.Retry(max_retries=3),
        ),
        PROFILE,
    ),
    "c10d_apptainer_venv": (
        jobs.JobSpec(
            name="digits",
            resources=_TWO,
            environment=jobs.Environment(
                venv="/envs/over image", fabric="olivia", variables={"NCCL_CROSS_NIC": "0"}
            ),
            container=_container("apptainer", gpu="none"),
            launch=_launch(),
        ),
        BARE,
    ),
    "c10d_pyxis": (
        jobs.JobSpec(
            name="digits", resources=_TWO, container=_container("pyxis"), launch=_launch()
        ),
        dataclasses.replace(PROFILE, fabric="lumi"),
    ),
    "c10d_podman_hpc": (
        jobs.JobSpec(
            name="digits",
            resources=_TWO,
            environment=jobs.Environment(secrets_file="/home/alice/.secrets"),
            container=dataclasses.replace(_container("podman-hpc"), image="alice/torch:2.6"),
            launch=_launch(),
        ),
        PROFILE,
    ),
    "srun_podman_hpc_rocm": (
        jobs.JobSpec(
            name="digits",
            resources=_TWO,
            container=jobs.Container(runtime="podman-hpc", image="torch", gpu="rocm"),
            launch=jobs.Launch(launcher="srun", script="train.py"),
            retry=jobs.Retry(max_retries=3),
        ),
        BARE,
    ),
    "c10d_charliecloud_snapshot_on_nodes": (
        jobs.JobSpec(
            name="digits",
            resources=_TWO,
            container=jobs.Container(
                runtime="charliecloud", image="images/my torch", binds=("/my data:/data", "/opt")
            ),
            launch=_launch(),
            code=jobs.Code(
                snapshot=True, tree="0" * 40, root="/home/alice", folder=".", unpack="node"
            ),
        ),
        BARE,
    ),
    "static_edf": (
        jobs.JobSpec(
            name="digits",
            resources=_TWO,
            container=jobs.Container(runtime="edf", image="torch.toml", binds=("/my data",)),
            launch=_launch(rendezvous="static"),
        ),
        PROFILE,
    ),
    "python_edf_name": (
        jobs.JobSpec(
            name="digits",
            container=jobs.Container(runtime="edf", image="torch"),
            launch=jobs.Launch(launcher="python", command="python3 -V"),
        ),
        BARE,
    ),
    "standalone_singularity_rocm_conda": (
        jobs.JobSpec(
            name="digits",
            resources=_ONE,
            environment=jobs.Environment(conda="/opt/conda/envs/torch"),
            container=_container("singularity", gpu="rocm"),
            launch=jobs.Launch(script="train.py"),
        ),
        BARE,
    ),
    "srun_apptainer_trackers": (
        jobs.JobSpec(
            name="digits",
            resources=_TWO,
            container=_container("apptainer"),
            launch=jobs.Launch(launcher="srun", script="train.py"),
            tracking=jobs.Tracking(
                trackers=("wandb", "mlflow", "trackio"), project="dig its", entity="team"
            ),
        ),
        BARE,
    ),
    "static": (
        jobs.JobSpec(name="digits", resources=_TWO, launch=_launch(rendezvous="static")),
        BARE,
    ),
    "srun": (
        jobs.JobSpec(
            name="digits",
            resources=_TWO,
            launch=jobs.Launch(launcher="srun", script="train.py"),
            args=_ARGS,
        ),
        BARE,
    ),
    "srun_apptainer": (
        jobs.JobSpec(
            name="digits",
            resources=_TWO,
            container=_container("apptainer"),
            launch=_launch(launcher="srun"),
        ),
        BARE,
    ),
    "srun_pyxis_command": (
        jobs.JobSpec(
            name="digits",
            resources=jobs.Resources(ntasks=6, gres="gpu:2"),
            container=_container("pyxis"),
            launch=jobs.Launch(launcher="srun", command="cd /data || exit\npython3 train.py"),
        ),
        BARE,
    ),
    "lightning_apptainer_amd": (
        jobs.JobSpec(
            name="digits",
            resources=dataclasses.replace(_TWO, gpu_vendor="amd"),
            container=jobs.Container(runtime="apptainer", image="/images/torch.sif"),
            launch=jobs.Launch(framework="lightning", script="train.py"),
            args={"trainer.devices": 4},
            retry=jobs.Retry(max_retries=3),
        ),
        BARE,
    ),
    "ray_amd": (
        jobs.JobSpec(
            name="digits",
            resources=dataclasses.replace(_TWO, gpu_vendor="amd"),
            environment=jobs.Environment(variables={"RAY_AUTH_MODE": "disabled"}),
            launch=jobs.Launch(framework="ray", script="train.py"),
            args=_ARGS,
        ),
        BARE,
    ),
    "megatron_intel": (
        jobs.JobSpec(
            name="digits",
            resources=_TWO,
            launch=jobs.Launch(framework="megatron", script="pretrain_gpt.py"),
        ),
        profiles.Profile(name="xpu", gpu_vendor="intel"),
    ),
    "python": (
        jobs.JobSpec(name="digits", launch=jobs.Launch(launcher="python", script="train.py")),
        BARE,
    ),
    "python_apptainer": (
        jobs.JobSpec(
            name="digits",
            container=_container("apptainer"),
            launch=_launch(launcher="python"),
        ),
        BARE,
    ),
    "python_pyxis": (
        jobs.JobSpec(
            name="digits",
            container=_container("pyxis"),
            retry=jobs.Retry(max_retries=3),
            launch=jobs.Launch(launcher="python", program=("-m", "trainers.train", "-h")),
        ),
        BARE,
    ),
    "auto_one_rank": (
        jobs.JobSpec(
            name="digits",
            resources=jobs.Resources(gpus_per_node=1, cpus_per_task=8),
            launch=_program("train.py", "--lr", "0.1"),
        ),
        BARE,
    ),
    "auto_as_it_is": (
        jobs.JobSpec(
            name="digits",
            resources=jobs.Resources(nodes=2, gpus_per_node=4, cpus_per_task=8),
            launch=_program("bash", "-c", "echo it\'s me"),
        ),
        BARE,
    ),
    "auto_interpreter": (
        jobs.JobSpec(
            name="digits",
            resources=_ONE,
            launch=_program("/envs/my torch/bin/python3", "-uO", "train.py"),
        ),
        BARE,
    ),
    "auto_tasks": (
        jobs.JobSpec(
            name="digits",
            resources=jobs.Resources(nodes=2, ntasks=8, cpus_per_task=4),
            launch=jobs.Launch(script="train.py"),
            args=_ARGS,
        ),
        BARE,
    ),
    "command": (
        jobs.JobSpec(
            name="digits",
            launch=jobs.Launch(command="hostname && sleep 10 # a nap"),
            tracking=jobs.Tracking(trackers=("mlflow",), project="digits"),
        ),
        BARE,
    ),
    "command_apptainer": (
        jobs.JobSpec(
            name="digits",
            container=_container("apptainer", gpu="none"),
            launch=jobs.Launch(command="python3 -V"),
        ),
        BARE,
    ),
    "array": (
        jobs.JobSpec(
            name="sweep",
            resources=_ONE,
            launch=_TRAIN,
            args=_ARGS,
            array=jobs.Array(
                tasks=(
                    {"lr": 0.1},
                    {"lr": 0.01, "batch-size": 128},
                    {"amp": False, "tags": ("d", "it's home")},
                ),
                max_running=2,
            ),
        ),
        BARE,
    ),
    "array_of_a_size": (
        jobs.JobSpec(
            name="sweep",
            launch=jobs.Launch(command='./point.sh "$SLURM_ARRAY_TASK_ID"'),
            tracking=jobs.Tracking(trackers=("mlflow",), project="digits"),
            array=jobs.Array(size=8),
        ),
        BARE,
    ),
    "every_directive": (
        jobs.JobSpec(
            name="digits",
            account="nn1k",
            partition="accel",
            qos="devel",
            reservation="course",
            constraint="a100&nvlink",
            time_limit="1-02:00:00",
            comment="it's 5 o'clock #now",
            mail_type="END,FAIL",
            mail_user="alice@example.org",
            dependency="afterok:12:13",
            requeue=True,
            signal_seconds=120,
            exclusive=True,
            nodelist="n[1-2]",
            exclude="n3",
            output="/logs/%x \\ %j.out",
            error="/logs/%j.err",
            chdir="/work dir",
            resources=jobs.Resources(
                nodes=2, ntasks_per_node=1, gpus_per_node=4, gpu_type="a100", mem_per_gpu="64G",
                tmp="10G",
            ),
            environment=jobs.Environment(variables={"GREETING": "it's five"}),
            launch=jobs.Launch(command="true"),
            sbatch={"hint": "nomultithread", "overcommit": True, "nice": 10},
        ),
        profiles.Profile(name="gres", gres_style="gres", account="other"),
    ),
}  # fmt: skip
#: They run without Slurm: the first as it would on one node of a cluster, the second though its
#: spec names a rendezvous.
_CODE = jobs.Code(snapshot=True, tree="0" * 40, root="/home/alice/project", folder=".")
SPECS["array_snapshot"] = (
    jobs.JobSpec(
        name="digits",
        environment=jobs.Environment(setup="ulimit -c 0"),
        launch=_launch(script="train.py", module=None),
        array=jobs.Array(tasks=({"lr": 0.1}, {"lr": 0.2})),
        code=_CODE,
    ),
    BARE,
)
SPECS["c10d_apptainer_snapshot_on_nodes"] = (
    jobs.JobSpec(
        name="digits",
        resources=_TWO,
        container=_container("apptainer"),
        launch=_launch(),
        code=dataclasses.replace(_CODE, unpack="node"),
    ),
    PROFILE,
)
LOCAL = {"local_standalone": "standalone", "local_static": "static"}
for _name, _like in LOCAL.items():
    SPECS[_name] = SPECS[_like]


#: Batch files, rendered as they stand.
BATCH_FILES = {
    "batch_file": """\
#!/usr/bin/env python3
# A batch file of a user's.
#SBATCH --job-name="old job" -N 2
#SBATCH --output=/logs/%j.out

import sys

print({{"jinja": "$HOME", 'quotes': sys.argv}})
#SBATCH --time=not read by sbatch
""",
}
NAMES = sorted([*SPECS, *BATCH_FILES])


def script(name: str) -> str:
    """Render a specimen."""
    if name in BATCH_FILES:
        return batch_file.render(
            jobs.JobSpec(name="old"),
            BATCH_FILES[name],
            runs_dir=RUNS_DIR,
            origin=templates.Origin(version="0.1.0", spec=f"{name}.sbatch"),
        ).text
    spec, profile = SPECS[name]
    fabric = spec.environment.fabric or profile.fabric
    return job_script.render(
        spec,
        profile,
        runs_dir=RUNS_DIR,
        trainers_dir=Path("/opt/site/trainers"),
        local=name in LOCAL,
        origin=templates.Origin(version="0.1.0", spec=f"{name}.toml"),
        fabric=fabrics.load(fabric, ()) if fabric else None,
    ).text


def rendered(spec: jobs.JobSpec) -> str:
    """Render any spec."""
    origin = templates.Origin(version="0.1.0", spec="job.toml")
    return job_script.render(spec, BARE, runs_dir=RUNS_DIR, origin=origin).text


def sources_of(name: str) -> set[str]:
    """Return the names of the templates that a specimen uses."""
    loaders: list[templates._Loader] = []

    class Loader(templates._Loader):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            loaders.append(self)

    with mock.patch.object(templates, "_Loader", Loader):
        script(name)
    return {source for loader in loaders for source in loader.texts}
