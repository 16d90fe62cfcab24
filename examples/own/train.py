"""An ordinary DistributedDataParallel script, independent of orchestrator."""

import argparse
import os
import time

import torch
import torch.distributed as dist

# Before init_process_group: if DistributedDataParallel imports it later, its default arguments keep
# the group alive, and gloo may abort the process while Python exits (pytorch pull request 179291).
import torch.distributed.nn.functional
from torch.nn.parallel import DistributedDataParallel

SAMPLES = 2048


def main(args: argparse.Namespace) -> None:
    """Train on the process group that torchrun describes."""
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    dist.init_process_group("nccl" if cuda else "gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(0)
    samples, labels = torch.randn(SAMPLES, 256), torch.randint(10, (SAMPLES,))
    samples, labels = samples[rank::world_size].to(device), labels[rank::world_size].to(device)
    layers = [torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)

    for epoch in range(1, args.epochs + 1):
        start = time.perf_counter()
        for batch in torch.arange(len(samples), device=device).split(args.batch_size // world_size):
            loss = torch.nn.functional.cross_entropy(model(samples[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        rate = SAMPLES / (time.perf_counter() - start)
        if rank == 0:
            print(
                f"epoch={epoch} loss={loss.item():.4f} throughput={rate:.1f} samples/s", flush=True
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument(
        "--batch-size", type=int, default=128, help="samples per step over all ranks"
    )
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    main(args)
    dist.destroy_process_group()  # after main: the model keeps the group alive
