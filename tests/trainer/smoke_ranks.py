"""A program for the tests: trains on forked ranks, as `trainers.train` does under torchrun.

Usage: smoke_ranks.py WORLD_SIZE ARGUMENTS
"""

import importlib
import sys

import torch

from tests.trainer import forked
from trainers import arguments, distributed, train


def run_rank(rank: int, world_size: int, store: str, words: list[str]) -> None:
    names = [*distributed.TORCHRUN_VARIABLES.values(), "MASTER_ADDR", "MASTER_PORT"]
    environ = dict.fromkeys(names, str(world_size))
    environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "GROUP_WORLD_SIZE": "1"}
    initialize = torch.distributed.init_process_group
    # Through a file: another process may take a port before the ranks do.
    torch.distributed.init_process_group = lambda *, init_method, **options: initialize(
        init_method=f"file://{store}", **options
    )
    train.run(arguments.parse_arguments(words), environ)


if __name__ == "__main__":
    # DDP imports it at its first use, which takes seconds on each rank.
    importlib.import_module("torch._dynamo")
    sys.exit(0 if forked.run(run_rank, int(sys.argv[1]), sys.argv[2:]) else 1)
