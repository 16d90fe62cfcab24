"""Reading large logs into the database, relative to grep with the same patterns."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import os
import pathlib
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from tests.benchmarks import expressions, ratios

ROOT = pathlib.Path(__file__).parents[2]
MIB = 1024 * 1024
#: Size of the generated text, which a file repeats.
BLOCK_BYTES = 64 * MIB
#: Memory growth while a log of MEMORY_MIB is read.
MEMORY_BUDGET_MIB = 64
MEMORY_MIB = 2048
#: CPU time, if each line matches.
LINE_BUDGET_MICROSECONDS = 60.0

WORDS = (
    "loading checkpoint shard from /scratch/project/data/train-00012-of-01024.tar worker 17 "
    "finished prefetch queue depth is fine NCCL INFO Channel 03/0 : 12[3] -> 20[3] via P2P/IPC "
    "comm 0x55d0 nRanks 32 Setting affinity for GPU model parallel group tensor warning "
    "DeprecationWarning: torch.cuda.amp.autocast is deprecated, please use"
).split()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--mib", type=int, default=256, help="size of a log")
    parser.add_argument(
        "--memory-mib", type=int, default=MEMORY_MIB, help="size of a log to measure memory"
    )
    parser.add_argument(
        "--folder", type=pathlib.Path, help="folder of the logs; default: a temporary one"
    )


@dataclasses.dataclass
class Times:
    """Wall-clock and CPU time of each run."""

    seconds: list[float] = dataclasses.field(default_factory=list)
    cpu_seconds: list[float] = dataclasses.field(default_factory=list)


def run(arguments: argparse.Namespace) -> int:
    """Print the table; 1 if something is over its budget."""
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = pathlib.Path(name)
        expression_file = folder / "PATTERNS"
        expression_file.write_text("\n".join(expressions.shipped()) + "\n", "utf-8")
        result = []
        log = folder / "log"
        line_microseconds = 0.0
        for every, matching, budget in (
            (200, "one line in 200 matches", 1.5),
            (1, "each line", None),
        ):
            make(log, arguments.mib, every)
            grep, ours = Times(), Times()
            for _ in range(arguments.repeats):
                lines = _grep(expression_file, log, grep)
                stored = _read(log, folder, ours)["stored"]
            about = f"{arguments.mib} MiB, {matching} ({lines:,} lines, {stored:,} metrics stored)"
            for seconds, kind, most in (
                ("seconds", "", budget),
                ("cpu_seconds", ", CPU time", None),
            ):
                result.append(
                    ratios.Ratio(
                        label=f"{about} / `grep -E -c`{kind}",
                        ours_seconds=getattr(ours, seconds),
                        bare_seconds=getattr(grep, seconds),
                        budget=most,
                    )
                )
            line_microseconds = statistics.median(ours.cpu_seconds) / lines * 1e6
        print(ratios.table(result))
        print(
            f"\nCPU time per line, each line matches: {line_microseconds:.1f} us "
            f"(budget {LINE_BUDGET_MICROSECONDS:g})"
        )
        make(log, arguments.memory_mib, 200)
        grown = _read(log, folder, Times())["grown_mib"]
        print(
            f"A log of {arguments.memory_mib} MiB: {grown:.0f} MiB over the start of the command "
            f"(budget {MEMORY_BUDGET_MIB})"
        )
    kept = all(ratio.kept for ratio in result) and grown <= MEMORY_BUDGET_MIB
    return 0 if kept and line_microseconds <= LINE_BUDGET_MICROSECONDS else 1


def make(path: pathlib.Path, mib: int, every: int) -> None:
    """Write a log in which every N-th line is one of torchtitan or Megatron.

    Lines have 100 to 400 bytes.
    """
    block = bytearray()
    for line in _lines(every):
        block += line.encode() + b"\n"
        if len(block) >= BLOCK_BYTES:
            break
    with path.open("wb") as file:
        for _ in range(max(1, round(mib * MIB / len(block)))):
            file.write(block)


def _lines(every: int) -> Iterator[str]:
    draw = random.Random(7)
    for number in itertools.count(1):
        if number % every:
            yield _other(number, draw)
        elif (number // every) % 2:
            yield _torchtitan(number, draw)
        else:
            yield _megatron(number, draw)


def _clock(number: int) -> str:
    return f"2026-11-21 12:{number // 60 % 60:02}:{number % 60:02},{number % 1000:03}"


def _other(number: int, draw: random.Random) -> str:
    text = f"{_clock(number)} - root - INFO - n{number % 64}:{number % 9000} [{number % 8}] "
    length = draw.randint(100, 390)
    while len(text) < length:
        text += draw.choice(WORDS) + " "
    return text.rstrip()


def _torchtitan(number: int, draw: random.Random) -> str:
    return (
        f"[titan] {_clock(number)} - root - INFO - step: {number:2}  "
        f"loss: {draw.uniform(2, 12):8.5f}  grad_norm: {draw.uniform(0, 9):7.4f}  "
        f"memory: {draw.uniform(40, 79):5.2f}GiB({draw.uniform(50, 99):.2f}%)  "
        f"tps: {draw.randint(900, 99999):,}  tflops: {draw.uniform(90, 999):,.2f}  "
        f"mfu: {draw.uniform(20, 60):.2f}%"
    )


def _megatron(number: int, draw: random.Random) -> str:
    return (
        f" iteration {number:8}/ 5000000 | consumed samples: {number * 2048:12} | "
        f"elapsed time per iteration (ms): {draw.uniform(900, 99999):.1f} | "
        f"learning rate: {draw.uniform(1e-6, 1e-3):.3E} | global batch size:  2048 | "
        f"lm loss: {draw.uniform(2, 12):.6E} | loss scale: 524288.0 | "
        f"grad norm: {draw.uniform(0, 9):.3f} | number of skipped iterations:   0 | "
        f"number of nan iterations:   0 | samples per second: {draw.uniform(1, 99):.3f} | "
        f"TFLOPs: {draw.uniform(20, 300):.2f} |"
    )


def _grep(patterns: pathlib.Path, log: pathlib.Path, times: Times) -> int:
    before, began = _children_seconds(), time.perf_counter()
    command = ["grep", "-E", "-c", "-f", str(patterns), str(log)]
    environ = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, check=True)
    times.seconds.append(time.perf_counter() - began)
    times.cpu_seconds.append(_children_seconds() - before)
    return int(done.stdout)


def _read(log: pathlib.Path, folder: pathlib.Path, times: Times) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(dir=folder) as work_folder:
        command = [
            sys.executable,
            "-m",
            "tests.benchmarks.programs.read_log",
            str(log),
            work_folder,
        ]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, cwd=ROOT)
    reported: dict[str, Any] = json.loads(done.stdout)
    times.seconds.append(reported["seconds"])
    times.cpu_seconds.append(reported["cpu_seconds"])
    return reported


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
