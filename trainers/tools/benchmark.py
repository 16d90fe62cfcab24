"""Compare the throughput of several training configurations on this machine.

DataParallel against DDP:    python -m trainers.benchmark dp-ddp --gpus 4 --model wrn-16-4
fp32, bf16 and fp16:         python -m trainers.benchmark precision
Batch sizes from 32 to 16384:python -m trainers.benchmark batch-size

Each run is a separate process, so running out of memory affects only one configuration. The
throughput of whole epochs is compared, as the training prints it: samples over all ranks divided by
the wall time of the slowest rank, with the device synchronized at both ends. The first epoch is a
warm-up and does not count. Configurations alternate, so that load on the machine affects all of
them.
"""

import argparse
import dataclasses
import os
import platform
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence

import torch

from trainers import bounds

THROUGHPUT = re.compile(r"^Epoch Throughput: ([0-9.]+) ", re.MULTILINE)
LOSS = re.compile(r"^Validation Loss: ([0-9.]+|nan|inf), Validation Accuracy: ([0-9.]+)", re.M)
# Time limit of one run.
ARM_SECONDS = 3600
BATCH_SIZES = tuple(2**power for power in range(5, 15))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arm:
    """One training configuration."""

    #: Name in the table.
    name: str
    #: The command, as argv.
    command: tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """Result of one run of a configuration."""

    #: Throughput of each epoch after the first, in samples/s.
    samples_per_second: tuple[float, ...]
    #: Validation loss of the last epoch.
    loss: float
    #: Validation accuracy of the last epoch.
    accuracy: float
    #: Error message; empty after a successful run.
    failure: str = ""


def train_command(words: Iterable[str], *, num_ranks: int = 1) -> tuple[str, ...]:
    """Return the command that starts trainers.train on this node."""
    if num_ranks == 1:
        return (sys.executable, "-m", "trainers.train", *words)
    launcher = (
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--local-addr=127.0.0.1",
    )
    return (*launcher, f"--nproc-per-node={num_ranks}", "-m", "trainers.train", *words)


def run_arm(arm: Arm, environ: Mapping[str, str]) -> Outcome:
    """Run a configuration in an empty folder."""
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        try:
            result = subprocess.run(
                arm.command,
                env={**environ, "PYTHONPATH": os.pathsep.join(search_path())},
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=ARM_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return failed(f"not finished after {ARM_SECONDS} s")
    if result.returncode:
        return failed(failure_line(result.stderr) or f"exit code {result.returncode}")
    return read_output(result.stdout)


def search_path() -> list[str]:
    """Return sys.path with absolute paths: the runs have another working directory."""
    return [os.path.abspath(path) if path else os.getcwd() for path in sys.path]


def read_output(text: str) -> Outcome:
    """Read the results of the epochs from the output of a training."""
    rates = tuple(float(number) for number in THROUGHPUT.findall(text))
    losses = LOSS.findall(text)
    if len(rates) < 2 or not losses:
        return failed("fewer than two epochs completed; the first epoch is a warm-up")
    loss, accuracy = losses[-1]
    return Outcome(samples_per_second=rates[1:], loss=float(loss), accuracy=float(accuracy))


def failed(why: str) -> Outcome:
    """Return the outcome of a failed run."""
    nan = float("nan")
    return Outcome(samples_per_second=(), loss=nan, accuracy=nan, failure=why)


def failure_line(stderr: str) -> str:
    """Return the line of stderr that shows best why a run failed."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    error_lines = [line for line in lines if re.search(r"Error: |error: ", line)]
    return (error_lines or lines or [""])[0][:200]


def compare(
    arms: Sequence[Arm], *, repeats: int, environ: Mapping[str, str]
) -> list[list[Outcome]]:
    """Run all configurations in turn, `repeats` times; return the outcomes of each."""
    outcomes: list[list[Outcome]] = [[] for _ in arms]
    for turn in range(repeats):
        for arm, found in zip(arms, outcomes, strict=True):
            say(f"{turn + 1}/{repeats} {arm.name}: {shlex.join(arm.command)}")
            found.append(run_arm(arm, environ))
            rate = _rate(found[-1:])
            say(f"    {rate:.1f} samples/s" if rate else f"    {found[-1].failure}")
    return outcomes


def table(arms: Sequence[Arm], outcomes: Sequence[Sequence[Outcome]]) -> str:
    """Return the comparison; ratios are relative to the first configuration."""
    lines = [f"{'':24} {'samples/s':>10} {'min':>10} {'max':>10} {'ratio':>6} {'val loss':>9}"]
    base = _rate(outcomes[0])
    for arm, found in zip(arms, outcomes, strict=True):
        rates = [rate for each in found for rate in each.samples_per_second]
        failures = [each.failure for each in found if each.failure]
        if failures or not rates:
            lines.append(f"{arm.name:24} {failures[0] if failures else 'no measurement'}")
            continue
        ratio = f"{_rate(found) / base:6.2f}" if base else f"{'-':>6}"
        loss = statistics.median(each.loss for each in found)
        lines.append(
            f"{arm.name:24} {_rate(found):10.1f} {min(rates):10.1f} {max(rates):10.1f} {ratio}"
            f" {loss:9.4f}"
        )
    return "\n".join(lines)


def _rate(outcomes: Sequence[Outcome]) -> float:
    rates = [rate for each in outcomes for rate in each.samples_per_second]
    return statistics.median(rates) if rates else 0.0


def describe_machine() -> str:
    """Return the device and the software versions."""
    device = f"CPU {platform.machine()}, {os.cpu_count()} core(s)"
    if torch.cuda.is_available():
        device = f"{torch.cuda.device_count()} x {torch.cuda.get_device_name()}"
        device += f", CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}"
    return f"{device}; torch {torch.__version__}, Python {platform.python_version()}"


def dp_ddp_arms(words: Sequence[str], num_gpus: int) -> list[Arm]:
    """Compare one GPU, DataParallel and DDP with the same global batch size."""
    single = train_command([*words, "--mode=single"])
    dp = train_command(
        [*words, "--mode=dp", "--gpu-ids", *(str(number) for number in range(num_gpus))]
    )
    ddp = train_command([*words, "--mode=ddp"], num_ranks=num_gpus)
    return [
        Arm(name="one GPU", command=single),
        Arm(name=f"DataParallel, {num_gpus} GPUs", command=dp),
        Arm(name=f"DDP, {num_gpus} GPUs", command=ddp),
    ]


def precision_arms(words: Sequence[str]) -> list[Arm]:
    """Compare the number formats; fp16 only on GPUs."""
    names = ["fp32", "bf16", *(["fp16"] if torch.cuda.is_available() else [])]
    return [
        Arm(name=name, command=train_command([*words, f"--precision={name}"])) for name in names
    ]


def batch_size_arms(words: Sequence[str]) -> list[Arm]:
    """Compare batch sizes, each twice the previous one; those that do not fit fail."""
    return [
        Arm(name=f"batch {size}", command=train_command([*words, f"--batch-size={size}"]))
        for size in BATCH_SIZES
    ]


def say(text: str) -> None:
    """Print progress to stderr; only the table goes to stdout."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def main(argv: Sequence[str] | None = None) -> int:
    """Run from the command line; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="trainers.benchmark",
        description="Compare the throughput of several training configurations. Other arguments"
        " are passed to trainers.train; by default it trains a small wide residual network on"
        " synthetic images.",
    )
    parser.add_argument(
        "what", choices=["dp-ddp", "precision", "batch-size"], help="what to compare"
    )
    parser.add_argument("--gpus", type=bounds.positive, help="GPUs that dp-ddp uses; default: all")
    parser.add_argument(
        "--repeats",
        type=bounds.positive,
        default=3,
        help="runs per configuration; default: 3",
    )
    options, further = parser.parse_known_args(argv)
    words = ["--dataset=synthetic", "--model=wrn-16-4", "--epochs=3", "--batch-size=512", *further]
    num_gpus = options.gpus or (torch.cuda.device_count() if torch.cuda.is_available() else 0)
    if options.what == "dp-ddp" and num_gpus < 2:
        say(
            "trainers.benchmark: dp-ddp requires at least 2 GPUs, and this machine has"
            f" {num_gpus}: run it in a job with 2 or more GPUs."
        )
        return 2
    arms = {
        "dp-ddp": lambda: dp_ddp_arms(words, num_gpus),
        "precision": lambda: precision_arms(words),
        "batch-size": lambda: batch_size_arms(words),
    }[options.what]()
    outcomes = compare(arms, repeats=options.repeats, environ=os.environ)
    print(describe_machine())
    print(table(arms, outcomes), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
