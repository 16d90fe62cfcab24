"""The trainer, relative to a training loop written like source S2."""

from __future__ import annotations

import argparse
import os
import sys

import torch

from trainers import benchmark


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--dataset", choices=["synthetic", "cifar10", "cifar100"], default="synthetic"
    )
    parser.add_argument("--data-dir", default=os.environ.get("DATA_DIR") or "datasets")
    parser.add_argument(
        "--samples", type=int, help="synthetic images; default: 50000 on GPU, else 10000"
    )
    parser.add_argument("--model", help="default: olivia-wrn on a GPU, else cnn")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="OMP_NUM_THREADS")
    parser.add_argument("--num-workers", type=int, default=8, help="as in the source")


def run(arguments: argparse.Namespace) -> int:
    """Print the table; return 1 if a run failed."""
    on_gpu = torch.cuda.is_available()
    model = arguments.model or ("olivia-wrn" if on_gpu else "cnn")
    samples = arguments.samples or (50_000 if on_gpu else 10_000)
    same = [
        *(f"--dataset={arguments.dataset}", f"--data-dir={os.path.abspath(arguments.data_dir)}"),
        *(f"--synthetic-samples={samples}", "--synthetic-classes=100", f"--model={model}"),
        *(f"--epochs={arguments.epochs}", f"--batch-size={arguments.batch_size}"),
        *("--base-lr=0.02", f"--num-workers={arguments.num_workers}"),
    ]
    product = [*same, f"--compile={'default' if on_gpu else 'off'}"]
    arms = [
        benchmark.Arm(
            name="loop as in S2",
            command=(sys.executable, "-m", "tests.benchmarks.source_s2", *same),
        ),
        benchmark.Arm(name="trainers.train", command=benchmark.train_command(product)),
    ]
    environ = {**os.environ, "OMP_NUM_THREADS": str(arguments.threads)}
    outcomes = benchmark.compare(arms, repeats=arguments.repeats, environ=environ)
    print(benchmark.describe_machine())
    print(
        f"{model}, batch {arguments.batch_size}, {arguments.threads} thread(s),"
        f" {arguments.num_workers} workers, {arguments.epochs} epochs of which the first does not"
        f" count, {arguments.repeats} runs of each"
    )
    print(benchmark.table(arms, outcomes), flush=True)
    return 1 if any(outcome.failure for item in outcomes for outcome in item) else 0
