"""Train a few steps with each combination of preset, precision, compilation and mode.

    python -m trainers.tools.smoke                      all combinations that this machine can run
    python -m trainers.tools.smoke --list               only list them
    python -m trainers.tools.smoke --only fsdp --only bf16
    python -m trainers.tools.smoke --ranks 2            on a CPU also DDP and FSDP with gloo

Each combination is a process (or one per GPU) of its own that trains two epochs on synthetic data,
evaluates, and writes checkpoints to a temporary folder. Nothing is downloaded. Failures of
torch.compile count as failures, although the trainer continues without compilation.
"""

import argparse
import dataclasses
import itertools
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence

import torch

from trainers import bounds
from trainers.tools import benchmark

#: Preset -> shape of its samples, number of classes.
PRESETS: Mapping[str, tuple[str, int]] = {
    "cifar100": ("3,32,32", 100),
    "mnist": ("1,28,28", 10),
    "har-quick": ("9,128", 6),
    "digits": ("1,8,8", 10),
    "lesson05": ("20", 10),
}
PER_DEVICE_BATCH_SIZE = 8
# Full batches of an epoch; CUDA graphs are recorded in the third step.
FULL_STEPS = 5
SECONDS = 600.0
UNCOMPILED = re.compile(r"torch\.compile failed.*|.*run uncompiled.*")


@dataclasses.dataclass(frozen=True)
class Combination:
    """What one run is about."""

    #: A key of PRESETS.
    preset: str
    #: As --precision.
    precision: str
    #: As --compile.
    compile: str
    #: `deterministic`, or `fast` without --deterministic.
    algorithms: str
    #: As --mode.
    mode: str

    @property
    def name(self) -> str:
        """Return a name like `digits/bf16/off/fast/ddp`."""
        return "/".join(dataclasses.astuple(self))

    @property
    def is_supported(self) -> bool:
        """Return whether the trainer accepts the combination."""
        if self.mode == "dp":
            return self.compile == "off"
        return self.mode != "fsdp" or self.precision != "fp16"


def matrix(
    precisions: Sequence[str], compile_modes: Sequence[str], modes: Sequence[str]
) -> list[Combination]:
    """Return all supported combinations."""
    algorithms = ("fast", "deterministic")
    product = itertools.product(PRESETS, precisions, compile_modes, algorithms, modes)
    combinations = (Combination(*values) for values in product)
    return [combination for combination in combinations if combination.is_supported]


def machine_matrix(num_gpus: int, ranks: int) -> list[Combination]:
    """Return the combinations for this machine, with `ranks` ranks or GPUs where there are many."""
    modes = ["single"]
    if ranks > 1:
        modes += ["ddp", "fsdp", *(["dp"] if num_gpus else [])]
    compile_modes = ["off", "default", "reduce-overhead"] if num_gpus else ["off"]
    return matrix(benchmark.precisions(), compile_modes, modes)


def train_arguments(combination: Combination, ranks: int) -> list[str]:
    """Return the arguments of trainers.train; `ranks` is 1 or the number of ranks or GPUs."""
    shape, num_classes = PRESETS[combination.preset]
    batch_size = PER_DEVICE_BATCH_SIZE * ranks
    arguments = [
        f"--preset={combination.preset}",
        "--dataset=synthetic",
        f"--synthetic-shape={shape}",
        f"--synthetic-classes={num_classes}",
        # The last batch of an epoch is half full.
        f"--synthetic-samples={FULL_STEPS * batch_size + batch_size // 2}",
        f"--batch-size={batch_size}",
        f"--per-device-batch-size={PER_DEVICE_BATCH_SIZE}",
        "--epochs=2",
        "--warmup-epochs=1",
        "--run-dir=.",
        f"--precision={combination.precision}",
        f"--compile={combination.compile}",
        f"--mode={combination.mode}",
    ]
    if combination.algorithms == "deterministic":
        arguments.append("--deterministic")
    if combination.mode == "dp":
        arguments.append(f"--gpu-ids={','.join(map(str, range(ranks)))}")
    return arguments


def train_command(combination: Combination, ranks: int) -> tuple[str, ...]:
    """Return the command of a combination, with torchrun if its mode has several processes."""
    devices = 1 if combination.mode == "single" else ranks
    return benchmark.train_command(
        train_arguments(combination, devices), num_ranks=1 if combination.mode == "dp" else devices
    )


def run(combination: Combination, ranks: int, environ: Mapping[str, str], seconds: float) -> str:
    """Train; return the error message, or an empty string."""
    command = train_command(combination, ranks)
    output, failure = benchmark.run_command(command, environ, seconds=seconds)
    if not failure and (warning := UNCOMPILED.search(output)):
        return warning[0][:200]
    if not failure and "Training completed successfully." not in output:
        return "the training did not report its completion"
    return failure


def main(argv: Sequence[str] | None = None) -> int:
    """Run from the command line; return the exit code."""
    num_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    parser = argparse.ArgumentParser(
        prog="trainers.tools.smoke",
        description="Train a few steps with each combination of preset, precision, compilation,"
        " deterministic algorithms and mode. The exit code is 1 if one fails.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--list", action="store_true", help="list the combinations")
    parser.add_argument(
        "--only",
        metavar="SUBSTRING",
        action="append",
        default=[],
        help="run combinations whose name contains this; several must all match",
    )
    parser.add_argument(
        "--ranks",
        type=bounds.positive,
        default=max(1, num_gpus),
        help="GPUs of ddp, fsdp and dp; without GPUs, ranks of ddp and fsdp on the CPU",
    )
    parser.add_argument(
        "--seconds", type=bounds.positive_real, default=SECONDS, help="time limit of a run"
    )
    args = parser.parse_args(argv)
    if num_gpus and args.ranks > num_gpus:
        parser.error(f"--ranks {args.ranks}, but this machine has {num_gpus} GPU(s)")
    combinations = [
        combination
        for combination in machine_matrix(num_gpus, args.ranks)
        if all(part in combination.name for part in args.only)
    ]
    if not combinations:
        parser.error(f"no combination contains {' and '.join(args.only)}: see --list")
    if args.list:
        print("\n".join(combination.name for combination in combinations))
        return 0
    print(benchmark.describe_machine(), flush=True)
    failures = 0
    for combination in combinations:
        started = time.monotonic()
        failure = run(combination, args.ranks, os.environ, args.seconds)
        seconds = time.monotonic() - started
        failures += bool(failure)
        result = f"FAILED {seconds:6.1f} s" if failure else f"ok     {seconds:6.1f} s"
        print(f"{result}  {combination.name}{failure and f': {failure}'}", flush=True)
    print(f"{len(combinations) - failures} passed, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
