"""Reading the rank from recorded environments."""

import dataclasses
import datetime
import re
import socket

import hypothesis
import pytest
from hypothesis import strategies

torch = pytest.importorskip("torch", reason="the trainer needs PyTorch")

from trainers import distributed, errors  # noqa: E402

pytestmark = pytest.mark.trainer

# What torchrun --nnodes=2 --nproc-per-node=2 gives rank 3.
TORCHRUN = {
    "RANK": "3",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "4",
    "LOCAL_WORLD_SIZE": "2",
    "GROUP_RANK": "1",
    "GROUP_WORLD_SIZE": "2",
    "MASTER_ADDR": "n1",
    "MASTER_PORT": "20123",
}

# What srun gives the last task of --nodes=2 --ntasks=3.
SRUN = {
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "2",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "1",
    "SLURM_STEP_NUM_TASKS": "3",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_TASKS_PER_NODE": "2,1",
    "MASTER_ADDR": "n1",
    "MASTER_PORT": "20123",
}

ONE_TASK = {
    "SLURM_PROCID": "0",
    "SLURM_NODEID": "0",
    "SLURM_STEP_NUM_TASKS": "1",
    "SLURM_STEP_NUM_NODES": "1",
    "SLURM_STEP_TASKS_PER_NODE": "1",
}

SINGLE = distributed.DistInfo(
    launcher="single",
    rank=0,
    local_rank=0,
    world_size=1,
    local_world_size=1,
    num_nodes=1,
)
TORCHRUN_RANKS = distributed.DistInfo(
    launcher="torchrun",
    rank=3,
    local_rank=1,
    world_size=4,
    local_world_size=2,
    num_nodes=2,
)
SRUN_RANKS = distributed.DistInfo(
    launcher="srun",
    rank=2,
    local_rank=0,
    world_size=3,
    local_world_size=1,
    num_nodes=2,
)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, SINGLE),
        (TORCHRUN, TORCHRUN_RANKS),
        (SRUN, SRUN_RANKS),
        # torchrun itself started by srun, one agent a node.
        (SRUN | TORCHRUN, TORCHRUN_RANKS),
        # A batch script runs python by itself: no step, though the job has tasks.
        ({"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, SINGLE),
        # A single process needs no other.
        (
            {name: value for name, value in (SRUN | ONE_TASK).items() if "MASTER" not in name},
            dataclasses.replace(SINGLE, launcher="srun"),
        ),
        # A shell of salloc with LaunchParameters=use_interactive_step.
        (SRUN | {"SLURM_STEP_ID": "4294967290"}, SINGLE),
    ],
)
def test_environment_gives_the_rank(
    environ: dict[str, str], expected: distributed.DistInfo
) -> None:
    assert distributed.read_dist_info(environ) == expected


FIX = (
    "not set: start with torchrun, or with one srun task per rank (export the name of the first"
    " node and a free port as MASTER_ADDR and MASTER_PORT, and pass all variables on to a"
    " container)."
)


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        (
            {"WORLD_SIZE": "2", "MASTER_ADDR": "n1"},
            f"torchrun: RANK, LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_WORLD_SIZE, MASTER_PORT {FIX}",
        ),
        (
            {name: value for name, value in SRUN.items() if not name.startswith("MASTER")},
            f"srun: MASTER_ADDR, MASTER_PORT {FIX}",
        ),
        (
            {name: value for name, value in SRUN.items() if name != "SLURM_LOCALID"},
            f"srun: SLURM_LOCALID {FIX}",
        ),
    ],
)
def test_bad_launch_is_one_sentence(environ: dict[str, str], message: str) -> None:
    with pytest.raises(errors.UsageError, match=f"^{re.escape(message)}$"):
        distributed.read_dist_info(environ)


@hypothesis.settings(deadline=None)
@hypothesis.given(
    strategies.lists(
        strategies.tuples(strategies.integers(1, 999), strategies.integers(1, 20)), min_size=1
    )
)
def test_ranks_of_each_node(groups: list[tuple[int, int]]) -> None:
    text = ",".join(f"{tasks}(x{nodes})" if nodes > 1 else f"{tasks}" for tasks, nodes in groups)
    environ = SRUN | {"SLURM_STEP_TASKS_PER_NODE": text}
    expected = [tasks for tasks, nodes in groups for _ in range(nodes)]
    dists = [
        distributed.read_dist_info(environ | {"SLURM_NODEID": str(number)})
        for number in range(len(expected))
    ]
    assert [dist.local_world_size for dist in dists] == expected


@pytest.mark.parametrize(
    ("choice", "dist", "num_cuda_devices", "expected"),
    [
        ("auto", SINGLE, 0, "cpu"),
        ("auto", SINGLE, 4, "cuda:0"),
        ("cpu", TORCHRUN_RANKS, 4, "cpu"),
        ("cuda", TORCHRUN_RANKS, 2, "cuda:1"),
        # --gpus-per-task: only the GPU of the task is visible.
        ("cuda", SRUN_RANKS, 1, "cuda:0"),
    ],
)
def test_device(
    choice: str, dist: distributed.DistInfo, num_cuda_devices: int, expected: str
) -> None:
    device = distributed.select_device(choice, dist, num_cuda_devices=num_cuda_devices)
    assert str(device) == expected


def test_ranks_that_cannot_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        # Bound but not listening: connections fail.
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
        monkeypatch.setenv("MASTER_PORT", str(taken.getsockname()[1]))
        monkeypatch.setattr(distributed, "COLLECTIVE_TIMEOUT", datetime.timedelta(seconds=1))
        message = (
            "rank 3 of 4 ends because another rank exited or cannot be reached: see the first error"
            " of that rank, or check MASTER_ADDR and MASTER_PORT, which must be a reachable host"
            " and a free port on it. ("
        )
        with (
            pytest.raises(errors.LostRankError, match=f"^{re.escape(message)}"),
            distributed.process_group(TORCHRUN_RANKS, torch.device("cpu")),
        ):
            pass


def test_more_ranks_than_gpus() -> None:
    message = (
        "2 rank(s) on this node, but PyTorch sees 1 GPU(s): start one rank per GPU, request more"
        " GPUs (in a container also --nv), install a CUDA build of PyTorch, or use --device cpu."
    )
    with pytest.raises(errors.UsageError, match=f"^{re.escape(message)}$"):
        distributed.select_device("auto", TORCHRUN_RANKS, num_cuda_devices=1)
