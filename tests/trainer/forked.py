"""Ranks of the test programs: forked, so that PyTorch is imported once."""

import contextlib
import multiprocessing
import os
import tempfile
from collections.abc import Callable, Iterator

import torch
from torch import distributed

from trainers.distributed import DistInfo


def run(work: Callable[..., None], world_size: int, *options: object) -> bool:
    """Call `work(rank, world_size, store, *more)` on each rank; return whether all succeeded."""
    fork = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        children = [
            fork.Process(target=work, args=(rank, world_size, store, *options))
            for rank in range(world_size)
        ]
        for child in children:
            child.start()
        for child in children:
            child.join()
    return all(child.exitcode == 0 for child in children)


@contextlib.contextmanager
def process_group(rank: int, world_size: int, store: str) -> Iterator[None]:
    """Hold a group of ranks with one thread each; a single rank needs none."""
    torch.set_num_threads(1)
    if world_size == 1:
        yield
        return
    distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=world_size
    )
    yield
    distributed.destroy_process_group()


def dist_info(rank: int, world_size: int, launcher: str = "torchrun") -> DistInfo:
    """Return what a rank knows of the ranks, all on this host."""
    return DistInfo(
        launcher=launcher,
        rank=rank,
        local_rank=rank,
        world_size=world_size,
        local_world_size=world_size,
        num_nodes=1,
    )
