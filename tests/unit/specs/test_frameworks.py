"""launch.framework: what it chooses, and the jobs whose ranks would wait for each other."""

from __future__ import annotations

import re
import shlex

import pytest

from orchestrator import errors, jobs, specs
from orchestrator.specs import framework_checks, frameworks, ranks
from orchestrator.toml import schema
from tests.unit.rendering import specimens

TRAIN = ["train.py"]


def problems(flags: dict[str, object], program: str = "train.py", *settings: str) -> list[str]:
    """Return the keys and messages of the problems of a spec."""
    words = [] if "launch.command" in flags or "launch.script" in flags else shlex.split(program)
    try:
        specs.load(None, settings=settings, flags=flags, program=words, folder=None)
    except errors.SpecError as error:
        return [f"{problem.key}: {problem.message}" for problem in error.problems]
    return []


def test_the_table_has_each_framework_of_the_key_and_a_source() -> None:
    hint = schema.fields_of(jobs.Launch)["framework"]
    assert sorted(frameworks.TABLE) == sorted(schema.choices(schema.bare(hint)))
    for framework in frameworks.TABLE.values():
        assert framework.source.startswith("https://")
        launchers = schema.choices(schema.fields_of(jobs.Launch)["launcher"])
        assert {*framework.launchers, framework.local_launcher} <= set(launchers)


@pytest.mark.parametrize(
    ("framework", "launcher", "tasks", "ranks_of_job"),
    [
        ("accelerate", "torchrun", 1, 8),
        ("jax", "srun", 4, 8),
        ("lightning", "srun", 4, 8),
        ("ray", "ray", 1, 8),
    ],
)
def test_a_framework_chooses_launcher_and_tasks(
    framework: str, launcher: str, tasks: int, ranks_of_job: int
) -> None:
    flags = {"launch.framework": framework, "resources.nodes": 2, "resources.gpus_per_node": 4}
    spec = specs.load(None, flags=flags, program=TRAIN)
    assert ranks.choose(spec).launcher == launcher
    assert (ranks.tasks_per_node(spec), ranks.world_size(spec)) == (tasks, ranks_of_job)
    reason = f"# launch.launcher is auto: {framework} {frameworks.TABLE[framework].reason} (https:"
    assert reason in specimens.rendered(spec)


def test_without_gpus_the_tasks_of_slurm_are_the_ranks() -> None:
    flags = {"resources.nodes": 2, "resources.ntasks_per_node": 3}
    for framework, tasks in (("transformers", 3), ("lightning", 3)):
        spec = specs.load(None, flags={**flags, "launch.framework": framework}, program=TRAIN)
        assert (ranks.tasks_per_node(spec), ranks.world_size(spec)) == (tasks, 6)


def test_the_users_launcher_and_variables_win() -> None:
    flags: dict[str, object] = {"launch.framework": "megatron", "launch.launcher": "srun"}
    flags |= {"resources.ntasks": 2}
    flags |= {"environment.variables": ("CUDA_DEVICE_MAX_CONNECTIONS=8",)}
    script = specimens.rendered(specs.load(None, flags=flags, program=TRAIN))
    assert "# ---- Launch: srun" in script
    assert re.findall(r".*export CUDA_DEVICE_MAX_CONNECTIONS=.*", script) == [
        "[[ -v CUDA_DEVICE_MAX_CONNECTIONS ]] || export CUDA_DEVICE_MAX_CONNECTIONS=1",
        "export CUDA_DEVICE_MAX_CONNECTIONS=8",
    ]


def test_the_launcher_ray_needs_a_token() -> None:
    flags: dict[str, object] = {"launch.launcher": "ray", "resources.nodes": 2}
    script = specimens.rendered(specs.load(None, flags=flags, program=TRAIN))
    assert "# For ray, unless they are set.\n" in script
    assert "[[ -v RAY_AUTH_MODE ]] || export RAY_AUTH_MODE=token\n" in script


LIGHTNING: dict[str, object] = {"launch.framework": "lightning", "resources.gpus_per_node": 4}
JAX = {**LIGHTNING, "launch.framework": "jax"}
TWO: dict[str, object] = {"resources.nodes": 2}
GPU_PER_TASK = "remove it, and there is a task per GPU"
EXPANDED = (
    "is expanded once, on the first node: every node would get rank 0, and wait for the others: "
    "set launch.script and launch.framework instead, or quote it: srun bash -c '...'"
)


@pytest.mark.parametrize(
    ("flags", "program", "problem"),
    [
        (
            {**LIGHTNING, "resources.ntasks_per_node": 2},
            "train.py",
            "resources.ntasks_per_node: lightning uses one GPU per task, but 2 tasks and 4 GPUs "
            f"per node are requested: {GPU_PER_TASK}",
        ),
        (
            {**LIGHTNING, **TWO, "resources.ntasks": 8},
            "train.py",
            "resources.ntasks: lightning needs the tasks of each node: set ntasks_per_node = 4 "
            "instead",
        ),
        (
            {**LIGHTNING, **TWO},
            "train.py trainer.devices=4 --trainer.num_nodes 1",
            "launch.program: ranks of lightning would wait: num_nodes is 1, but the job has 2 "
            "nodes: use 2",
        ),
        (
            {**LIGHTNING, "launch.launcher": "torchrun"},
            "train.py --devices=2",
            "launch.program: ranks of lightning would wait: devices is 2, but the job has 4 ranks "
            "per node: use 4",
        ),
        (
            {**JAX, "launch.launcher": "torchrun"},
            "train.py",
            "launch.launcher: ranks of jax do not find each other with torchrun: remove it, and "
            "srun is used",
        ),
        (
            {**TWO, "launch.framework": "ray", "resources.ntasks_per_node": 4},
            "train.py",
            "resources.ntasks_per_node: ray is one task per node (got 4): remove it, and set "
            "cpus_per_task",
        ),
        (
            {"launch.launcher": "ray", "resources.ntasks_per_node": 4},
            "train.py",
            "resources.ntasks_per_node: ray is one task per node (got 4): remove it, and set "
            "cpus_per_task",
        ),
        (
            {"launch.launcher": "ray", "launch.command": "python train.py"},
            "",
            "launch.launcher: needs launch.script or module: shell text starts its programs itself",
        ),
        (
            {"launch.framework": "accelerate"},
            "accelerate launch train.py",
            "launch.program: accelerate starts the ranks itself, but torchrun starts those of "
            "accelerate: name only the script and its arguments",
        ),
        (
            {"launch.framework": "deepspeed", "launch.command": "deepspeed train.py"},
            "",
            "launch.framework: needs launch.script or module: shell text starts its programs "
            "itself",
        ),
        (
            TWO,
            "accelerate launch train.py",
            "launch.program: accelerate launch runs only on the first of 2 nodes, and may wait for "
            'the others: set launch.script and launch.framework = "accelerate" instead',
        ),
        (
            TWO,
            "python -m deepspeed.launcher.runner train.py",
            "launch.program: the launcher deepspeed uses 2 nodes only with a host file, by pdsh "
            'and ssh: set launch.script and launch.framework = "deepspeed" instead',
        ),
        (
            {**TWO, "launch.command": 'srun accelerate launch --machine_rank "$SLURM_NODEID" a.py'},
            "",
            f"launch.command: $SLURM_NODEID {EXPANDED}",
        ),
        (
            {**TWO, "launch.command": 'srun bash -c "torchrun --node-rank=${SLURM_PROCID} a.py"'},
            "",
            f"launch.command: $SLURM_PROCID {EXPANDED}",
        ),
    ],
)
def test_a_job_that_would_hang_is_refused(
    flags: dict[str, object], program: str, problem: str
) -> None:
    assert problems(flags, program) == [problem]


def test_hidden_gpus_are_refused() -> None:
    hides = "hides GPUs of the node from ranks of jax, which then wait or fail: remove it "
    hides += "(resources.gpus_per_node gives each rank one GPU, and lets it see all)"
    for option in ("gpus-per-task=1", "gpu-bind=closest"):
        expected = [f"sbatch.{option.partition('=')[0]}: {hides}"]
        assert problems(JAX, "train.py", f"sbatch.{option}") == expected
    assert problems(JAX, "train.py", "sbatch.gpu-bind=none") == []


@pytest.mark.parametrize(
    ("flags", "program"),
    [
        ({**LIGHTNING, **TWO, "resources.ntasks_per_node": 4}, "train.py --devices -1"),
        ({**LIGHTNING, **TWO}, "train.py --trainer.devices=auto --num_nodes 2"),
        # One process uses all GPUs.
        ({**JAX, "launch.launcher": "python"}, "train.py"),
        ({**TWO, "launch.launcher": "srun", "resources.ntasks": 2}, "accelerate launch train.py"),
        (
            {
                **TWO,
                "launch.launcher": "srun",
                "resources.ntasks_per_node": 1,
                "launch.command": "accelerate launch --machine_rank $SLURM_NODEID a.py",
            },
            "",
        ),
        ({"resources.gpus_per_node": 4}, "deepspeed train.py"),
        (TWO, "deepspeed --launcher=slurm train.py"),
        (TWO, "deepspeed --hostfile hosts train.py"),
        ({**TWO, "launch.command": "pip install deepspeed && srun python a.py"}, ""),
        ({**LIGHTNING, **TWO}, "train.py --trainer.devices=4 --eval.devices=1"),
        (
            {
                **TWO,
                "launch.command": "srun bash -c 'torchrun --node-rank $SLURM_NODEID'",
            },
            "",
        ),
        ({**TWO, "launch.command": r'srun bash -c "torchrun --node_rank \$SLURM_NODEID a.py"'}, ""),
    ],
)
def test_what_works_is_accepted(flags: dict[str, object], program: str) -> None:
    assert problems(flags, program) == []


def test_only_its_own_name_is_a_launcher() -> None:
    assert framework_checks._launcher_in("/envs/a/bin/deepspeed train.py") == "deepspeed"
    assert framework_checks._launcher_in("cd a && X=1 exec deepspeed train.py") == "deepspeed"
    assert framework_checks._launcher_in("python train.py --deepspeed ds.json") is None
    assert framework_checks._launcher_in("cat accelerate; launch") is None


def test_the_gpus_vendor_decides_how_they_reach_a_container() -> None:
    flags: dict[str, object] = {"container.runtime": "apptainer", "container.image": "/i.sif"}
    for vendor, option in (("nvidia", "  --nv\n"), ("amd", "  --rocm\n"), ("intel", "")):
        flags["resources.gpu_vendor"] = vendor
        spec = specs.load(None, flags=flags, program=TRAIN, folder=None)
        script = specimens.rendered(spec)
        assert f"apptainer exec\n{option}  --bind" in script
    flags["container.gpu"] = "nv"
    assert problems(flags) == ["container.gpu: does not fit the GPUs of intel: remove it"]
