"""Trainings that are compared by the throughput they print, each in a process of its own."""

from __future__ import annotations

import dataclasses
import os
import platform
import re
import shlex
import statistics
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence

import torch

THROUGHPUT = re.compile(r"^Epoch Throughput: ([0-9.]+) ", re.MULTILINE)


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
    #: Error message; empty after a successful run.
    failure: str = ""


def train_command(arguments: Iterable[str], *, num_ranks: int = 1) -> tuple[str, ...]:
    """Return the command that starts trainers.train on this machine."""
    launcher: tuple[str, ...] = ()
    if num_ranks > 1:
        launcher = ("-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1")
        launcher += (f"--nproc-per-node={num_ranks}",)
    return (sys.executable, *launcher, "-m", "trainers.train", *arguments)


def run(arm: Arm, environ: Mapping[str, str]) -> Outcome:
    """Run a configuration."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run(arm.command, env=environ, text=True, check=False, **pipes)
    if done.returncode:
        return Outcome(failure=done.stdout.strip().splitlines()[-1] if done.stdout else "no output")
    rates = tuple(float(number) for number in THROUGHPUT.findall(done.stdout))
    if len(rates) < 2:
        return Outcome(failure="fewer than two epochs completed; the first epoch is a warm-up")
    return Outcome(samples_per_second=rates[1:])


def compare(
    arms: Sequence[Arm], *, repeats: int, environ: Mapping[str, str]
) -> list[list[Outcome]]:
    """Run all configurations in turn, `repeats` times; return the outcomes of each.

    They alternate, so that load on the machine affects all of them.
    """
    results: list[list[Outcome]] = [[] for _ in arms]
    for repeat in range(repeats):
        for arm, outcomes in zip(arms, results, strict=True):
            print(f"{repeat + 1}/{repeats} {arm.name}: {shlex.join(arm.command)}", file=sys.stderr)
            outcomes.append(run(arm, environ))
            rate, failure = median_rate(outcomes[-1:]), outcomes[-1].failure
            print(f"    {failure or f'{rate:.1f} samples/s'}", file=sys.stderr)
    return results


def median_rate(outcomes: Sequence[Outcome]) -> float:
    """Return the median throughput of all counted epochs in samples/s; 0 without any."""
    rates = [rate for outcome in outcomes for rate in outcome.samples_per_second]
    return statistics.median(rates) if rates else 0.0


def table(arms: Sequence[Arm], results: Sequence[Sequence[Outcome]]) -> str:
    """Return the comparison; ratios are relative to the first configuration."""
    lines = [f"{'':24} {'samples/s':>10} {'min':>10} {'max':>10} {'ratio':>6}"]
    base = median_rate(results[0])
    for arm, outcomes in zip(arms, results, strict=True):
        rates = [rate for outcome in outcomes for rate in outcome.samples_per_second]
        failure = next((outcome.failure for outcome in outcomes if outcome.failure), "")
        if failure:
            lines.append(f"{arm.name:24} {failure}")
            continue
        rate = statistics.median(rates)
        ratio = f"{rate / base:6.2f}" if base else f"{'-':>6}"
        lines.append(f"{arm.name:24} {rate:10.1f} {min(rates):10.1f} {max(rates):10.1f} {ratio}")
    return "\n".join(lines)


def describe_machine() -> str:
    """Return the device and the software versions."""
    device = f"CPU {platform.machine()}, {os.cpu_count()} core(s)"
    if torch.cuda.is_available():
        device = f"{torch.cuda.device_count()} x {torch.cuda.get_device_name()}"
        device += f", CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}"
    return f"{device}; torch {torch.__version__}, Python {platform.python_version()}"
