"""Reading the rank from recorded environments."""

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

SINGLE = distributed.DistInfo(
    launcher=distributed.Launcher.SINGLE,
    rank=0,
    local_rank=0,
    world_size=1,
    local_world_size=1,
    num_nodes=1,
)
TORCHRUN_RANKS = distributed.DistInfo(
    launcher=distributed.Launcher.TORCHRUN,
    rank=3,
    local_rank=1,
    world_size=4,
    local_world_size=2,
    num_nodes=2,
)
SRUN_RANKS = distributed.DistInfo(
    launcher=distributed.Launcher.SRUN,
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
        # A shell of salloc with LaunchParameters=use_interactive_step.
        (SRUN | {"SLURM_STEP_ID": "4294967290"}, SINGLE),
    ],
)
def test_environment_gives_the_rank(
    environ: dict[str, str], expected: distributed.DistInfo
) -> None:
    assert distributed.read_dist_info(environ) == expected


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        (
            {"WORLD_SIZE": "2", "MASTER_ADDR": "n1"},
            "WORLD_SIZE, MASTER_ADDR set, but not RANK, LOCAL_RANK, LOCAL_WORLD_SIZE,"
            " GROUP_WORLD_SIZE, MASTER_PORT: start with torchrun or with srun (one task per rank),"
            " or unset these variables.",
        ),
        (TORCHRUN | {"RANK": "x"}, "RANK='x' is not a number."),
        (
            TORCHRUN | {"RANK": "4"},
            "The variables of the launcher are inconsistent: rank 4 of 4, local rank 1 of 2,"
            " 2 node(s). Unset variables of an earlier launch.",
        ),
        (
            {name: value for name, value in SRUN.items() if not name.startswith("MASTER")},
            "srun started 3 tasks, but MASTER_ADDR and MASTER_PORT not set: export the first"
            " node's name and a free port before srun.",
        ),
        (
            {name: value for name, value in SRUN.items() if name != "SLURM_LOCALID"},
            "SLURM_STEP_ID set, but not SLURM_LOCALID: pass on the variables of srun (a container"
            " may drop them), or start with torchrun.",
        ),
        (
            SRUN | {"SLURM_STEP_TASKS_PER_NODE": "3"},
            "SLURM_NODEID=1, but SLURM_STEP_TASKS_PER_NODE lists 1 node(s).",
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
def test_tasks_per_node_expands(groups: list[tuple[int, int]]) -> None:
    text = ",".join(f"{tasks}(x{nodes})" if nodes > 1 else f"{tasks}" for tasks, nodes in groups)
    expected = [tasks for tasks, nodes in groups for _ in range(nodes)]
    assert distributed.expand_tasks_per_node(text) == expected


@hypothesis.settings(deadline=None)
@hypothesis.given(strategies.text())
def test_tasks_per_node_never_fails_otherwise(text: str) -> None:
    try:
        assert distributed.expand_tasks_per_node(text)
    except errors.UsageError as error:
        assert repr(text) in str(error)


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
            "rank 3 of 4 could not connect to the other ranks: see the first error of another rank,"
            " or check MASTER_ADDR and MASTER_PORT, which must be a reachable host and a free port"
            " on it. ("
        )
        with (
            pytest.raises(errors.LostRankError, match=f"^{re.escape(message)}"),
            distributed.process_group(TORCHRUN_RANKS, torch.device("cpu")),
        ):
            pass


def test_more_ranks_than_gpus() -> None:
    message = (
        "2 ranks on this node, but PyTorch sees 1 GPU(s): start one rank per GPU, request"
        " more GPUs, or use --device cpu."
    )
    with pytest.raises(errors.UsageError, match=f"^{re.escape(message)}$"):
        distributed.select_device("auto", TORCHRUN_RANKS, num_cuda_devices=1)
