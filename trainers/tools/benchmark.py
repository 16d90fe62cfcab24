"""Compare the throughput of several training configurations on this machine.

DataParallel against DDP:     python -m trainers.tools.benchmark dp-ddp --gpus 4 --model wrn-16-4
fp32, tf32, bf16 and fp16:    python -m trainers.tools.benchmark precision
Batch sizes from 32 to 16384: python -m trainers.tools.benchmark batch-size

Each run is a separate process, so running out of memory affects only one configuration. The
throughput of whole epochs is compared, as the training prints it: samples over all ranks divided by
the wall time of the slowest rank, with the device synchronized at both ends. The first epoch is a
warm-up and does not count. Configurations alternate, so that load on the machine affects all of
them.
"""

import argparse
import contextlib
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
ARM_SECONDS = 3600.0
# Time to end after SIGTERM: torchrun kills its ranks after 30 seconds.
STOP_SECONDS = 60.0
COMPARISONS = ("dp-ddp", "precision", "batch-size")
BATCH_SIZES = tuple(2**power for power in range(5, 15))
# Variables of a job around this program: with them the runs would use the job's run folder, resume
# each other's checkpoints, and take themselves for ranks of the job.
JOB_VARIABLES = "ORCHESTRATOR_ SLURM_ TORCHELASTIC_ MASTER_ GROUP_ ROLE_ RANK WORLD_SIZE LOCAL_"


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
    samples_per_second: tuple[float, ...] = ()
    #: Validation loss of the last epoch.
    loss: float = float("nan")
    #: Validation accuracy of the last epoch.
    accuracy: float = float("nan")
    #: Error message; empty after a successful run.
    failure: str = ""


def train_command(arguments: Iterable[str], *, num_ranks: int = 1) -> tuple[str, ...]:
    """Return the command that starts trainers.train on this node."""
    launcher: tuple[str, ...] = ()
    if num_ranks > 1:
        launcher = ("-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1")
        launcher += (f"--nproc-per-node={num_ranks}",)
    return (sys.executable, *launcher, "-m", "trainers.train", *arguments)


def precisions() -> list[str]:
    """Return the precisions that this machine supports."""
    if not torch.cuda.is_available():
        return ["fp32", "bf16"]
    has_bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
    return ["fp32", "tf32", *(["bf16"] if has_bf16 else []), "fp16"]


def run_command(
    command: Sequence[str], environ: Mapping[str, str], *, seconds: float
) -> tuple[str, str]:
    """Run a command in an empty folder; return stdout and stderr, and the error if it failed."""
    removed = tuple(JOB_VARIABLES.split())
    environment = {key: text for key, text in environ.items() if not key.startswith(removed)}
    # Absolute: the run has another working directory.
    environment["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, sys.path))
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with (
        tempfile.TemporaryDirectory(prefix="trainers-") as folder,
        subprocess.Popen(command, env=environment, cwd=folder, text=True, **pipes) as process,
    ):
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            # torchrun forwards SIGTERM to its ranks; after SIGKILL they would continue.
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=STOP_SECONDS)
            process.kill()
            return "", f"not finished after {seconds:g} s"
    if process.returncode:
        return output, failure_line(output) or f"exit code {process.returncode}"
    return output, ""


def run_arm(arm: Arm, environ: Mapping[str, str]) -> Outcome:
    """Run a configuration."""
    output, failure = run_command(arm.command, environ, seconds=ARM_SECONDS)
    return Outcome(failure=failure) if failure else read_output(output)


def read_output(text: str) -> Outcome:
    """Read the results of the epochs from the output of a training."""
    rates = tuple(float(number) for number in THROUGHPUT.findall(text))
    losses = LOSS.findall(text)
    if len(rates) < 2 or not losses:
        return Outcome(failure="fewer than two epochs completed; the first epoch is a warm-up")
    loss, accuracy = losses[-1]
    return Outcome(samples_per_second=rates[1:], loss=float(loss), accuracy=float(accuracy))


def failure_line(output: str) -> str:
    """Return the line that shows best why a run failed: of an error, else the last."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    error_lines = [line for line in lines if re.search(r"Error: |error: ", line)]
    return (error_lines or lines[-1:] or [""])[0][:200]


def compare(
    arms: Sequence[Arm], *, repeats: int, environ: Mapping[str, str]
) -> list[list[Outcome]]:
    """Run all configurations in turn, `repeats` times; return the outcomes of each."""
    results: list[list[Outcome]] = [[] for _ in arms]
    for repeat in range(repeats):
        for arm, outcomes in zip(arms, results, strict=True):
            report(f"{repeat + 1}/{repeats} {arm.name}: {shlex.join(arm.command)}")
            outcomes.append(run_arm(arm, environ))
            rate = median_rate(outcomes[-1:])
            report(f"    {rate:.1f} samples/s" if rate else f"    {outcomes[-1].failure}")
    return results


def table(arms: Sequence[Arm], results: Sequence[Sequence[Outcome]]) -> str:
    """Return the comparison; ratios are relative to the first configuration."""
    lines = [f"{'':24} {'samples/s':>10} {'min':>10} {'max':>10} {'ratio':>6} {'val loss':>9}"]
    base = median_rate(results[0])
    for arm, outcomes in zip(arms, results, strict=True):
        rates = [rate for outcome in outcomes for rate in outcome.samples_per_second]
        failures = [outcome.failure for outcome in outcomes if outcome.failure]
        if failures or not rates:
            lines.append(f"{arm.name:24} {failures[0] if failures else 'no measurement'}")
            continue
        rate = statistics.median(rates)
        ratio = f"{rate / base:6.2f}" if base else f"{'-':>6}"
        loss = statistics.median(outcome.loss for outcome in outcomes)
        lines.append(
            f"{arm.name:24} {rate:10.1f} {min(rates):10.1f} {max(rates):10.1f} {ratio} {loss:9.4f}"
        )
    return "\n".join(lines)


def median_rate(outcomes: Sequence[Outcome]) -> float:
    """Return the median throughput of all counted epochs in samples/s; 0 without any."""
    rates = [rate for outcome in outcomes for rate in outcome.samples_per_second]
    return statistics.median(rates) if rates else 0.0


def describe_machine() -> str:
    """Return the device and the software versions."""
    device = f"CPU {platform.machine()}, {os.cpu_count()} core(s)"
    if torch.cuda.is_available():
        device = f"{torch.cuda.device_count()} x {torch.cuda.get_device_name()}"
        device += f", CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}"
    return f"{device}; torch {torch.__version__}, Python {platform.python_version()}"


def make_arms(what: str, arguments: Sequence[str], num_gpus: int) -> list[Arm]:
    """Return the configurations of a comparison; those that do not fit into memory fail."""
    if what == "precision":
        options = {name: [f"--precision={name}"] for name in precisions()}
    elif what == "batch-size":
        options = {f"batch {size}": [f"--batch-size={size}"] for size in BATCH_SIZES}
    else:
        gpu_ids = ",".join(map(str, range(num_gpus)))
        options = {
            "one GPU": ["--mode=single"],
            f"DataParallel, {num_gpus} GPUs": ["--mode=dp", f"--gpu-ids={gpu_ids}"],
            f"DDP, {num_gpus} GPUs": ["--mode=ddp"],
        }
    arms = []
    for name, further in options.items():
        num_ranks = num_gpus if "--mode=ddp" in further else 1
        command = train_command([*arguments, *further], num_ranks=num_ranks)
        arms.append(Arm(name=name, command=command))
    return arms


def report(text: str) -> None:
    """Print progress to stderr; only the table goes to stdout."""
    print(text, file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run from the command line; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="trainers.tools.benchmark",
        description="Compare the throughput of several training configurations. Other arguments"
        " are passed to trainers.train; by default it trains a small wide residual network on"
        " synthetic images.",
    )
    parser.add_argument("what", choices=COMPARISONS, help="what to compare")
    parser.add_argument("--gpus", type=bounds.positive, help="GPUs that dp-ddp uses; default: all")
    parser.add_argument(
        "--repeats", type=bounds.positive, default=3, help="runs per configuration; default: 3"
    )
    args, further = parser.parse_known_args(argv)
    arguments = "--dataset=synthetic --model=wrn-16-4 --epochs=3 --batch-size=512".split()
    num_gpus = args.gpus or (torch.cuda.device_count() if torch.cuda.is_available() else 0)
    if args.what == "dp-ddp" and num_gpus < 2:
        report(
            "trainers.tools.benchmark: dp-ddp requires at least 2 GPUs, and this machine has"
            f" {num_gpus}: run it in a job with 2 or more GPUs."
        )
        return 2
    arms = make_arms(args.what, [*arguments, *further], num_gpus)
    results = compare(arms, repeats=args.repeats, environ=os.environ)
    print(describe_machine())
    print(table(arms, results), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
