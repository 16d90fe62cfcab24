"""Two ranks of which one fails in a given way: ranks.py --how HOW, with torchrun."""

import argparse
import datetime
import os
import signal
import time

import torch
from torch import distributed

#: Seconds that ranks wait for each other at the start, and in the one collective that fails of it.
START_SECONDS, PATIENCE_SECONDS = 120, 4


def raises(rank):
    """Fail alone, while the others wait in a collective."""
    if rank == 1:
        raise ValueError("sample 7 has no label")
    distributed.all_reduce(torch.ones(1))


def late(rank):
    """Come too late to a collective."""
    group = distributed.new_group(timeout=datetime.timedelta(seconds=PATIENCE_SECONDS))
    if rank == 1:
        time.sleep(60)
    distributed.all_reduce(torch.ones(1), group=group)


def mismatch(rank):
    """Call other collectives on other ranks; TORCH_DISTRIBUTED_DEBUG=DETAIL finds it."""
    if rank == 0:
        distributed.all_reduce(torch.ones(4))
    else:
        distributed.broadcast(torch.ones(4), src=0)


def shot(rank):
    """Be killed, as the kernel kills one rank for its memory."""
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    distributed.all_reduce(torch.ones(1))


def exits(rank):
    """End with an exit code of the program's own choice."""
    if rank == 1:
        os._exit(4)
    distributed.all_reduce(torch.ones(1))


HOWS = {function.__name__: function for function in (raises, late, mismatch, shot, exits)}

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--how", choices=HOWS, required=True)
    how = HOWS[parser.parse_args().how]
    distributed.init_process_group("gloo", timeout=datetime.timedelta(seconds=START_SECONDS))
    how(distributed.get_rank())
    distributed.destroy_process_group()
